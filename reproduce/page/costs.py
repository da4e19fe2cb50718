"""What algorithms cost: bytes and CPU seconds of an upload, bytes of both directions, and bytes up to an accuracy."""

from math import exp, log
from statistics import mean

from reproduce.collect import MAIN
from reproduce.results import FLEET, an_upload, grid, interval, learning_curve, seeds_of, title, whole_seeds
from skyfed.report.numbers import number, probability
from skyfed.report.seed_model import SeedModel, fit
from skyfed.runs.tables import Row

BOTH = "both ways"  # the variant that has counted bytes in both directions
LEVELS = (45, 47)  # %, on all pictures
_CALM = 5  # rounds whose mean must reach a level
_PAIRS = [("afl-prune", "afl"), ("afl-quant", "afl"), ("2ceoafl", "afl"), ("2ceoafl", "afl-quant")]
_COSTS = {"wire_bytes": "bytes sent", "measured_cpu_seconds": "CPU time"}


def uploads(uplink: list[Row]) -> str:
    """Return means over all uploads, by the paper's formulas and measured."""
    names = [name for name in FLEET if an_upload(uplink, MAIN, name, "wire_bytes") is not None]
    seeds = whole_seeds(uplink, MAIN, names)
    rows = []
    for name in names:
        keys = ("paper_bits", "wire_bytes", "modelled_seconds", "measured_cpu_seconds")
        bits, sent, law, cpu = (an_upload(uplink, MAIN, name, key, seeds) or 0.0 for key in keys)
        ratio = 8 * sent / bits if bits else float("nan")
        rows.append([title(name), f"{bits / 8e6:.1f}", number(sent / 1e6), f"{ratio:.2g}", f"{law:.2f}", f"{cpu:.2f}"])
    return grid(
        "algorithm|paper's formula (MB)|measured (MB)|measured / formula|paper's law (local rounds)|measured (CPU s)",
        rows,
    )


def cost_model(uplink: list[Row], key: str) -> SeedModel:
    """Fit the model to the logarithm of a cost per upload: seeds ran at other speeds, which multiplies it."""
    seeds = seeds_of(uplink, MAIN)
    known = {name: {seed: an_upload(uplink, MAIN, name, key, [seed]) for seed in seeds} for name in FLEET}
    return fit({name: {seed: log(y) for seed, y in by_seed.items() if y} for name, by_seed in known.items()})


def change(uplink: list[Row], variant: str, key: str, one: str, other: str) -> list[float]:
    """Return by how many per cent an upload of one takes more than of the other, seed by seed."""
    found = []
    for seed in whole_seeds(uplink, variant, (one, other)):
        own, base = (an_upload(uplink, variant, name, key, [seed]) for name in (one, other))
        if own is not None and base:
            found.append(100 * (own / base - 1))
    return found


def compared(uplink: list[Row]) -> str:
    """Return costs per upload beside those of others, judged together by Tukey's test."""
    rows = []
    for key, what in _COSTS.items():
        model = cost_model(uplink, key)
        for one, other in _PAIRS:
            if not model.trouble and {one, other} <= set(model.rows):
                test = model.pair(one, other)
                ratios = [f"{exp(end):.3g}" for end in (test.difference, test.low, test.high)]
                p, verdict = probability(test.p).removeprefix("p ").removeprefix("= "), test.verdict(False)
                rows.append([f"{what}: {title(one)} / {title(other)}", *ratios, p, verdict])
    return grid("per upload|ratio|at least|at most|p|verdict", rows)


def both_ways(rounds: list[Row]) -> str:
    """Return the bytes of both directions, per vehicle and round."""
    known = {name: found for name in FLEET if (found := directions(rounds, name))}
    most = sum(known["afl"]) if "afl" in known else float("nan")
    rows = [
        [title(name), number(up), number(down), number(up + down), f"{most / (up + down):.2g}"]
        for name, (up, down) in known.items()
    ]
    return grid("algorithm|up (MB)|down (MB)|both (MB)|AFL's bytes / these", rows)


def directions(rounds: list[Row], name: str) -> tuple[float, float] | None:
    """Return the megabytes up and down per round of the fleet; nothing goes down after the last round."""
    some = [row for row in rounds if (row["variant"], row["algorithm"]) == (BOTH, name)]
    down = [row["downlink_bytes"] for row in some if row.get("downlink_bytes")]
    return (mean(row["wire_bytes"] for row in some) / 1e6, mean(down) / 1e6) if down else None


def reached(rounds: list[Row], name: str, level: float) -> dict[int, tuple[int, float]]:
    """Return by seed how many rounds and bytes it took until the mean of five tests on all pictures was a level (%)."""
    found = {}
    for seed in seeds_of(rounds, MAIN):
        tests = learning_curve(rounds, MAIN, name, seed)
        for k in range(_CALM, len(tests) + 1):
            if 100 * mean(row["accuracy_full"] for row in tests[k - _CALM : k]) >= level:
                found[seed] = (tests[k - 1]["round"] + 1, float(sum(row["wire_bytes"] for row in tests[:k])))
                break
    return found


def levels(rounds: list[Row]) -> str:
    """Return rounds and megabytes until an accuracy is reached."""
    rows = []
    for name in FLEET:
        cells = []
        for level in LEVELS:
            found = reached(rounds, name, level).values()
            cells += [interval([taken for taken, _ in found]), interval([sent / 1e6 for _, sent in found])]
        if learning_curve(rounds, MAIN, name):
            rows.append([title(name), *cells])
    heads = [f"{level} %: {what}" for level in LEVELS for what in ("rounds", "sent (MB)")]
    return grid("|".join(["algorithm", *heads]), rows)
