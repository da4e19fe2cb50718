"""MLflow: a run for each algorithm in the project's experiment; files beside the run unless a server is named."""

import time

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from skyfed.track.sink import Ledger, Point, Tracked

_BATCH = 900  # metrics per call; MLflow takes 1000
_LONGEST = 500  # characters per value; older servers take no more


class Mlflow:
    """Logs to an MLflow server or file store; steps that are there already are not logged again."""

    def __init__(self, run: Tracked, ledger: Ledger) -> None:
        self._run, self._ledger, self._id = run, ledger, ""
        self._there: set[int] = set()  # steps that were logged in earlier sessions
        if run.settings.mlflow_uri is None:
            run.place.mkdir(parents=True, exist_ok=True)
        uri = run.settings.mlflow_uri or (run.place / "mlruns").resolve().as_uri()
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(run.settings.project)
        self._experiment = known.experiment_id if known else self._client.create_experiment(run.settings.project)

    def begin(self, algorithm: str) -> None:
        """Open an algorithm's run with its settings, or continue it."""
        known = self._ledger.get("mlflow", algorithm)
        if known is None or not self._active(known):
            tags = {"algorithm": algorithm, "run": str(self._run.folder.resolve())}
            run = self._client.create_run(self._experiment, run_name=f"{self._run.name} {algorithm}", tags=tags)
            known = run.info.run_id
            params = [Param(key, str(value)[:_LONGEST]) for key, value in self._run.hparams.items()]
            for first in range(0, len(params), 100):
                self._client.log_batch(known, params=params[first : first + 100])
            self._ledger.put(known, "mlflow", algorithm)
        self._id = known
        self._client.update_run(known, status="RUNNING")
        self._there = {metric.step for metric in self._client.get_metric_history(known, "seconds")}

    def log(self, points: list[Point]) -> None:
        """Log rounds; one that was trained again after a stop is there already."""
        self._send([point for point in points if point.step not in self._there])

    def end(self, summary: dict[str, float], whole: bool) -> None:
        """Close the run with its figures at the end."""
        if whole:
            self._send([Point(0, time.time(), {f"final_{name}": value for name, value in summary.items()})])
        self._client.set_terminated(self._id, "FINISHED" if whole else "KILLED")

    def _active(self, run: str) -> bool:
        try:
            return bool(self._client.get_run(run).info.lifecycle_stage == "active")
        except MlflowException:
            return False

    def _send(self, points: list[Point]) -> None:
        metrics = [
            Metric(name, value, int(point.time * 1000), point.step)
            for point in points
            for name, value in point.values.items()
        ]
        for first in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._id, metrics=metrics[first : first + _BATCH])
