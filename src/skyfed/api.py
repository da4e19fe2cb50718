"""skyfed from Python: `skyfed.run`, `skyfed.plan`, `skyfed.load`."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

from skyfed import pipeline
from skyfed.config import Config, Source, load_config
from skyfed.errors import BadInputError, DivergedError
from skyfed.report.draw import draw_run
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.nn import Module

    from skyfed.flight.fleet_plan import FleetPlan

What = Literal["mission", "megabytes", "joules", "accuracy", "payload", "map"]


def run(source: Source = "quick", *, out: str | Path | None = None, progress: bool = True, **settings: Any) -> "Run":
    """Plan the flights and train every row; returns the run.

    source    a preset's name, a TOML file, a table of settings, or a config
    out       folder for the results; a new one under runs/ if not given. A run that was stopped there goes on
    progress  whether to show a bar and the curves while it runs
    settings  settings of the config: rounds=4, train={"kappa": 2}, or **{"train.kappa": 2}; algorithms may also be
              classes

    Raises BadInputError for bad settings, with the message of the command line, and DivergedError at the end if
    training diverged; finished rows are kept.
    """
    config = configure(source, settings)
    name = str(source) if isinstance(source, str | Path) else "run"
    place = Path(out) if out is not None else pipeline.new_folder(name)
    mission, task = pipeline.prepare(config), pipeline.load_data(config, not progress)
    with RunFolder.claim(place, config, ["run", *sys.argv[1:]]) as folder:
        fleet = pipeline.plan_flights(folder, config, mission, not progress)
        diverged = pipeline.train(folder, config, task, fleet, not progress)
        draw_run(folder, config, fleet)
    if diverged:
        raise DivergedError("; ".join(diverged))
    return Run(place)


def plan(
    source: Source = "quick", *, out: str | Path | None = None, progress: bool = True, **settings: Any
) -> "FleetPlan":
    """Plan the flights of a config; returns them. Kept in a folder if one is given."""
    config = configure(source, settings)
    mission = pipeline.prepare(config)
    kept = TemporaryDirectory(prefix="skyfed-plan-") if out is None else nullcontext(out)
    with kept as place, RunFolder.claim(Path(place), config, ["plan"]) as folder:
        return pipeline.plan_flights(folder, config, mission, not progress)


def load(folder: str | Path) -> "Run":
    """Return the run in a folder, finished or not."""
    return Run(Path(folder))


def table(
    *folders: str | Path,
    measure: str = "late_accuracy_full",
    columns: Sequence[str] | None = None,
    against: str | None = None,
    margin: float | None = None,
) -> Any:
    """Return what `skyfed table` shows as a data frame: one row per cell, values in SI units, accuracy 0 to 1.

    folders  finished runs, folders of seeds, or sweeps
    measure  the accuracy of the first column
    columns  names of the other columns; the costs if not given
    against  the row that all others are compared with; the best one if not given
    margin   points of accuracy up to which less counts as not inferior
    """
    from skyfed.report.result_table import build_table, records

    return _frame_of(records(build_table([Path(folder) for folder in folders], measure, columns, against, margin)))


def configure(source: Source, settings: Mapping[str, Any]) -> Config:
    """Return a config with some settings changed; raises BadInputError naming the first that is wrong."""
    values = {key: _plain(value) for key, value in settings.items()}
    config = load_config(source, values=values)
    if any("__main__:" in row.use for row in config.rows) and config.workers != 1:
        config = config.model_copy(update={"workers": 1})  # worker processes do not know this session's classes
    return config


class Run:
    """A run's folder, with its tables as data frames and its figures."""

    def __init__(self, folder: Path) -> None:
        """Open a folder; raises BadInputError if it is not a run's."""
        self.folder = folder
        self.config = RunFolder.config_of(folder)

    @property
    def labels(self) -> list[str]:
        """The labels of the rows, which name their folders."""
        return self.config.labels

    @property
    def rounds(self) -> Any:
        """One line per row and round, as a data frame."""
        return self._frame("rounds")

    @property
    def uplink(self) -> Any:
        """One line per upload, as a data frame."""
        return self._frame("uplink")

    @property
    def vehicles(self) -> Any:
        """One line per row, round and vehicle, as a data frame."""
        return self._frame("vehicles")

    @property
    def summary(self) -> Any:
        """One line per row that has begun, with all its measures, as a data frame (docs/table.md names them)."""
        from skyfed.report.summary import summarise

        known = [summarise(self.folder, label) for label in self.labels]
        return _frame_of([asdict(each) for each in known if each])

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Accuracy of each row's last test, 0 to 1, on the test set so far."""
        curves = {label: [row["accuracy"] for row in self._rows(label, "rounds")] for label in self.labels}
        return {label: next((x for x in reversed(curve) if x is not None), None) for label, curve in curves.items()}

    @property
    def plan(self) -> "FleetPlan":
        """The flights."""
        from skyfed.flight.fleet_plan import load_fleet_plan

        return load_fleet_plan(self.folder / "plan.npz")

    def plot(self, what: What = "accuracy") -> "Figure":
        """Return a figure: accuracy over rounds, mission time, megabytes or joules, sizes of uploads, or the map.

        A notebook shows it as a picture.
        """
        from skyfed.report.curves import draw_accuracy, draw_accuracy_over, draw_payloads
        from skyfed.report.figures import draw_map
        from skyfed.report.learning_curves import cost_axes, read_curves
        from skyfed.report.notebook import show_figures_inline
        from skyfed.world import footprint_side

        show_figures_inline()
        if what == "map":
            return draw_map(self.plan, footprint_side(self.config.sensor.altitude, self.config.sensor.fov))
        curves = read_curves([self.folder], self.config.rows)
        if what == "accuracy":
            return draw_accuracy(curves)
        if what == "payload":
            return draw_payloads(curves)
        axes = cost_axes(self.config.world)
        if what not in axes:
            raise BadInputError(f"plot({what!r}): allowed: {', '.join(get_args(What))}")
        return draw_accuracy_over(curves, axes[what])

    def model(self, label: str, name: str | None = None, *, raw: bool = False, trust: bool = False) -> "Module":
        """Return a row's trained model as a plain torch module in eval mode, with its own tensor names.

        name   of one of several delivered models; the first if not given
        raw    whether the module takes samples as the task holds them, for pictures bytes; else normalised ones
        trust  whether to run code that the run's config names, whoever made it

        The run's data must be there: bytes are normalised by the training samples.
        """
        from skyfed.learning.plain_model import plain_model, with_raw_inputs
        from skyfed.runs.models import chosen, engine_of, finished_rows, saved_models

        config = RunFolder.trusted_config(self.folder, trust)
        finished_rows(self.folder, config, label)
        engine = engine_of(config, config.load_task())
        saved = chosen(saved_models(self.folder, label, engine), name)[0]
        module = plain_model(engine, saved.model, config.settings_of(config.row(label)).prune)
        return with_raw_inputs(engine, module) if raw else module

    def report(self, out: str | Path | None = None) -> Path:
        """Write the interactive page; returns where it is."""
        from skyfed.report.page import write_page

        return write_page([self.folder], Path(out) if out is not None else self.folder / "report.html")

    def _rows(self, label: str, table: str) -> list[dict[str, Any]]:
        return Table(self.folder / label, table).rows()

    def _frame(self, table: str) -> Any:
        rows = [{"algorithm": label, **row} for label in self.labels for row in self._rows(label, table)]
        return _frame_of(rows)

    def __repr__(self) -> str:
        figures = [f"{label} {'-' if x is None else f'{100 * x:.1f} %'}" for label, x in self.accuracy.items()]
        return f"Run({str(self.folder)!r}: {', '.join(figures)})"


def _frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a data frame of polars, or of pandas where that is what is installed."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        import polars

        return polars.DataFrame(columns, strict=False)
    except ImportError:
        pass
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        raise BadInputError(
            "data frames need polars or pandas, and neither is installed; allowed: pip install 'skyfed[frames]'"
        ) from None
    return pandas.DataFrame(columns)


def _plain(value: Any) -> Any:
    """Return a setting as a config holds it: classes as import paths, tuples as lists, paths as text."""
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
