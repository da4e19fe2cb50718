"""Puts the page together: one file with all it needs inside, and nothing from outside."""

import base64
import hashlib
import json
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from skyfed import __version__
from skyfed.config import changed
from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.report.bound import SHADES
from skyfed.report.groups import SeedGroup, find_groups
from skyfed.report.page.headline import headline
from skyfed.report.page.map import flight_maps
from skyfed.report.page.series import Json, accuracy, bounds, class_accuracy, looks, payloads
from skyfed.report.page.vehicles import vehicle_table
from skyfed.report.style import COLOURS

_PURPLE = "#6F4E9C"  # for black, which dark paper does not show
_COUNTS = ("weights", "live_weights")
_FACTS = ("skyfed", "python", "system", "cpu", "cores", "seed", "started", *_COUNTS)
_OWN = ("state.js", "charts.js", "heat.js", "map.js", "player.js", "page.js")


def write_page(places: Sequence[Path], target: Path) -> Path:
    """Write the page of the runs at these places; a run that goes on gives what it has so far."""
    if target.is_dir():
        raise BadInputError(f"--out {target}: is a folder; allowed: a file, as report.html")
    groups = find_groups(places)
    try:
        text = render(groups)
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # tables that hold something else
        names = ", ".join(str(group.place) for group in groups[:3])
        raise BadInputError(f"{names}: not a run's tables ({type(error).__name__}: {error})") from None
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, text.encode())
    return target


def render(groups: Sequence[SeedGroup]) -> str:
    """Return the page's text."""
    charts = {"accuracy": accuracy, "payload": payloads, "classes": class_accuracy, "bound": bounds}
    data: Json = {
        "runs": [{"name": group.name, "classes": group.classes, "rounds": group.config.rounds} for group in groups],
        "looks": looks(groups),
        **{
            name: [{"run": run, **record} for run, group in enumerate(groups) for record in records_of(group)]
            for name, records_of in charts.items()
        },
        "terms": SHADES,
        "map": flight_maps(groups),
        "colours": [_PURPLE if colour == "#000000" else colour for colour in COLOURS],  # of vehicles
    }
    assets = resources.files("skyfed.report.page").joinpath("assets")

    def read(name: str) -> str:
        return assets.joinpath(name).read_text(encoding="utf-8")

    plotly, script = get_plotlyjs(), "'use strict';\n" + "".join(map(read, _OWN))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(read("page.html.j2"))
    table = headline(groups)
    return template.render(
        version=__version__,
        style=read("page.css"),
        plotly=plotly,
        script=script,
        hashes=[_hash(plotly), _hash(script)],
        data=_inert(data),
        groups=groups,
        unfinished=[line for group in groups for line in group.standing()],
        columns=table.columns,
        lines=table.lines,
        vehicles=vehicle_table(groups),
        differences=_differences(groups),
        origins=[_origin(group) for group in groups],
        charts=data,
    )


def _inert(data: Json) -> str:
    """Write JSON that can stand inside a script element, whatever words are in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    """Return what lets the browser run this script and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


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
