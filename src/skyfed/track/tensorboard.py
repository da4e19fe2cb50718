"""TensorBoard: a folder of events for each algorithm, so that the curves of all lie over each other."""

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from skyfed.track.sink import Ledger, Point, Tracked


class TensorBoard:
    """Writes event files.

    Those of an algorithm that goes on are written anew from the run's own table: no step is there twice or missing,
    wherever the last session was stopped.
    """

    def __init__(self, run: Tracked, ledger: Ledger) -> None:
        self._hparams = run.hparams
        self._place = run.place / "tensorboard"
        if run.settings.dir:  # shared with other runs, which may have the same name
            name, number = ledger.get("tensorboard"), 1
            while name is None:
                tried = run.name if number == 1 else f"{run.name} {number}"
                name, number = (None if (self._place / tried).exists() else tried), number + 1
            ledger.put(name, "tensorboard")
            self._place /= name
        self._writer: SummaryWriter | None = None

    def begin(self, algorithm: str, points: list[Point]) -> None:
        """Open the events of an algorithm with its settings and the rounds that are done."""
        place = self._place / algorithm
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(place))
        for part in hparams({**self._hparams, "algorithm": algorithm}, {"accuracy": 0.0})[:2]:
            self._writer._get_file_writer().add_summary(part)
        for point in points:
            self._add(self._writer, point)
        self._writer.flush()

    def round(self, point: Point) -> None:
        """Add a round and let it be seen."""
        assert self._writer
        self._add(self._writer, point)
        self._writer.flush()

    def end(self, summary: dict[str, float], whole: bool) -> None:
        """Close the events; the figures at the end stand in a text of their own."""
        assert self._writer
        if whole:
            lines = [f"| {name} | {value:g} |" for name, value in summary.items()]
            self._writer.add_text("summary", "\n".join(["| figure | at the end |", "|---|---|", *lines]))
            self._writer._get_file_writer().add_summary(hparams({}, {"accuracy": 0.0})[2])
        self._writer.close()

    @staticmethod
    def _add(writer: SummaryWriter, point: Point) -> None:
        for name, value in point.values.items():
            writer.add_scalar(name, value, point.step, point.time)
