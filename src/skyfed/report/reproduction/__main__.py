"""python -m skyfed.report.reproduction collect | page, see the package."""

import sys
from pathlib import Path

from skyfed.report.reproduction import collect, fill, tables
from skyfed.report.reproduction.reading import FLOOR
from skyfed.report.reproduction.vanishing import observe
from skyfed.runs.store import write_parquet

verb, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
if verb == "collect":
    collect(source, target)
    write_parquet(target / f"{FLOOR}.parquet", observe())
else:
    target.write_text(fill(target.read_text(encoding="utf-8"), tables(source)), encoding="utf-8")
