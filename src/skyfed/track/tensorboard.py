"""TensorBoard: a folder of events for each algorithm, so that the curves of all lie over each other."""

from itertools import count

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from skyfed.track.sink import Ledger, Point, Tracked


class TensorBoard:
    """Writes event files.

    The events of a resumed algorithm are written anew from the run's own table. So no step is there twice or missing,
    wherever the last session was stopped.
    """

    _writer: SummaryWriter

    def __init__(self, run: Tracked, ledger: Ledger) -> None:
        self._hparams = run.hparams
        self._place = run.place / "tensorboard"
        if run.settings.dir:  # shared with other runs, which may have the same name
            names = (run.name if number == 1 else f"{run.name} {number}" for number in count(1))
            name = ledger.get("tensorboard") or next(name for name in names if not (self._place / name).exists())
            ledger.put(name, "tensorboard")
            self._place /= name

    def begin(self, algorithm: str) -> None:
        """Open the events of an algorithm with its settings."""
        place = self._place / algorithm
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(place))
        for part in hparams({**self._hparams, "algorithm": algorithm}, {"accuracy": 0.0})[:2]:
            self._writer._get_file_writer().add_summary(part)

    def log(self, points: list[Point]) -> None:
        """Add rounds and flush them, so that they are visible at once."""
        for point in points:
            for name, value in point.values.items():
                self._writer.add_scalar(name, value, point.step, point.time)
        self._writer.flush()

    def end(self, summary: dict[str, float], whole: bool) -> None:
        """Close the events; the figures at the end stand in a text of their own."""
        if whole:
            lines = [f"| {name} | {value:g} |" for name, value in summary.items()]
            self._writer.add_text("summary", "\n".join(["| figure | at the end |", "|---|---|", *lines]))
            self._writer._get_file_writer().add_summary(hparams({}, {"accuracy": 0.0})[2])
        self._writer.close()
