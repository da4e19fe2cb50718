"""The tables of all columns in docs/recipes.md, made from where columns are declared.

`python docs/columns_page.py docs/recipes.md` writes them anew between two comments of that page.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from skyfed.algorithms import KNOWN, Row, find_class
from skyfed.columns import Column
from skyfed.files import write_whole
from skyfed.runs.columns import TABLES, named

BEGIN = "<!-- columns: python docs/columns_page.py docs/recipes.md -->"
END = "<!-- end of columns -->"
_HOLDS = {
    "rounds": "one row per round",
    "uplink": "one row per upload",
    "vehicles": "one row per vehicle and round, absent ones included",
    "theory": "one row per measured round, with `theory.every`",
}


def columns_text() -> str:
    """Return the tables in Markdown: those of every run, and what the known algorithms add to their uploads."""
    parts = []
    for name, columns in TABLES.items():
        parts += [f"`{name}.parquet`: {_HOLDS[name]}.", _table(columns)]
        if name == "uplink":
            parts += ["`uplink.parquet` of the paper's algorithms also has:", _table(further().values())]
    return "\n\n".join(parts)


def further() -> dict[str, Column]:
    """Return the columns that the known algorithms add to the table of uploads."""
    classes = [find_class(Row(use=use)) for use in KNOWN]
    return named(*((*each.columns, *each.station_columns) for each in classes))


def renewed(page: str) -> str:
    """Return a page with the tables as they are now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{columns_text()}\n\n{END}{rest.partition(END)[2]}"


def _table(columns: Iterable[Column]) -> str:
    lines = ["| column | kind | holds |", "|---|---|---|"]
    for column in columns:
        kind = f"{column.kind}, may be empty" if column.empty else column.kind
        lines.append(f"| `{column.name}` | {kind} | {column.meaning} |")
    return "\n".join(lines)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_whole(path, renewed(path.read_text(encoding="utf-8")).encode())
