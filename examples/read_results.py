"""From a run's tables to figures of one's own.

    skyfed run smoke --out mine
    python read_results.py mine

rounds.parquet has one row per round, uplink.parquet one row per upload. Anything that reads Parquet will do
(pandas, polars, DuckDB, R); pyarrow is installed with skyfed. Columns such as `delta` belong to the algorithm that
fills them: an algorithm of your own may not have them.
"""

import sys
from pathlib import Path

import matplotlib
import pyarrow.parquet as pq

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(run: Path) -> None:
    """Print what was sent, draw accuracy over megabytes."""
    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    print(f"{'':<12}{'uploads':>8}{'quantised':>11}{'kB, median':>12}{'paper, kB':>11}{'pruned':>8}")
    for table in sorted(run.glob("*/uplink.parquet")):
        uplink = pq.read_table(table).to_pydict()
        if not uplink["round"]:
            continue  # the central baseline sends nothing
        count = len(uplink["round"])
        middle = sorted(uplink["wire_bytes"])[count // 2] / 1e3
        share, paper, pruned = (sum(uplink.get(key, [0])) / count for key in ("quantised", "paper_bits", "delta"))
        print(f"{table.parent.name:<12}{count:>8}{share:>11.0%}{middle:>12.1f}{paper / 8e3:>11.1f}{pruned:>8.0%}")
        rounds = pq.read_table(table.with_name("rounds.parquet")).to_pylist()
        sent, points = 0.0, []
        for row in rounds:
            sent += row["wire_bytes"] / 1e6
            if row["accuracy_full"] is not None:  # rounds in which the model was tested
                points.append((sent, 100 * row["accuracy_full"]))
        axes.plot(*zip(*points, strict=True), marker="o", label=table.parent.name)
    axes.set(xscale="log", xlabel="MB sent", ylabel="accuracy, whole test set (%)")
    axes.legend()
    figure.savefig(run / "own-figure.png", dpi=150)
    print(f"drawn: {run / 'own-figure.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
