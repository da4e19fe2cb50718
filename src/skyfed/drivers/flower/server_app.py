"""The station's Flower app: the simulator's own round loop, with a driver that speaks through Flower's grid."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from skyfed.drivers.execute import Watcher, execute
from skyfed.drivers.flower.credentials import CREDENTIALS, read_station
from skyfed.drivers.flower.driver import FlowerDriver, Idle, Node
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row
from skyfed.tasks import load_task

Register = Callable[[dict[int, str]], None]
app = ServerApp()


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Serve the run whose folder the app's config names, for a station that Flower's own executor starts."""
    place = Path(str(context.run_config["folder"]))
    with RunFolder.claim(place, RunFolder.config_of(place), ["fleet", "station"]) as folder:
        run_rounds(grid, folder, _Lines())


def run_rounds(
    grid: Grid,
    folder: RunFolder,
    watcher: Watcher,
    register: Register | None = None,
    registered: dict[int, str] | None = None,
    idle: Idle = lambda: None,
) -> list[str]:
    """Run what is not yet done of a folder's run; returns a line for each algorithm that diverged.

    register: is called with the keys of all vehicles whenever the station's list differs from the keys `registered`.
    """
    config, plan = folder.read_config(), load_fleet_plan(folder.path / "plan.npz")
    listed = read_station(folder.path / CREDENTIALS).vehicles if registered is None else registered

    def roll_call() -> dict[int, Node | None]:
        nonlocal listed
        before, listed = listed, read_station(folder.path / CREDENTIALS).vehicles
        if listed != before and register:
            watcher.say(f"the list of keys has changed: {len(listed)} vehicles")
            register(listed)
        nodes = {node.public_key: Node(node.node_id, node.last_activated_at) for node in grid.get_nodes()}
        return {u: nodes.get(key.encode()) for u, key in listed.items()}

    return execute(
        folder, config, load_task(config.data), plan, watcher,
        lambda onboard: nullcontext(FlowerDriver(onboard, grid, roll_call, watcher.say, idle)),
    )  # fmt: skip


class _Lines:
    """A watcher that prints."""

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Announce an algorithm."""
        self.say(f"{algorithm}: from round {first}")

    def round(self, algorithm: str, row: Row) -> None:
        """Print a finished round."""
        self.say(f"{algorithm} round {row['round']}: {row['uploads']} uploads, {row['wire_bytes']} bytes")

    def say(self, line: str) -> None:
        """Print a line."""
        print(line, file=sys.stderr, flush=True)
