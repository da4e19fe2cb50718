"""Writes tests/vectors/wire.json: small messages with everything they are made of, for other implementations.

    python fuzz/vectors.py

Numbers are plain lists; floats are float32 numbers written out in full; masks are lists of 0 and 1; d is dense, with 0
where an entry was pruned. `forms` are those of mask, body, norms and buffers that the sender was told to use, null
where it chooses.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from skyfed.types import Quantised, Raw, Update
from skyfed.wire import (
    Channels,
    Expected,
    Reference,
    accumulated,
    bucket_starts,
    decode,
    encode,
    encode_model,
    entries,
)
from skyfed.wire.quantise import QUANTISERS

PLACE = Path(__file__).parents[1] / "tests" / "vectors" / "wire.json"


def build() -> dict[str, Any]:
    """Return all vectors."""
    bits = np.arange(40) * 11 % 16 < 9
    some = np.arange(40) % 13 == 5
    plain, scoped, grouped, long = _model(40), _model(40, scope=True), _model(40, channels=True), _model(150)
    close = scoped.guess(0.02)
    close[[3, 17]] ^= True
    channels = np.array([1, 0, 1, 1, 0], bool)
    by_channel = grouped.channels.mask(channels)
    nan = float("nan")
    uploads = [
        _upload("exact values, no mask", plain, _exact(plain, None, 0.05)),
        _upload("exact values, mask as differences from a guess", scoped, _exact(scoped, close, 0.1), close, 0.02,
                forms=(3, None, None, None)),
        _upload("plain values, mask as a bitmap", plain, Raw(_ramp(int(bits.sum()))), bits, forms=(1, None, None, 0)),
        _upload("qsgd, buckets of 9, range coder, mask as places", plain, _levels("qsgd", plain, some, 3, 9), some,
                forms=(2, 1, 1, 1)),
        _upload("qsgd, a bucket a tensor, bit planes", plain, _levels("qsgd", plain, None, 2, -1), coder="plain"),
        _upload("qsgd, one bucket, zstd, mask by channels", grouped, _levels("qsgd", grouped, by_channel, 127, 0),
                by_channel, nan, channels, "zstd", (4, 2, 0, None)),
        _upload("dither, buckets of 16, range coder", plain, _levels("dither", plain, None, 3, 16, 20240229),
                forms=(0, 1, 0, None)),
        _upload("eden, 2 levels, blocks of 64", long, _levels("eden", long, None, 2, 64, 987654321)),
        _upload("eden, 1 level and zeros, blocks of 128", long, _levels("eden", long, None, 1, 128, 5),
                forms=(0, 1, 0, None)),
    ]  # fmt: skip
    moved = Reference(_single(plain.weights - _ramp(40) / 1000), _single(plain.buffers * 1.25), plain.starts)
    models = [_broadcast("dense", moved, None), _broadcast("as a difference", moved, plain)]
    return {"uploads": uploads, "models": models}


def read(vector: dict[str, Any]) -> tuple[Update, Expected]:
    """Return the upload that a vector describes, and what waits for it."""
    known, sent = vector["common"], vector["update"]
    channels = known["channels"] and Channels(
        known["channels"]["count"], np.array(known["channels"]["first"]), np.array(known["channels"]["second"])
    )
    weights, buffers, starts = _single(known["weights"]), _single(known["buffers"]), np.array(known["starts"])
    reference = Reference(weights, buffers, starts, _bools(known["scope"]), channels)
    body = dict(sent["body"])
    if body.pop("kind") == "raw":
        trained = None if body["trained"] is None else _single(body["trained"])
        packed: Raw | Quantised = Raw(_single(body["values"]), trained, body["rate"])
    else:
        packed = Quantised(**body | {"levels": np.array(body["levels"], np.int8), "norms": _single(body["norms"])})
    threshold = float("nan") if sent["threshold"] is None else sent["threshold"]
    update = Update(
        vector["round"], vector["vehicle"], sent["size"], _bools(sent["mask"]), packed, _single(sent["buffers"]),
        threshold, _bools(sent["channels"]), sent["coder"], None if sent["forms"] is None else tuple(sent["forms"]),
    )  # fmt: skip
    return update, Expected(vector["round"], vector["vehicle"], reference, vector["rate"])


def read_model(part: dict[str, Any] | None) -> Reference | None:
    """Return a model of a broadcast."""
    if part is None:
        return None
    return Reference(_single(part["weights"]), _single(part["buffers"]), np.array([0, len(part["weights"])]))


def dense(update: Update, reference: Reference) -> list[float]:
    """Return d with 0 where an entry was pruned."""
    whole = np.zeros(update.size, np.float32)
    whole[slice(None) if update.mask is None else update.mask] = entries(update, reference)
    return _list(whole)


def _model(size: int, scope: bool = False, channels: bool = False) -> Reference:
    k = np.arange(size)
    weights = _single((37 * k % 101 - 50) / 1000)
    weights[1], weights[2] = -0.0, 1e-45
    starts = np.array([0, size // 4, size // 4, size // 2 + 3, size])
    return Reference(
        weights, _single([0.0, 1.0, -0.25]), starts, k % 5 > 0 if scope else None,
        Channels(5, k % 6 - 1, k // 8 - 1) if channels else None,
    )  # fmt: skip


def _exact(reference: Reference, mask: np.ndarray | None, rate: float) -> Raw:
    near = reference.weights if mask is None else reference.weights[mask]
    trained = _single(near + _ramp(len(near)) / 4096)
    trained[0] = -0.0
    return Raw(accumulated(near, trained, rate), trained, rate)


def _levels(
    scheme: str, reference: Reference, mask: np.ndarray | None, s: int, bucket: int, seed: int = 0
) -> Quantised:
    starts = bucket_starts(reference.size if mask is None else int(mask.sum()), bucket, reference.starts, mask)
    k = np.arange(QUANTISERS[scheme].count(starts))
    levels = (5 * k + k // 7) % (2 * s + 1) - s
    if scheme == "eden" and s > 1:
        levels[levels == 0] = 1
    norms = 2.0 ** (np.arange(len(starts) - 1) % 3 - 4)  # bfloat16 numbers
    return Quantised(scheme, levels.astype(np.int8), _single(norms), s, bucket, seed)


def _upload(
    name: str, reference: Reference, body: Raw | Quantised, mask: np.ndarray | None = None,
    threshold: float = float("nan"), channels: np.ndarray | None = None, coder: str = "range",
    forms: tuple[int | None, ...] | None = None,
) -> dict[str, Any]:  # fmt: skip
    threshold = float(np.float32(threshold))
    buffers = reference.buffers + _single([0.5, 0.0, 2.0**-20])
    update = Update(7, 3, reference.size, mask, body, buffers, threshold, channels, coder, forms)
    rate = body.rate if isinstance(body, Raw) and body.trained is not None else None
    message = encode(update, reference)
    if isinstance(body, Raw):
        part: dict[str, Any] = {
            "kind": "raw", "values": _list(body.values), "trained": _list(body.trained), "rate": body.rate
        }  # fmt: skip
    else:
        part = {"kind": "quantised"} | vars(body) | {"levels": body.levels.tolist(), "norms": _list(body.norms)}
    known = reference.channels
    return {
        "name": name,
        "round": update.round,
        "vehicle": update.vehicle,
        "rate": rate,
        "common": {
            "weights": _list(reference.weights),
            "buffers": _list(reference.buffers),
            "starts": reference.starts.tolist(),
            "scope": _flags(reference.scope),
            "channels": known
            and {"count": known.count, "first": known.first.tolist(), "second": known.second.tolist()},
        },
        "update": {
            "size": update.size,
            "mask": _flags(mask),
            "threshold": None if np.isnan(threshold) else threshold,
            "channels": _flags(channels),
            "coder": coder,
            "forms": forms,
            "buffers": _list(buffers),
            "body": part,
        },
        "d": dense(decode(message, Expected(7, 3, reference, rate)), reference),
        "message": message.hex(),
    }


def _broadcast(name: str, model: Reference, base: Reference | None) -> dict[str, Any]:
    def part(found: Reference | None) -> dict[str, Any] | None:
        return found and {"weights": _list(found.weights), "buffers": _list(found.buffers)}

    message = encode_model(7, model, base)
    return {"name": name, "round": 7, "model": part(model), "base": part(base), "message": message.hex()}


def _ramp(count: int) -> np.ndarray:
    k = np.arange(count)
    return _single((k - 3) * (k % 3 - 1) / 8)


def _single(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def _list(values: np.ndarray | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _flags(values: np.ndarray | None) -> list[int] | None:
    return None if values is None else values.astype(int).tolist()


def _bools(values: list[int] | None) -> np.ndarray | None:
    return None if values is None else np.array(values, bool)


def text(vectors: dict[str, Any]) -> str:
    """Return vectors as JSON, with one line for every list of numbers."""
    return _lines(vectors, "") + "\n"


def _lines(value: Any, indent: str) -> str:
    inner = indent + " "
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(key)}: {_lines(part, inner)}" for key, part in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(inner + _lines(part, inner) for part in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)


if __name__ == "__main__":
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(text(build()))
