"""Collects the runs of a sweep, or writes the page from what was collected.

python -m reproduce collect runs/reproduce results/reproduction        tables and figures of the finished runs
python -m reproduce page results/reproduction docs/reproduction.md     the page, filled in from them
"""

import argparse
from pathlib import Path

from reproduce.collect import collect
from reproduce.page.fill import fill
from reproduce.page.tables import tables
from reproduce.page.vanishing import observe
from reproduce.results import FLOOR
from skyfed.runs.tables import write_parquet


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["collect", "page"])
    parser.add_argument("source", type=Path, help="the folder of the sweep, or of what was collected")
    parser.add_argument("target", type=Path, help="the folder to collect into, or the page to fill in")
    asked = parser.parse_args()
    if asked.verb == "collect":
        collect(asked.source, asked.target)
        write_parquet(asked.target / f"{FLOOR}.parquet", observe())
    else:
        page = asked.target.read_text(encoding="utf-8")
        asked.target.write_text(fill(page, tables(asked.source)), encoding="utf-8")


if __name__ == "__main__":
    main()
