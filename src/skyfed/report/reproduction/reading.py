"""Reading the gathered results: who stood where, and a table of it."""

from skyfed.runs.store import Row

PAPER = {"sgd": 51.5, "afl": 48.7, "afl-prune": 48.4, "afl-quant": 48.2, "2ceoafl": 47.5}  # %, after 100 rounds


def courses_of(rounds: list[Row], variant: str, algorithm: str, seed: int | None = None) -> list[Row]:
    """Return the rounds after which a model was tested."""
    return [
        row
        for row in rounds
        if (row["variant"], row["algorithm"]) == (variant, algorithm)
        and row["accuracy"] is not None
        and seed in (None, row["seed"])
    ]


def last(rounds: list[Row], variant: str, algorithm: str, key: str, at: int | None = None) -> list[float]:
    """Return the value (%) of every seed that was tested in the last round that any was, or the last up to a round."""
    ends: list[Row] = []
    for seed in sorted({row["seed"] for row in rounds if row["variant"] == variant}):
        ends += [row for row in courses_of(rounds, variant, algorithm, seed) if at is None or row["round"] <= at][-1:]
    reached = max((row["round"] for row in ends), default=0)
    return [100 * row[key] for row in ends if row["round"] == reached]


def grid(head: str, rows: list[list[str]]) -> str:
    """Return a table; the columns of its head are parted by bars."""
    names = head.split("|")
    return "\n".join(f"| {' | '.join(row)} |" for row in [names, ["---"] * len(names), *rows])


def an_upload(uplink: list[Row], variant: str, algorithm: str, key: str) -> float | None:
    """Return the mean over a variant's uploads of all seeds, raw and quantised; None without any."""
    some = [row for row in uplink if (row["variant"], row["algorithm"]) == (variant, algorithm)]
    count = sum(row["uploads"] for row in some)
    return float(sum(row["uploads"] * row[key] for row in some) / count) if count else None
