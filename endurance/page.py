"""Writes the table of docs/endurance.md from results/endurance.json."""

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "endurance.json"
PAGE = Path(__file__).parents[1] / "docs" / "endurance.md"
_MARKED = re.compile(r"(<!-- figures.*?-->\n).*?(\n<!-- end of figures -->)", re.DOTALL)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| fault | measured | bar | holds |", "|---|---|---|---|"]
    for row in rows:
        extra = "".join(f"<br>{key}: {_said(value)}" for key, value in row["also"].items())
        cells = [row["name"], f"**{row['value']}**{extra}", row["bar"], "yes" if row["holds"] else "**no**"]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def figures(rows: list[dict[str, Any]]) -> str:
    """Return what stands between the page's marks: the table, what was missed, and how long it took."""
    missed = [row["name"] for row in rows if not row["holds"]]
    minutes = sum({row["part"]: row["seconds"] for row in rows}.values()) / 60
    verdict = "Every bar holds." if not missed else f"**Missed: {'; '.join(missed)}.**"
    return f"{table(rows)}\n\n{verdict} All parts together took {minutes:.0f} minutes."


def write_page(path: Path) -> None:
    """Put the recorded rows into the page."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    path.write_text(_MARKED.sub(lambda found: found[1] + figures(rows) + found[2], text), encoding="utf-8")


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items())
    if isinstance(value, list):
        return "; ".join(" ".join(str(one).split()) for one in value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    write_page(PAGE)
