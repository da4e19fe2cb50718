"""What a vehicle does for its station, whatever the station asks: its own file, policy.toml, beside its key."""

import hashlib
import json
import tomllib
from pathlib import Path

import numpy as np
import tomli_w
from pydantic import Field, ValidationError

from skyfed.config import Config
from skyfed.drivers.flower.messages import Order, ReplyError
from skyfed.errors import BadInputError
from skyfed.files import read_json_table, write_whole
from skyfed.settings import StrictSettings, first_fault
from skyfed.types import Arrays

POLICY = "policy.toml"


class Policy(StrictSettings):
    """What a vehicle agrees to; all else is refused with a line."""

    algorithms: list[str] | None = Field(None, description="rows that it trains, by label; without it: its config's")
    rounds: int | None = Field(None, ge=0, description="how many rounds it trains, from round 0; without it: all")
    models: int = Field(3, ge=1, le=1000, description="different models that it answers in one exchange of a round")
    raw: bool = Field(True, description="whether it sends vectors that are not quantised")
    largest: float = Field(1e6, gt=0, description="largest weight of a model that it trains, as a magnitude")

    @classmethod
    def read(cls, place: Path) -> "Policy":
        """Read a vehicle's policy; where there is none, it does what its config says."""
        path = place / POLICY
        try:
            return cls.model_validate(tomllib.loads(path.read_text("utf-8")) if path.exists() else {}, strict=True)
        except ValidationError as error:
            where, why = first_fault(error)
            raise BadInputError(f"{path}: {where}: {why}; allowed: {', '.join(cls.model_fields)}") from None
        except ValueError as error:
            raise BadInputError(f"{path}: not valid TOML: {error}") from None

    @classmethod
    def write(cls, place: Path, config: Config) -> None:
        """Write the policy of a new vehicle: its config's rows and rounds, and the defaults; its owner may edit it."""
        own = cls(algorithms=config.labels, rounds=config.rounds)
        lines = ["# What this vehicle does for its station; all else is refused (docs/fleet.md)."]
        for name, field in cls.model_fields.items():
            lines += [f"# {field.description}", tomli_w.dumps({name: getattr(own, name)}).strip()]
        write_whole(place / POLICY, "\n".join([*lines, ""]).encode())

    def check_order(self, order: Order, config: Config, exchanges: dict[str, int]) -> None:
        """Raise ReplyError if an order is outside the config or the policy."""
        rounds = config.rounds if self.rounds is None else min(self.rounds, config.rounds)
        labels = exchanges if self.algorithms is None else [label for label in exchanges if label in self.algorithms]
        if order.algorithm not in labels:
            raise ReplyError(f"asked for {order.algorithm!r}; it trains: {', '.join(labels)}")
        if order.round >= rounds or order.exchange >= exchanges[order.algorithm]:
            raise ReplyError(f"asked for round {order.round}, exchange {order.exchange}; it trains {rounds} rounds")

    def check_model(self, sent: Arrays) -> None:
        """Raise ReplyError if the numbers of a model are out of range."""
        weights = sent.get("weights")
        if weights is None or not weights.size:
            return
        if max(abs(float(weights.min())), abs(float(weights.max()))) > self.largest:  # np.abs overflows for integers
            raise ReplyError(f"a model with weights beyond {self.largest:g}")


class Answered:
    """Which models were answered in which exchange, on the vehicle's own disk."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        known = (read_json_table(path) if path else None) or {}
        self._models = {key: list(value) for key, value in known.items() if isinstance(value, list)}

    def check(self, order: Order, sent: Arrays, most: int) -> str:
        """Return a hash of the model; raises ReplyError if `most` others were answered in this exchange."""
        hashed = hashlib.sha256()
        for name in sorted(sent):
            hashed.update(f"{name} {sent[name].dtype.str} {sent[name].shape} ".encode())
            hashed.update(np.ascontiguousarray(sent[name]).data if sent[name].size else b"")
        digest, before = hashed.hexdigest()[:32], self._models.get(_key(order), [])
        if digest not in before and len(before) >= most:
            raise ReplyError(f"round {order.round} was answered for {len(before)} other models already")
        return digest

    def note(self, order: Order, digest: str) -> None:
        """Remember that a model was answered."""
        models = self._models.setdefault(_key(order), [])
        if digest not in models:
            models.append(digest)
            if self._path:
                write_whole(self._path, json.dumps(self._models).encode())


def _key(order: Order) -> str:
    return f"{order.algorithm} {order.round} {order.exchange}"
