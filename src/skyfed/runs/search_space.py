"""A search for good settings: what the [search] table of a sweep's file may say (docs/sweeps.md)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from skyfed.errors import BadInputError
from skyfed.runs.sweep_file import SweepFile, SweepJob, Variant, jobs_of, read_file

Value = bool | int | float | str
Goal = Literal["accuracy", "accuracy_full", "mean_accuracy", "forgetting", "uplink_bytes", "joules"]
_LESS_IS_BETTER = ("forgetting", "uplink_bytes", "joules")


class Range(BaseModel):
    """The values a setting may take: between two numbers, or some choices."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    step: int | float | None = Field(None, gt=0)
    choices: list[Value] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "Range":
        low, high = self.low, self.high
        if self.choices is not None:
            if self.log or (low, high, self.step) != (None, None, None):
                raise ValueError("allowed: choices alone, or low and high")
        elif low is None or high is None or not -float("inf") < low < high < float("inf"):
            raise ValueError("allowed: low below high, or choices")
        elif self.log and (low <= 0 or self.step is not None):
            raise ValueError("allowed with log: low above 0, no step")
        return self

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return all(isinstance(value, int) for value in (self.low, self.high, self.step or 1))

    @property
    def ends(self) -> list[Value]:
        """The outermost values, or all choices: what a config has to take."""
        return self.choices or [value for value in (self.low, self.high) if value is not None]


class SearchTable(BaseModel):
    """What a sweep's [search] table may say."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    trials: int = Field(ge=1, le=10_000)
    goal: Goal = "accuracy"
    algorithm: str | None = None
    direction: Literal["maximize", "minimize"] | None = None
    sampler: Literal["tpe", "random"] = "tpe"
    seed: int = Field(0, ge=0, lt=2**31)
    batch: int = Field(1, ge=1, le=1000)
    ranges: Annotated[dict[str, Range], Field(min_length=1)]

    @property
    def upwards(self) -> bool:
        """Whether more of the goal is better."""
        return self.goal not in _LESS_IS_BETTER if self.direction is None else self.direction == "maximize"


@dataclass(frozen=True)
class Search:
    """A search as its file says: the table, whose goal counts, and how a trial becomes runs."""

    path: Path
    file: SweepFile
    table: SearchTable
    algorithm: str

    def jobs(self, values: dict[str, Value], name: str) -> list[SweepJob]:
        """Return the runs of a trial, one a seed; raises BadInputError for values that do not go together."""
        lines = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        return jobs_of(self.path, self.file, Variant(name=name, set=lines))

    def about(self) -> dict[str, Any]:
        """Return what makes a search this one; more trials may be asked for later."""
        jobs = self.jobs({}, "base")
        tree = self.table.model_dump(mode="json", exclude={"trials"})
        tree |= {"algorithm": self.algorithm, "seeds": [job.seed for job in jobs]}
        return {**tree, "base": jobs[0].config.model_dump(mode="json", exclude={"workers", "track", "seed"})}


def read_search(path: Path) -> Search | None:
    """Read a sweep's file if it is a search, and try the ends of every range; bad input shows here."""
    file = read_file(path)
    if file.search is None:
        return None
    if file.grid or file.variant:
        raise BadInputError(f"{path}: [search] beside [grid] or [[variant]]; allowed: one of them a file")
    try:
        table = SearchTable.model_validate(file.search)
    except ValidationError as error:
        raise BadInputError(f"{path}: {_first(error)}") from None
    if "seed" in table.ranges:
        raise BadInputError(f'{path}: search.ranges.seed: allowed: seeds = "0-2" at the top level')
    trained = jobs_of(path, file, Variant(name="base"))[0].config.labels
    algorithm = table.algorithm or trained[-1]
    if algorithm not in trained:
        raise BadInputError(f"{path}: search.algorithm = {algorithm!r}: allowed: one that is trained: {trained}")
    search = Search(path, file, table, algorithm)
    for key, span in table.ranges.items():
        for value in span.ends:
            search.jobs({key: value}, "base")
    return search


def _first(error: ValidationError) -> str:
    """Say the first problem of a search table."""
    found = error.errors()[0]
    where = ".".join(["search", *(str(part) for part in found["loc"])])
    return (
        f"{where}: {found['msg'].removeprefix('Value error, ')}; allowed: {', '.join(SearchTable.model_fields)}; in "
        '[search.ranges] as "train.eta" = {low = 0.01, high = 0.3, log = true} or "quantise.s" = {choices = [1, 3]}'
    )
