"""Symbols, numbers and places through the range coder."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from skyfed.wire import DecodeError
from skyfed.wire.entropy import (
    pack_numbers,
    pack_places,
    pack_symbols,
    places_of,
    unpack_numbers,
    unpack_places,
    unpack_symbols,
)
from skyfed.wire.reader import Reader, number

# symbols, numbers and places


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.uint8, st.integers(0, 300), elements=st.integers(0, 255)))
def test_any_symbols_come_back(symbols):
    reader = Reader(pack_symbols(symbols))
    assert unpack_symbols(reader, len(symbols), 256).tolist() == symbols.tolist()
    reader.end()


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.uint32, st.integers(0, 60), elements=st.integers(0, 2**32 - 1) | st.integers(0, 40)))
def test_any_numbers_come_back(values):
    reader = Reader(pack_numbers(values))
    assert unpack_numbers(reader, len(values)).tolist() == values.tolist()
    reader.end()


def test_numbers_around_every_power_of_two_come_back():
    values = np.array(sorted({max(0, min(2**32 - 1, 2**k + d)) for k in range(33) for d in (-1, 0, 1)}), np.uint32)
    assert unpack_numbers(Reader(pack_numbers(values)), len(values)).tolist() == values.tolist()


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(bool, st.integers(0, 200)))
def test_any_places_come_back(flags):
    places = places_of(flags)
    assert places.tolist() == np.flatnonzero(flags).tolist()
    assert unpack_places(Reader(pack_places(places)), len(places), len(flags)).tolist() == places.tolist()


@pytest.mark.parametrize("count", [2**18 - 1, 2**18, 2**18 + 1, 2**19 + 5])
def test_symbols_come_back_around_the_length_of_a_chunk(count):
    symbols = np.random.default_rng(8).geometric(0.3, count).clip(0, 255).astype(np.uint8)
    symbols[2**18 :] = 3  # a chunk with a single symbol
    reader = Reader(pack_symbols(symbols))
    assert np.array_equal(unpack_symbols(reader, count, 256), symbols)
    reader.end()


@given(st.integers(0, 2**63 - 1))
def test_any_number_comes_back_in_its_shortest_form(value):
    packed = number(value)
    reader = Reader(packed)
    assert reader.number(value) == value
    reader.end()
    assert len(packed) == max(1, -(-value.bit_length() // 7))
    if value:
        with pytest.raises(DecodeError, match="at most"):
            Reader(packed).number(value - 1)
