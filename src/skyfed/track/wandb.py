"""Weights & Biases: a run for each algorithm, grouped by the run's folder; offline unless asked for."""

import shutil
import uuid

import wandb

from skyfed.track.sink import Ledger, Point, Tracked


class WeightsAndBiases:
    """Logs to W&B.

    A resumed offline run is written anew from the run's own table, under its old id. An online one continues where the
    server stands.
    """

    _run: wandb.Run

    def __init__(self, run: Tracked, ledger: Ledger) -> None:
        self._tracked, self._ledger = run, ledger

    def begin(self, algorithm: str) -> None:
        """Open an algorithm's run with its settings."""
        settings, place = self._tracked.settings, self._tracked.place
        known = self._ledger.get("wandb", algorithm) or uuid.uuid4().hex[:12]
        self._ledger.put(known, "wandb", algorithm)
        place.mkdir(parents=True, exist_ok=True)
        if not settings.wandb_online:
            for old in (place / "wandb").glob(f"offline-run-*-{known}"):
                shutil.rmtree(old)
        self._run = wandb.init(
            project=settings.project, group=self._tracked.name, name=f"{self._tracked.name} {algorithm}", id=known,
            config={**self._tracked.hparams, "algorithm": algorithm}, dir=str(place), resume="allow",
            mode="online" if settings.wandb_online else "offline", reinit="create_new",
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, save_code=False, x_disable_meta=True, x_disable_stats=True
            ),
        )  # fmt: skip

    def log(self, points: list[Point]) -> None:
        """Log the rounds that the server does not have."""
        for point in points:
            if point.step >= self._run.step:
                self._run.log(point.values, step=point.step)

    def end(self, summary: dict[str, float], whole: bool) -> None:
        """Close the run with its figures at the end."""
        if whole:
            self._run.summary.update(summary)
        self._run.finish(exit_code=0 if whole else 1)
