"""The algorithms as rows of one table: who trains, is the model pruned, when is the upload raw.

A sixth algorithm is a sixth row; what the columns cannot say, one function in `raw_probability` can. A row of one's own
need not be written here: `algorithms = ["afl", "package.module:ROW"]` finds it.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

RawProbability = Callable[[float, "float | str"], float]  # drawn delta, the setting -> probability of a raw upload


@dataclass(frozen=True)
class Recipe:
    """One algorithm.

    title            as the paper writes it
    central          trained on the union of all data by a genie, without vehicles
    prune            vehicles look for a winning ticket first
    raw_probability  of sending d unquantised                                     frak q_u^t
    """

    title: str
    central: bool = False
    prune: bool = False
    raw_probability: RawProbability = lambda delta, setting: 1.0


def as_configured(delta: float, setting: float | str) -> float:
    """Return q: the drawn delta, or the number that is set."""
    return delta if setting == "delta" else float(setting)


RECIPES: dict[str, Recipe] = {
    "sgd": Recipe("SGD", central=True),
    "afl": Recipe("AFL"),
    "afl-prune": Recipe("AFL-Prune", prune=True),
    "afl-quant": Recipe("AFL-Quant", raw_probability=lambda delta, setting: 0.0),
    "2ceoafl": Recipe("2CEOAFL", prune=True, raw_probability=as_configured),
}


def find_recipe(name: str) -> Recipe:
    """Return the row of an algorithm, known or by import path; raises ValueError saying what is allowed."""
    if name in RECIPES:
        return RECIPES[name]
    module, colon, row = name.partition(":")
    if not colon:
        raise ValueError(f"{name!r} is not known; allowed: {', '.join(RECIPES)}, package.module:ROW")
    try:
        found = getattr(importlib.import_module(module), row)
    except Exception as error:  # whatever a module of the user's own does when it is imported
        raise ValueError(f"{name!r}: {type(error).__name__}: {error}") from None
    if not isinstance(found, Recipe):
        raise ValueError(f"{name!r} is a {type(found).__name__}; allowed: a skyfed.algorithms.Recipe")
    _try(name, found)
    return found


def _try(name: str, recipe: Recipe) -> None:
    """Ask a row of the user's own for some probabilities: better now than after the flights are planned."""
    tried: list[tuple[float, float | str]] = [(0.0, "delta"), (0.5, "delta"), (0.95, "delta"), (0.5, 0.5)]
    for delta, setting in tried:
        call = f"{name!r}: raw_probability({delta}, {setting!r})"
        try:
            found = float(recipe.raw_probability(delta, setting))
        except Exception as error:  # whatever code of the user's own does
            raise ValueError(f"{call}: {type(error).__name__}: {' '.join(str(error).splitlines())}") from None
        if not 0 <= found <= 1:
            raise ValueError(f"{call} gave {found}; allowed: a probability, 0 to 1")
