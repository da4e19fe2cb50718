"""Two settings side by side through the Python API: what does quantising more coarsely cost, and what does it save?

    python compare_settings.py

Runs end in compare/; those that are there already are not run again. `skyfed report compare` draws them on one page.
"""

from pathlib import Path

import skyfed
from skyfed.report.summary import summarise

SETTINGS = {"seven levels": {"s": 7}, "one level": {"s": 1}}


def main(place: Path) -> None:
    """Run what is missing, then print a table."""
    for name, quantise in SETTINGS.items():  # too small a job for more than one process
        skyfed.run(
            "smoke", out=place / name, quantise=quantise, algorithms=["afl-quant"], rounds=6, vehicles=3, workers=1
        )
    print(f"\n{'':<14}{'accuracy':>10}{'MB sent':>10}{'of the paper':>14}{'joules':>10}")
    for name in SETTINGS:
        found = summarise(place / name, "afl-quant")
        assert found
        assert found.accuracy_full is not None
        assert found.paper_bits
        assert found.joules is not None
        share = found.uplink_bytes * 8 / found.paper_bits
        print(f"{name:<14}{100 * found.accuracy_full:>8.1f} %{found.uplink_bytes / 1e6:>10.2f}{share:>14.3f}", end="")
        print(f"{found.joules:>10.0f}")


if __name__ == "__main__":
    main(Path("compare"))
