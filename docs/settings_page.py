"""The page of all settings, made from the settings classes themselves: `python docs/settings_page.py`."""

import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from skyfed.algorithms import KNOWN, Row, find_class
from skyfed.algorithms.base import Algorithm
from skyfed.blocks.tables import TABLES
from skyfed.config import Config
from skyfed.presets import describe

_HEAD = """# Settings

Every key of a config, made from the code by `python docs/settings_page.py > docs/config.md`.
A config is a TOML file; `--set table.key=value` overrides a key and takes TOML values. Keys that are not given take
the defaults below. A run folder's `config.toml` holds them all and runs again as it is; defaults
of an algorithm of your own stay in its file.
"""


_ROWS = """## Rows of `algorithms`

An entry of `algorithms` is an id, an import path, or a table: a row with settings of its own. Two rows may use one
algorithm.

```toml
algorithms = ["afl", {use = "afl-quant", label = "EDEN", quantise = {scheme = "eden", s = 1}}]
```
"""


def settings_page() -> str:
    """Return the page in Markdown."""
    lines = [_HEAD, "## Presets", "", "| preset | what it is |", "|---|---|"]
    lines += [f"| `{name}` | {line} |" for name, line in describe().items()]
    lines += ["", *_table(Config, ""), *_rows()]
    return "\n".join(lines) + "\n"


def _rows() -> list[str]:
    """Say what a row of `algorithms` may set: its name, the tables that all algorithms share, and keys of its own."""
    lines = [_ROWS, *_keys(Row, Row.model_fields)]
    lines += [f"| {', '.join(f'`{name}`' for name in TABLES)} | as above | table | instead of the run's own |", ""]
    lines += ["| id | title | what makes it so |", "|---|---|---|"]
    uses: dict[type[Algorithm], list[str]] = {}
    for use, known in KNOWN.items():
        settings = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in known.settings.items())
        lines.append(f"| `{use}` | {known.title} | {settings or ('central' if known.central else 'the defaults')} |")
        uses.setdefault(find_class(Row(use=use)), []).append(f"`{use}`")
    for algorithm, names in uses.items():
        own = [name for name in algorithm.Settings.model_fields if name not in TABLES]
        if own:
            lines += ["", f"Rows that use {', '.join(names)} also have:", "", *_keys(algorithm.Settings, own)]
    return lines


def _keys(model: type[BaseModel], names: Iterable[str]) -> list[str]:
    """Return a table with one line per key."""
    properties = model.model_json_schema()["properties"]
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for name in names:
        field = model.model_fields[name]
        table = isinstance(field.default, BaseModel)
        default = "needed" if field.is_required() else "see above" if table else _value(field.default)
        allowed = "table" if table else _kinds(properties[name])
        lines.append(f"| `{name}` | {default} | {allowed} | {field.description or ''} |")
    return lines


def _table(model: type[BaseModel], prefix: str) -> list[str]:
    """Return the section of a settings class and those of the classes inside it."""
    kinds = {name: field.annotation for name, field in model.model_fields.items()}
    inner = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}
    title = f"## `[{prefix}]`" if prefix else "## Top level"
    lines = [title, "", (model.__doc__ or "").split("\n")[0], ""]
    lines += [*_keys(model, [name for name in kinds if name not in inner]), ""]
    for name, kind in inner.items():
        lines += _table(kind, f"{prefix}.{name}" if prefix else name)
    return lines


def _value(value: Any) -> str:
    return "off" if value is None else f"`{json.dumps(value)}`"


def _kinds(schema: dict[str, Any]) -> str:
    """Say in a few words what a JSON schema allows."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kinds(part) for part in schema["anyOf"] if part.get("type") != "null"))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "")
    kind = {"integer": "whole number", "boolean": "true or false", "string": "text"}.get(kind, kind)
    signs = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
    return " ".join([kind, ", ".join(f"{sign} {schema[key]:g}" for key, sign in signs if key in schema)]).strip()


if __name__ == "__main__":
    print(settings_page(), end="")
