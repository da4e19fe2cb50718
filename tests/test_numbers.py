"""Numbers for people: digits follow the interval, nothing that varies is shown as 0, units suit the column."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyfed.report.numbers import amount, number, unit_of, with_interval

FINITE = st.floats(-1e9, 1e9)
HALVES = st.floats(1e-9, 1e9)
SHOWN = re.compile(r"\(?(-?[\d,.]+) ± ([\d,.]+)\)?(?:e([+-]\d+))?")


def parsed(text: str) -> tuple[float, float, float]:
    """Return the value, the half and the size of one step of the last digit shown before rounding to tens."""
    match = SHOWN.fullmatch(text)
    assert match, text
    scale = 10.0 ** int(match[3] or 0)
    return float(match[1].replace(",", "")) * scale, float(match[2].replace(",", "")) * scale, scale


def significant(text: str) -> str:
    """Return the digits of a half interval from the first that is not 0; zeros before a missing point do not count."""
    digits = text.replace(",", "")
    return digits.replace(".", "").lstrip("0") if "." in digits else digits.rstrip("0") or digits


@given(FINITE, HALVES)
def test_the_half_has_one_significant_digit_or_two_if_it_begins_with_one(mean: float, half: float) -> None:
    text = with_interval(mean, half)
    digits = significant(SHOWN.fullmatch(text)[2])  # type: ignore[index]
    assert len(digits) <= (2 if f"{half:e}"[0] in "19" else 1)  # 0.096 is rounded to 0.10
    assert digits.strip("0")


@given(FINITE, HALVES)
def test_value_and_half_are_rounded_to_the_same_place(mean: float, half: float) -> None:
    value, shown, _ = parsed(with_interval(mean, half))
    step = 10.0 ** (int(f"{half:e}"[-3:]) - (f"{half:e}"[0] == "1"))
    assert abs(shown - half) <= 0.5001 * step
    assert abs(value - mean) <= 0.5001 * step + 1e-9 * abs(mean)
    left, right = SHOWN.fullmatch(with_interval(mean, half)).groups()[:2]  # type: ignore[union-attr]
    assert len(left.partition(".")[2]) == len(right.partition(".")[2])


@given(FINITE, HALVES)
def test_what_varies_is_never_shown_as_nothing(mean: float, half: float) -> None:
    assert parsed(with_interval(mean, half))[1] > 0


@given(st.floats(1e-9, 1e15) | st.floats(-1e15, -1e-9))
def test_one_number_keeps_three_digits(value: float) -> None:
    shown = float(number(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (48.4, 0.12, "48.40 ± 0.12"),
        (48.4, 0.3, "48.4 ± 0.3"),
        (48.4, 0.096, "48.40 ± 0.10"),
        (1234.5, 23, "1,230 ± 20"),
        (0.0312, 0.0004, "0.0312 ± 0.0004"),
        (-0.001, 0.5, "0.0 ± 0.5"),
        (3.2e-9, 1.1e-10, "(3.20 ± 0.11)e-09"),
        (5.0, 0.0, "5.00 ± 0"),
        (84.34, None, "84.3"),
        (None, None, "-"),
        (float("nan"), 1.0, "-"),
    ],
)
def test_examples(mean, half, text):
    assert with_interval(mean, half) == text


def test_signs():
    assert with_interval(0.42, 0.2, "+") == "+0.4 ± 0.2"
    assert with_interval(0.42, None, "+") == "+0.420"
    assert number(-3.0, "+") == "-3.00"


def test_units_suit_the_column():
    assert unit_of("B", [31_000, 12_000]).name == "kB"
    assert unit_of("B", [376e6, 0.05e6]).name == "MB"
    assert unit_of("B", [0, None, 2e9]).name == "GB"
    assert unit_of("B", []).name == "B"
    assert unit_of("J", [1000.0]).name == "kJ"
    assert unit_of("%", [0.5]).factor == 100
    assert unit_of("s", [1e6]).name == "s"
    assert amount(31_234, "B") == "31.2 kB"
    assert amount(0, "B") == "0 B"


@given(st.lists(st.floats(1, 1e14), min_size=1, max_size=9))
def test_a_typical_value_has_at_most_three_digits_before_the_point(values: list[float]) -> None:
    unit = unit_of("B", values)
    assert max(values) * unit.factor >= 0.999
    assert min(values) * unit.factor < 1000.001
