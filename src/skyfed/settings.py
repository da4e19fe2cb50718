"""What all tables of settings share: unknown keys are refused, values do not change, numbers are finite."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

# what a value must be, by pydantic's name of the fault: its own words are those of a programmer
_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    "int_parsing_size": "a whole number with fewer digits",
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    "missing": "a longer list",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a table"),
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
}


class StrictSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Base of a table of settings."""


def what_is_wrong(faults: Iterable[Mapping[str, Any]]) -> str:
    """Return what a value must be instead, from pydantic's faults of it; a check's own message stays as it is."""
    wanted: dict[str, None] = {}
    told: dict[str, None] = {}
    for fault in faults:
        key = fault["loc"][-1] if fault["loc"] else ""
        if fault["type"] == "value_error":
            told[" ".join(fault["msg"].removeprefix("Value error, ").split())] = None
        elif fault["type"] == "extra_forbidden":
            told["is not a setting"] = None
        elif fault["type"] == "missing" and isinstance(key, str):
            told[f"{key!r} is missing"] = None
        else:
            wanted[_wanted(fault)] = None
    return "; ".join([*([f"must be {' or '.join(wanted)}"] if wanted else []), *told])


def first_fault(error: ValidationError, *where: str) -> tuple[str, str]:
    """Return the place and the reason of the first fault; `where` is the place of the whole table."""
    first = error.errors(include_url=False)[0]
    return ".".join([*where, *map(str, first["loc"])]), what_is_wrong([first])


def _wanted(fault: Mapping[str, Any]) -> str:
    limits = {name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in fault.get("ctx", {}).items()}
    words: str = _WORDS.get(fault["type"], fault["msg"].removeprefix("Input should be "))
    return words.format(**limits) if fault["type"] in _WORDS else words
