"""A column of a table; declared once, beside the code that fills it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "float", "bool", "text", "floats"]


@dataclass(frozen=True)
class Column:
    """A column of a run's tables.

    meaning  one line, for the docs and the page
    empty    whether a row may have no value here
    default  what stands there where nothing was said
    since    the version that introduced it; folders of earlier versions are read without
    """

    name: str
    kind: Kind
    meaning: str
    empty: bool = False
    default: float | int | bool | str | None = None
    since: str = "0.1.0"
