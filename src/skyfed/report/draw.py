"""Figures and the page of a run."""

from pathlib import Path
from typing import TYPE_CHECKING

from skyfed.errors import printable

if TYPE_CHECKING:
    from skyfed.algorithms import Row
    from skyfed.config import Config
    from skyfed.flight.fleet_plan import FleetPlan
    from skyfed.runs.folder import RunFolder


def write_report(places: list[Path], target: Path) -> None:
    """Write the page and say where it is."""
    from skyfed.report.page import write_page

    print(f"report: {printable(str(write_page(places, target)))}")


def draw_flights(folder: "RunFolder", config: "Config", fleet: "FleetPlan") -> None:
    """Draw Figs 1 and 2 and the map; waypoints where the station has coordinates."""
    from skyfed.files import storage_errors, write_whole
    from skyfed.report.figures import draw_association, draw_map, draw_psi, save
    from skyfed.report.waypoints import export_all
    from skyfed.world import footprint_side

    figures = folder.subfolder("figures")
    side = footprint_side(config.sensor.altitude, config.sensor.fov)
    with storage_errors(figures):
        save(draw_psi(fleet, 0), figures / "fig1-psi")
        save(draw_association(fleet, 0), figures / "fig2-association")
        save(draw_map(fleet, side), figures / "map")
        write_whole(folder.path / "map.png", (figures / "map.png").read_bytes())
        if config.field.origin is not None:
            place = folder.subfolder("waypoints")
            export_all(fleet, place, config.field.origin, config.sensor.altitude, config.flight.hold)


def draw_training(place: Path, folders: list[Path], rows: "list[Row]") -> None:
    """Draw accuracy over mission time, megabytes, joules and rounds, and the payloads."""
    from skyfed.files import storage_errors
    from skyfed.report.curves import draw_accuracy, draw_accuracy_over, draw_payloads
    from skyfed.report.figures import save
    from skyfed.report.learning_curves import cost_axes, read_curves
    from skyfed.runs.folder import RunFolder

    figures = place / "figures"
    curves = read_curves(folders, rows)
    with storage_errors(figures):
        figures.mkdir(exist_ok=True)
        for name, axis in cost_axes(RunFolder(folders[0]).read_config().world).items():
            save(draw_accuracy_over(curves, axis), figures / f"accuracy-{name}")
        if any(curve.wire_bits.size for curve in curves):
            save(draw_payloads(curves), figures / "fig4-payload")
        save(draw_accuracy(curves), figures / "fig3-accuracy")


def draw_run(folder: "RunFolder", config: "Config", fleet: "FleetPlan") -> None:
    """Draw the figures of a run that has ended."""
    draw_flights(folder, config, fleet)
    draw_training(folder.path, [folder.path], config.rows)


def drawn(folder: Path, config: "Config") -> bool:
    """Tell whether all figures of the training are there."""
    from skyfed.report.learning_curves import cost_axes

    figures = ["fig3-accuracy", *(f"accuracy-{name}" for name in cost_axes(config.world))]
    figures += [] if all(row.central for row in config.rows) else ["fig4-payload"]
    return all((folder / "figures" / f"{name}.{kind}").exists() for name in figures for kind in ("png", "pdf"))


def finished(folder: Path) -> bool:
    """Tell whether a run has nothing left to do."""
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.tables import damaged, is_done

    config = RunFolder(folder).read_config()
    places = [folder / name for name in config.labels]
    return drawn(folder, config) and all(is_done(place) and not damaged(place) for place in places)
