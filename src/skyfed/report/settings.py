"""The page of all settings, made from the settings classes themselves: `python -m skyfed.report.settings`."""

import json
from typing import Any

from pydantic import BaseModel

from skyfed.config import Config, presets

_HEAD = """# Settings

Every key of a config, made from the code by `python -m skyfed.report.settings > docs/config.md`.
A config is a TOML file; `--set table.key=value` overrides a key and takes TOML values. Keys that are not given take
the defaults below. A run folder's `config.toml` holds them all and runs again as it is.
"""


def settings_page() -> str:
    """Return the page in Markdown."""
    lines = [_HEAD, "## Presets", "", "| preset | what it is |", "|---|---|"]
    lines += [f"| `{name}` | {line} |" for name, line in presets().items()]
    lines += ["", *_table(Config, "")]
    return "\n".join(lines) + "\n"


def _table(model: type[BaseModel], prefix: str) -> list[str]:
    plain, inner = [], []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            inner.append((name, kind))
        else:
            schema = model.model_json_schema()["properties"][name]
            plain.append(f"| `{name}` | {_value(field.default)} | {_kinds(schema)} | {field.description or ''} |")
    title = f"## `[{prefix}]`" if prefix else "## Top level"
    lines = [title, "", (model.__doc__ or "").split("\n")[0], ""]
    lines += ["| key | default | allowed | meaning |", "|---|---|---|---|", *plain, ""]
    for name, kind in inner:
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
    kind = {"integer": "whole number", "number": "number", "string": "text", "array": "array"}.get(
        schema.get("type", ""), ""
    )
    signs = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
    return " ".join([kind, ", ".join(f"{sign} {schema[key]:g}" for key, sign in signs if key in schema)]).strip()


if __name__ == "__main__":
    print(settings_page(), end="")
