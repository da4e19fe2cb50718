"""The trials of a search, kept in search.json: values before they run, results after.

So a search that was stopped goes on with the same trials, whatever was lost of a run.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.runs.search_space import Value
from skyfed.runs.sweep_file import OWN

_NAME = re.compile(r"trial-\d{4,5}")


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
        with storage_errors(place):
            if place.exists() and not place.is_dir():
                raise BadInputError(f"--out {place}: is a file; allowed: a new or empty folder, or this search's own")
            place.mkdir(parents=True, exist_ok=True)
            names = sorted(entry.name for entry in place.iterdir())
            if self._path.exists():
                self._read()
        strangers = [name for name in names if name not in OWN and not (_NAME.fullmatch(name) and self._all)]
        if strangers:
            raise BadInputError(f"--out {place}: holds {strangers[0]}; allowed: a new folder, or this search's own")

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, values: Sequence[dict[str, Value]]) -> None:
        """Keep new trials before they are run."""
        self._all += [Trial(len(self._all) + k, one) for k, one in enumerate(values)]
        self._write()

    def tell(self, number: int, results: Sequence[float] | None) -> None:
        """Keep a trial's results, one a seed; None where it failed."""
        state = "failed" if results is None else "done"
        self._all[number] = replace(self._all[number], state=state, results=tuple(results or ()))
        self._write()

    def best(self, upwards: bool) -> Trial | None:
        """Return the best finished trial, the first of equals."""
        ranked = self.ranked(upwards)
        return ranked[0] if ranked else None

    def ranked(self, upwards: bool) -> list[Trial]:
        """Return the finished trials, the best first."""
        done = [(trial.result, trial) for trial in self if trial.result is not None]
        done.sort(key=lambda pair: (-pair[0] if upwards else pair[0], pair[1].number))
        return [trial for _, trial in done]

    def _write(self) -> None:
        tree = {"search": self._about, "trials": [asdict(trial) for trial in self]}
        write_whole(self._path, json.dumps(tree, indent=1).encode())

    def _read(self) -> None:
        try:
            tree = json.loads(self._path.read_bytes())
            about, listed = tree["search"], tree["trials"]
            self._all = [Trial(**{**one, "results": tuple(one["results"])}) for one in listed]
            if any(trial.number != k or not isinstance(trial.values, dict) for k, trial in enumerate(self)):
                raise ValueError("trials out of order")
            changed = [key for key, value in self._about.items() if about.get(key) != value]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadInputError(f"{self._path}: not the trials of a search ({error})") from None
        if changed:
            raise BadInputError(f"{self._path}: of another search ({changed[0]} differs); allowed: a new folder")
