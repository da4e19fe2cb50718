"""Flights for a measurement that is not about flights."""

from skyfed.config import Config
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import RunFolder
from skyfed.world.mission import prepare_mission


def planned(folder: RunFolder, config: Config) -> FleetPlan:
    """Plan a config's flights into a folder, in this process."""
    mission = prepare_mission(
        config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed
    )  # fmt: skip
    return plan_into(folder, config, mission, 1, lambda *_: None)
