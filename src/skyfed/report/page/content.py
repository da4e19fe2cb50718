"""What a page says, apart from how it looks: the numbers of its charts, and the words around them."""

import json
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from skyfed import __version__
from skyfed.config import Config, changed
from skyfed.report.bound import SHADES
from skyfed.report.groups import SeedGroup
from skyfed.report.measures import MEASURES
from skyfed.report.page.flown import flown_rows
from skyfed.report.page.headline import headline
from skyfed.report.page.map import flight_maps
from skyfed.report.page.series import (
    SYMBOLS,
    Json,
    accuracy,
    bounds,
    class_accuracy,
    energy,
    looks,
    page_axes,
    payloads,
)
from skyfed.report.page.vehicles import vehicle_table
from skyfed.report.style import COLOURS, PARTS, VEHICLES

_PURPLE = "#6F4E9C"  # for black, which dark paper does not show
_COUNTS = ("weights", "live_weights")
_FACTS = ("skyfed", "python", "system", "cpu", "cores", "seed", "started", *_COUNTS)
_MOST_DIFFERENCES = 6  # of a run, in the header
_CHARTS = {"energy": energy, "payload": payloads, "classes": class_accuracy, "bound": bounds}
RECORDS = ("accuracy", *_CHARTS, "flown")  # lists of records, one per run and algorithm


def page_data(groups: Sequence[SeedGroup]) -> Json:
    """Return what the page's script draws from."""
    maps, axes = flight_maps(groups), page_axes(groups)
    charts: dict[str, Callable[[SeedGroup], list[Json]]] = {"accuracy": partial(accuracy, axes=axes), **_CHARTS}
    return {
        "runs": [{"name": group.name, "classes": group.classes, "rounds": group.config.rounds} for group in groups],
        "looks": looks(groups),
        **{
            name: [{"run": run, **record} for run, group in enumerate(groups) for record in records_of(group)]
            for name, records_of in charts.items()
        },
        "axes": {name: {"label": axis.label, "unit": axis.unit} for name, axis in axes.items()},
        "parts": {part: {"title": MEASURES[f"{part}_joules"].title, "colour": PARTS[part]} for part in PARTS},
        "terms": SHADES,
        "map": maps,
        "flown": flown_rows(groups, maps),
        "colours": [_PURPLE if colour == "#000000" else colour for colour in COLOURS],  # of runs
        "vehicles": VEHICLES,  # their colours
        "symbols": list(SYMBOLS.values()),  # of runs
    }


def page_words(groups: Sequence[SeedGroup], data: Json, live: bool) -> Json:
    """Return what the page's template writes around the charts."""
    many, differences, table = len(groups) > 1, _differences(groups), headline(groups)
    return {
        "version": __version__,
        "live": live,
        "groups": groups,
        "many": many,
        "solo": many and len(data["looks"]) == 1,
        "seeds": max(len(group.folders) for group in groups) > 1,
        "times": {group.config.world.time for group in groups},
        "about": _about(groups, differences),
        "unfinished": [line for group in groups for line in group.standing()],
        "measures": table.names,
        "columns": table.columns,
        "lines": table.lines,
        "vehicles": vehicle_table(groups),
        "differences": differences,
        "origins": [_origin(group) for group in groups],
        "charts": data,
    }


def _facts(config: Config) -> list[str]:
    return [
        f"{config.vehicles:,} vehicle{'s' * (config.vehicles > 1)}",
        f"{config.rounds:,} rounds",
        f"{config.field.classes:,} classes",
        config.data.name,
        config.model.name,
        f"flights: {config.flight.method}",
        "time: the paper's law" if config.world.time == "law" else "time: a mission",
    ]


def _about(groups: Sequence[SeedGroup], differences: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """Return the header's lines: what all runs share, then for each run its name and what it alone has."""
    shared, *others = [_facts(group.config) for group in groups]
    seeds = [_seeds([config.seed for config in group.configs]) for group in groups]
    if not others:
        return [("", [*shared, *seeds])]
    lines = [("", [fact for fact in shared if all(fact in facts for facts in others)])]
    for run, (group, own) in enumerate(zip(groups, seeds, strict=True)):
        apart = [f"{key} = {values[run]}" for key, values in differences.items()]
        more = [f"and {len(apart) - _MOST_DIFFERENCES} more settings"] if len(apart) > _MOST_DIFFERENCES else []
        lines.append((group.name, [*apart[:_MOST_DIFFERENCES], *more, own]))
    return lines


def _seeds(seeds: list[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"{len(seeds)} seeds: {', '.join(map(str, seeds[:12]))}{' …' if len(seeds) > 12 else ''}"


def _differences(groups: Sequence[SeedGroup]) -> dict[str, list[str]]:
    """Return the settings that differ between groups, without the seed and what changes no result."""
    differences = changed([group.config for group in groups]).items()
    return {key: [_shown(value) for value in values] for key, values in differences if key not in ("seed", "workers")}


def _shown(value: Any) -> str:
    text = "off" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) < 200 else text[:197] + "…"


def _origin(group: SeedGroup) -> Json:
    manifest = group.manifest
    command, packages = manifest.get("command"), manifest.get("packages")
    facts = {key: manifest[key] for key in _FACTS if manifest.get(key) is not None}
    return {
        "name": group.name,
        "command": shlex.join(map(str, command)) if isinstance(command, list) else "not recorded",
        "again": f"skyfed run {shlex.quote(str(group.folders[0] / 'config.toml'))} --out again",
        "facts": {
            key: f"{value:,}" if key in _COUNTS and isinstance(value, int) else str(value)
            for key, value in facts.items()
        },
        "packages": {str(k): str(v) for k, v in packages.items()} if isinstance(packages, dict) else {},
        "config": group.config.to_toml(),
    }
