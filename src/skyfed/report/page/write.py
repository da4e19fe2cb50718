"""Puts the page together: one file with all it needs inside, and nothing from outside."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2
from plotly.offline import get_plotlyjs

from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.report.groups import SeedGroup, find_groups
from skyfed.report.page.content import page_data, page_words
from skyfed.report.page.series import Json

_OWN = ("state.js", "charts.js", "heat.js", "flown.js", "map.js", "player.js", "page.js")
_LIVE = "live.js"
_BLOCKS = ("about", "results", "fairness", "settings", "again")  # of the template: what changes while a run goes on


def write_page(places: Sequence[Path], target: Path) -> Path:
    """Write the page of the runs at these places; a run that goes on gives what it has so far."""
    if target.is_dir():
        raise BadInputError(f"--out {target}: is a folder; allowed: a file, as report.html")
    groups = find_groups(places)
    with refusing_strangers(groups):
        text = render(groups)
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, text.encode())
    return target


@contextlib.contextmanager
def refusing_strangers(groups: Sequence[SeedGroup]) -> Iterator[None]:
    """Turn what tables that hold something else make the page raise into one line."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        names = ", ".join(str(group.place) for group in groups[:3])
        raise BadInputError(f"{names}: not a run's tables ({type(error).__name__}: {error})") from None


def render(groups: Sequence[SeedGroup]) -> str:
    """Return the text of a page that stands by itself."""
    data = page_data(groups)
    return page_text(data, page_words(groups, data, live=False))


def page_text(data: Json, words: Json) -> str:
    """Return the page with these numbers and words."""
    text: str = _template().render(**words, data=_inert(data), policy=policy(words["live"]), **_assets(words["live"]))
    return text


def blocks(words: Json) -> dict[str, str]:
    """Return the parts of the page that change while a run goes on, as the page has them; "block-" and its name."""
    template = _template()
    return {f"block-{name}": "".join(template.blocks[name](template.new_context(words))) for name in _BLOCKS}


def policy(live: bool) -> str:
    """Return what the browser may do: run the page's own scripts, by their hashes; if live, ask the page's server."""
    assets = _assets(live)
    scripts = " ".join(f"'{_hash(assets[name])}'" for name in ("plotly", "script"))
    rules = ["default-src 'none'", f"script-src {scripts}", "style-src 'unsafe-inline'", "img-src data: blob:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'", *(["connect-src 'self'"] if live else [])])


@cache
def _assets(live: bool) -> dict[str, str]:
    own = (*_OWN, _LIVE) if live else _OWN
    script = "'use strict';\n" + "".join(map(_read, own))
    return {"style": _read("page.css"), "plotly": get_plotlyjs(), "script": script}


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_read("page.html.j2"))


def _read(name: str) -> str:
    return resources.files("skyfed.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _inert(data: Json) -> str:
    """Write JSON that can stand inside a script element, whatever words are in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    """Return what lets the browser run this script and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
