"""A recorded bench as a table for a page: `python -m reproduce.figures results/bench-engine.json`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def to_markdown(records: Sequence[dict[str, Any]]) -> str:
    """Return records of `skyfed bench ... --json` as a Markdown table."""
    verdict = {True: "yes", False: "**no**", None: "not installed"}
    lines = ["| what | measured | bar | goal | holds |", "|---|---|---|---|---|"]
    for record in records:
        extra = "".join(f"<br>{key}: {_short(value)}" for key, value in record["also"].items())
        measured = "–" if record["value"] is None else f"**{_short(record['value'])}** {record['unit']}"
        cells = [record["name"], measured + extra, record["bar"], record["goal"], verdict[record["holds"]]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    print(to_markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
