"""A sweep's outcome as a table for a page: `python -m reproduce.variants results/attacks.parquet`."""

import sys
from pathlib import Path
from typing import Any

from skyfed.report.terminal_tables import spread
from skyfed.report.units import megabytes, percent
from skyfed.runs.tables import read_parquet


def variants_table(rows: list[dict[str, Any]]) -> str:
    """Return one line per variant: accuracy on the test set so far, mean and standard deviation, then seed by seed."""
    lines = ["| variant | accuracy (%) | seed by seed | sent (MB) |", "|---|---|---|---|"]
    for name in dict.fromkeys(row["variant"] for row in rows):
        some = [row for row in rows if row["variant"] == name]
        each = ", ".join(f"{100 * row['accuracy']:.1f}" for row in some)
        sent = spread([row["uplink_bytes"] for row in some], megabytes)
        lines.append(f"| {name} | {spread([row['accuracy'] for row in some], percent)} | {each} | {sent} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(variants_table(read_parquet(Path(sys.argv[1]))))
