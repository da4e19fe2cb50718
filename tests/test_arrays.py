"""Named arrays as bytes: what is packed is there again, as views, and other bytes are refused with ValueError."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from skyfed.arrays import map_arrays, pack_arrays, view_arrays, write_arrays
from skyfed.types import Arrays, same_arrays

DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]


def arrays(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    found = {f"of {kind}": rng.integers(0, 2, (3, 2)).astype(kind) for kind in DTYPES}
    return {**found, "one number": np.array(7.5), "none": np.empty((0, 4), np.float32), "ünï": np.arange(5)}


def test_what_is_packed_is_there_again():
    data = pack_arrays(arrays(), {"about": "words", "more": "é\n"})
    found, about = view_arrays(data)
    assert same_arrays(found, arrays())
    assert about == {"about": "words", "more": "é\n"}
    assert view_arrays(pack_arrays(arrays()))[1] == {}


def test_files_are_those_of_safetensors(tmp_path):
    """Anybody can read them."""
    data = pack_arrays(arrays())
    assert same_arrays(load(data), arrays())
    write_arrays(tmp_path / "a", arrays())
    assert same_arrays(load((tmp_path / "a").read_bytes()), arrays())
    assert same_arrays(map_arrays(tmp_path / "a"), arrays())


def test_nothing_is_copied():
    data = bytearray(pack_arrays({"a": np.arange(4), "b": np.zeros(3)}))
    found, _ = view_arrays(data)
    for array in found.values():
        assert array.base is not None
    at = data.index(np.arange(4).tobytes())
    data[at] = 9
    assert found["a"][0] == 9


def test_what_is_written_to_a_mapped_file_stays_here(tmp_path):
    write_arrays(tmp_path / "a", {"a": np.arange(4)})
    before = (tmp_path / "a").read_bytes()
    mapped = map_arrays(tmp_path / "a")
    mapped["a"][0] = 5
    assert mapped["a"].tolist() == [5, 1, 2, 3]
    assert (tmp_path / "a").read_bytes() == before
    (tmp_path / "empty").touch()
    assert map_arrays(tmp_path / "empty") == {}


def test_arrays_that_lie_otherwise_in_memory():
    whole = np.arange(24.0).reshape(4, 6)
    for array in (whole.T, whole[::2], whole[:, 1:3], np.asfortranarray(whole), np.broadcast_to(whole[0], (3, 6))):
        found, _ = view_arrays(pack_arrays({"x": array}))
        assert np.array_equal(found["x"], array)


def test_the_same_arrays_are_the_same_bytes():
    assert pack_arrays(arrays(), {"a": "b"}) == pack_arrays(arrays(), {"a": "b"})
    assert view_arrays(pack_arrays({}))[0] == {}


# the same


def test_arrays_are_the_same_by_names_types_shapes_and_bits():
    one = {"a": np.arange(6, dtype=np.int32), "b": np.array([0.0, np.nan])}
    assert same_arrays(one, {name: array.copy() for name, array in reversed(one.items())})
    for other in (
        {"a": one["a"]},
        {**one, "c": one["a"]},
        {**one, "a": one["a"].astype(np.int64)},
        {**one, "a": one["a"].reshape(2, 3)},
        {**one, "a": one["a"] + 1},
        {**one, "b": np.array([-0.0, np.nan])},
        {"x": one["a"], "b": one["b"]},
    ):
        assert not same_arrays(one, other)
    assert same_arrays({}, {})


# other bytes


def packed(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header",
    [[], 3, "text", None, {"a": {**GOOD, "data_offsets": [0, 12]}}, {"a": {**GOOD, "data_offsets": [-8, 0]}},
     {"a": {**GOOD, "data_offsets": [8, 0]}}, {"a": {**GOOD, "shape": [3]}}, {"a": {**GOOD, "shape": [-2]}},
     {"a": {**GOOD, "shape": [2**40, 2**40]}}, {"a": {**GOOD, "shape": [-1, -2]}},
     {"a": {**GOOD, "data_offsets": [0, 8, 8]}}],
    ids=str,
)  # fmt: skip
def test_headers_that_cannot_be_are_refused(header):
    with pytest.raises(ValueError):  # noqa: PT011
        view_arrays(packed(header, bytes(8)))
    assert view_arrays(packed({"a": GOOD}, bytes(8)))[0]["a"].tolist() == [0, 0]


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_bytes_give_arrays_or_one_of_a_few_exceptions(seed):
    """Those that checkpoints and workers expect, and never an array beyond the bytes."""
    rng = np.random.default_rng(seed)
    data = bytearray(pack_arrays(arrays(seed % 3)))
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(min(len(data), 1200)))
        data[at] = int(rng.integers(256))
    data = data[: int(rng.integers(len(data)))] if seed % 4 == 0 else data
    try:
        found, _ = view_arrays(bytes(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    assert sum(array.nbytes for array in found.values()) <= 20 * len(data)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011
        view_arrays(data)
