"""The algorithms: known by id, or your own by import path; rows of a config with their own settings."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from skyfed.errors import BadInputError
from skyfed.imports import check_path, import_path

if TYPE_CHECKING:
    from skyfed.algorithms.base import Algorithm


@dataclass(frozen=True)
class Known:
    """An algorithm that comes with skyfed: what it is called, where it is, and the settings that make it so."""

    title: str
    path: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    central: bool = False


PAPER = ("sgd", "afl", "afl-prune", "afl-quant", "2ceoafl")  # the five that the paper compares
_PAPER = "skyfed.algorithms.twoceoafl:TwoCEOAFL"
_SWIFT = {  # tried out on seed 101, which no comparison uses
    "train": {"eta": 0.15},
    "quantise": {"scheme": "eden", "s": 1, "bucket": 4096, "variance": 4.8, "buffers": 1},
    "down": {"scheme": "eden", "s": 1, "bucket": 4096, "variance": 1.5, "buffers": 4},
    "optimiser": {"kind": "nesterov", "beta": 0.7},
}
KNOWN: dict[str, Known] = {
    "sgd": Known("SGD", "skyfed.algorithms.central:Central", central=True),
    "afl": Known("AFL", _PAPER, {"pruning": False, "quantising": "never"}),
    "afl-prune": Known("AFL-Prune", _PAPER, {"quantising": "never"}),
    "afl-quant": Known("AFL-Quant", _PAPER, {"pruning": False, "quantising": "always"}),
    "2ceoafl": Known("2CEOAFL", _PAPER),
    "swift": Known("Swift", "skyfed.algorithms.swift:Swift", _SWIFT),
}
_LABEL = re.compile(r"[\w(][\w .,+=()-]{0,62}")
_TAKEN = {  # what else is in a run's folder
    "figures", "waypoints", "plans", "fleet", "checkpoints", "logs", "flower", "config.toml", "manifest.json",
    "plan.npz", "map.png", "report.html", "station.log", "track.json", "tensorboard", "mlruns", "wandb",
}  # fmt: skip
_RECIPE = (
    "a Recipe, as in version 0.1; write a class made from skyfed.algorithms.base.Algorithm with a method `local` "
    "instead, or one made from skyfed.algorithms.twoceoafl.TwoCEOAFL with a method `raw_probability` "
    "(docs/algorithm.md)"
)


class Row(BaseModel):
    """One row of a run: an algorithm, its label, and what it sets differently."""

    model_config = ConfigDict(extra="allow", frozen=True)

    use: str = Field(description="an id, package.module:Name or file.py:Name")
    label: str = Field("", description="names its folder and its curve; by default its id or name")
    _shown: tuple[str, bool] | None = PrivateAttr(None)  # title and central of a class of the user's own, once known

    @property
    def name(self) -> str:
        """The label, or what stands for it."""
        return self.label or self.use.rpartition(":")[2]

    @property
    def own(self) -> dict[str, Any]:
        """The settings of this row alone."""
        return dict(self.model_extra or {})

    @property
    def title(self) -> str:
        """What curves and tables show, as far as it is known without importing anything."""
        if self.label or self.use in KNOWN:
            return self.label or KNOWN[self.use].title
        return self._shown[0] if self._shown is not None else self.name

    @property
    def central(self) -> bool:
        """Whether it is known to train without vehicles."""
        return KNOWN[self.use].central if self.use in KNOWN else self._shown is not None and self._shown[1]

    def shown_as(self, title: str, central: bool) -> "Row":
        """Return the same row, with what its class says of itself."""
        row = self.model_copy()
        row._shown = (title or self.name, central)
        return row


def check_rows(rows: Sequence[str | dict[str, Any]]) -> list[Row]:
    """Return the rows of a config; raises ValueError saying what is allowed. Nothing of a user's is imported."""
    checked = []
    for row in rows:
        try:
            checked.append(Row.model_validate({"use": row} if isinstance(row, str) else row))
        except ValidationError:
            raise ValueError('allowed: an id, or a table such as {use = "afl", label = "mine"}') from None
        use, name = checked[-1].use, checked[-1].name
        if use not in KNOWN:
            try:
                check_path(use)
            except ValueError:
                raise ValueError(
                    f"{use!r} is not known; allowed: {', '.join(KNOWN)}, package.module:Name, file.py:Name"
                ) from None
        if not _LABEL.fullmatch(name) or name.strip() != name or name.casefold() in _TAKEN:
            raise ValueError(f"label {name!r} cannot name a folder; allowed: letters, digits, spaces and . , + = ( ) -")
    names = [row.name.casefold() for row in checked]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice; allowed: a label of its own for each row")
    return checked


def find_class(row: Row) -> "type[Algorithm]":
    """Return the class of a row's algorithm; raises BadInputError where it is none."""
    from skyfed.algorithms.base import Algorithm

    path = KNOWN[row.use].path if row.use in KNOWN else row.use
    algorithm = import_path(path, "algorithms")
    if type(algorithm).__name__ == "Recipe":
        raise BadInputError(f"algorithms = {row.use!r}: {_RECIPE}")
    if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
        raise BadInputError(f"algorithms = {row.use!r}: allowed: a class made from skyfed.algorithms.base.Algorithm")
    return algorithm


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with another laid over it, table by table."""
    tree = dict(base)
    for key, value in more.items():
        inner = tree.get(key)
        tree[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return tree


def __getattr__(name: str) -> Any:
    """Tell who imports what version 0.1 had here what to write now."""
    if name in ("Recipe", "RECIPES", "find_recipe"):
        raise ImportError(_RECIPE)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
