"""A sweep's outcome as a table for a page: `python -m reproduce.variants results/attacks.parquet`."""

import sys
from pathlib import Path
from typing import Any

from skyfed.report.measures import column
from skyfed.runs.tables import read_parquet


def variants_table(rows: list[dict[str, Any]]) -> str:
    """Return one line per variant: accuracy on the test set so far, mean and 95 % interval, then seed by seed."""
    names = list(dict.fromkeys(row["variant"] for row in rows))
    groups = [[row for row in rows if row["variant"] == name] for name in names]
    accuracy, sent = (
        column(key, [[row[key] for row in some] for some in groups]) for key in ("accuracy", "uplink_bytes")
    )
    unit = sent[0].rpartition("(")[2].strip(")")
    lines = [f"| variant | accuracy (%) | seed by seed | sent ({unit}) |", "|---|---|---|---|"]
    for k, (name, some) in enumerate(zip(names, groups, strict=True)):
        each = ", ".join(f"{100 * row['accuracy']:.1f}" for row in some)
        lines.append(f"| {name} | {accuracy[1][k]} | {each} | {sent[1][k]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(variants_table(read_parquet(Path(sys.argv[1]))))
