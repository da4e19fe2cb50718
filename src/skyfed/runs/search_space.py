"""A search for good settings: the [search] table of a sweep's file (docs/sweeps.md), and the trials in search.json.

Trials are written with their values before they run and with their results after. So a search that was stopped goes on
with the same trials, even where runs were lost.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from skyfed.errors import BadInputError
from skyfed.files import drop_dead_parts, is_part, storage_errors, write_whole
from skyfed.runs.folder import entries
from skyfed.runs.sweep_file import OWN, SweepFile, SweepJob, Variant, jobs_of, read_file
from skyfed.settings import first_fault

Value = bool | int | float | str
Goal = Literal[
    "accuracy", "accuracy_full", "mean_accuracy", "forgetting", "uplink_bytes", "total_bytes", "mission_seconds",
    "joules",
]  # fmt: skip
_LESS_IS_BETTER = ("forgetting", "uplink_bytes", "total_bytes", "mission_seconds", "joules")
_FOLDER = re.compile(r"trial-\d{4,5}")


class Range(BaseModel, extra="forbid", frozen=True, strict=True):
    """The values a setting may take: between two numbers, or some choices."""

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
        """The outermost values, or all choices: a config must accept them."""
        return self.choices or [value for value in (self.low, self.high) if value is not None]


class SearchTable(BaseModel, extra="forbid", frozen=True, strict=True):
    """The [search] table of a sweep's file."""

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
    """A search as its file describes it; `algorithm` is the one whose goal counts."""

    path: Path
    file: SweepFile
    table: SearchTable
    algorithm: str

    def jobs(self, values: dict[str, Value], name: str) -> list[SweepJob]:
        """Return the runs of a trial, one per seed; raises BadInputError for values that do not go together."""
        lines = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        return jobs_of(self.path, self.file, Variant(name=name, set=lines))

    def about(self) -> dict[str, Any]:
        """Return what identifies a search; the number of trials may be raised later."""
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
        where, why = first_fault(error, "search")
        raise BadInputError(
            f"{path}: {where}: {why}; allowed: {', '.join(SearchTable.model_fields)}; in [search.ranges] as "
            '"train.eta" = {low = 0.01, high = 0.3, log = true} or "quantise.s" = {choices = [1, 3]}'
        ) from None
    if "seed" in table.ranges:
        raise BadInputError(f'{path}: search.ranges.seed: allowed: seeds = "0-2" at the top level')
    config = jobs_of(path, file, Variant(name="base"))[0].config
    if table.goal == "mission_seconds" and config.world.time == "law":
        raise BadInputError(f'{path}: search.goal = "mission_seconds": allowed with world.time = "mission"')
    trained = config.labels
    algorithm = table.algorithm or trained[-1]
    if algorithm not in trained:
        raise BadInputError(f"{path}: search.algorithm = {algorithm!r}: allowed: one that is trained: {trained}")
    search = Search(path, file, table, algorithm)
    for key, span in table.ranges.items():
        for value in span.ends:
            search.jobs({key: value}, "base")
    return search


@dataclass(frozen=True)
class Trial:
    """One point of a search; `results` holds the goal of each seed once it is done."""

    number: int
    values: dict[str, Value]
    state: str = "asked"  # asked, done or failed
    results: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"trial-{self.number:04}"

    @property
    def result(self) -> float | None:
        """The goal, as mean over the seeds."""
        return mean(self.results) if self.state == "done" else None


class Trials:
    """The trials of a search, in a folder that holds nothing else."""

    def __init__(self, place: Path, about: dict[str, Any]) -> None:
        """Read what is there; a folder of another search, or of anything else, is refused."""
        self._path = place / "search.json"
        self._about: dict[str, Any] = json.loads(json.dumps(about))
        self._all: list[Trial] = []
        names = entries(place, "allowed: a new or empty folder, or this search's own")
        self.reload()
        for name in names:
            if name not in OWN and not is_part(name) and not (_FOLDER.fullmatch(name) and self._all):
                raise BadInputError(f"--out {place}: holds {name}; allowed: a new folder, or this search's own")
        drop_dead_parts(place)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def reload(self) -> None:
        """Read what other processes have added and told since."""
        with storage_errors(self._path):
            if self._path.exists():
                self._read()

    def add(self, values: Sequence[dict[str, Value]]) -> None:
        """Keep new trials before they are run."""
        self._all += [Trial(number, point) for number, point in enumerate(values, len(self._all))]
        self._write()

    def tell(self, number: int, results: Sequence[float] | None) -> None:
        """Keep a trial's results, one per seed; None where it failed."""
        state = "failed" if results is None else "done"
        self._all[number] = replace(self._all[number], state=state, results=tuple(results or ()))
        self._write()

    def ranked(self, upwards: bool) -> list[Trial]:
        """Return the finished trials, the best first; equals in the order of their numbers."""
        done = [trial for trial in self if trial.state == "done"]
        return sorted(done, key=lambda trial: mean(trial.results), reverse=upwards)

    def _write(self) -> None:
        tree = {"search": self._about, "trials": [asdict(trial) for trial in self]}
        write_whole(self._path, json.dumps(tree, indent=1).encode())

    def _read(self) -> None:
        try:
            tree = json.loads(self._path.read_bytes())
            about, listed = tree["search"], tree["trials"]
            self._all = [Trial(**{**trial, "results": tuple(trial["results"])}) for trial in listed]
            if any(trial.number != k or not isinstance(trial.values, dict) for k, trial in enumerate(self)):
                raise ValueError("trials out of order")
            changed = [key for key, value in self._about.items() if about.get(key) != value]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadInputError(f"{self._path}: not the trials of a search ({error})") from None
        if changed:
            raise BadInputError(f"{self._path}: of another search ({changed[0]} differs); allowed: a new folder")
