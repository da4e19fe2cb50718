"""Collects the runs of a sweep, or fills in the pages from what was collected.

python -m reproduce collect runs/reproduce results/reproduction        tables and figures of the finished runs
python -m reproduce page results/reproduction docs/reproduction        the tables of the pages in a folder
"""

import argparse
import sys
from pathlib import Path

from reproduce.collect import collect
from reproduce.page.fill import fill_pages
from reproduce.page.vanishing import observe
from reproduce.results import FLOOR
from skyfed.errors import BadInputError
from skyfed.runs.tables import write_parquet


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["collect", "page"])
    parser.add_argument("source", type=Path, help="the folder of the sweep, or of what was collected")
    parser.add_argument("target", type=Path, help="the folder to collect into, or the folder of the pages to fill in")
    asked = parser.parse_args()
    try:
        if asked.verb == "collect":
            collect(asked.source, asked.target)
            write_parquet(asked.target / f"{FLOOR}.parquet", observe())
        else:
            fill_pages(asked.source, asked.target)
    except BadInputError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
