"""Runs the parts one after the other, each in a process of its own, and keeps their rows; a bar missed ends it with 1.

python -m endurance                      every part in full: results/endurance.json, docs/endurance.md
python -m endurance kills disk           these parts alone; the others' rows stay as they are
python -m endurance --small --out FILE   a few cases of each, as the tests do
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from endurance.page import PAGE, RESULTS, write_page

ROOT = Path(__file__).parents[1]
# part: cases in full, and in a test
PARTS = {
    "kills": (100, 4), "signals": (15, 5), "damage": (1000, 20), "disk": (20, 5), "crew": (8, 2), "races": (50, 3),
    "malformed": (200, 40), "solver": (200, 40), "soak": (1000, 40), "audit": (2, 1), "diverge": (9, 2),
}  # fmt: skip


def measured(part: str, count: int) -> list[dict[str, Any]]:
    """Run one part; returns its rows, or one that says how it failed."""
    begin = time.monotonic()
    command = [sys.executable, "-m", f"endurance.{part}", "--count", str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    seconds = round(time.monotonic() - begin)
    try:
        rows = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        rows = [{"name": part, "value": last, "bar": "an answer", "holds": False, "also": {}}]
    return [{"part": part, "seconds": seconds, **row} for row in rows]


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--small", action="store_true", help="a few cases of each")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the rows are kept")
    chosen = parser.parse_args()
    unknown = set(chosen.parts) - set(PARTS)
    if unknown:
        parser.error(f"{unknown.pop()}: allowed: {', '.join(PARTS)}")
    missed = 0
    for part in chosen.parts or PARTS:
        rows = measured(part, PARTS[part][chosen.small])
        for row in rows:
            print(f"{'holds ' if row['holds'] else 'MISSED'}  {row['name']}: {row['value']} ({row['bar']})", flush=True)
            missed += not row["holds"]
        kept = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
        order = list(PARTS)
        kept = [row for row in kept if row["part"] != part and row["part"] in order] + rows
        chosen.out.write_text(json.dumps(sorted(kept, key=lambda row: order.index(row["part"])), indent=2) + "\n")
        if chosen.out == RESULTS:
            write_page(PAGE)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
