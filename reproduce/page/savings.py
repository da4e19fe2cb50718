"""What 2CEOAFL saves: bytes and CPU seconds of an upload, and of all uploads until an accuracy is reached."""

from statistics import mean, stdev

from reproduce.collect import MAIN
from reproduce.page.chance import comparisons, interval
from reproduce.results import (
    FLEET,
    OPEN,
    an_upload,
    courses_of,
    end_of,
    grid,
    seeds_of,
    title,
    whole_seeds,
)
from skyfed.report.terminal_tables import spread
from skyfed.runs.tables import Row

CUT = "channels cut out"  # the variant of 2CEOAFL that prunes channels
STEM, LIVE = "cifar stem", "cifar stem, compressed"  # the variants without dead weights: of AFL, of 2CEOAFL
LEVELS = (45, 47)  # %, on all pictures
_CALM = 5  # rounds whose mean must reach a level


def saved(uplink: list[Row], rounds: list[Row]) -> str:
    """Say what 2CEOAFL saves against AFL and against AFL-Quant, an upload and until an accuracy."""
    if not whole_seeds(uplink, MAIN, ("2ceoafl", "afl")):
        return OPEN
    bytes_, bits, cpu, law = (
        change(uplink, MAIN, key) for key in ("wire_bytes", "paper_bits", "measured_cpu_seconds", "modelled_seconds")
    )
    spares = "Bytes, not time. " if bytes_.endswith("less") and cpu.endswith("more") else ""
    against = (
        f"{spares}It sends {bytes_} than AFL, measured ({bits} by the paper's formula); a vehicle-round takes {cpu} "
        f"CPU time, measured, packing included ({law} by the paper's law){_why(cpu)}."
    )
    parts = [against, _at_level(uplink, rounds), _channels(uplink, rounds), _beside_quant(uplink, rounds)]
    return " ".join(part for part in parts if part) + " (± is the standard deviation over seeds.)"


def _beside_quant(uplink: list[Row], rounds: list[Row]) -> str:
    """Say how 2CEOAFL compares with quantising alone."""
    if not whole_seeds(uplink, MAIN, ("2ceoafl", "afl-quant")):
        return ""
    step = [interval(one.full) for one in comparisons(rounds) if (one.one, one.other) == ("afl-quant", "2ceoafl")]
    lead = f", and AFL-Quant is {step[0]} points ahead of it (95 % interval)" if step else ""
    return (
        f"Against AFL-Quant it sends {times_quant(uplink)} times the bytes ({times_quant(uplink, 'paper_bits')} times "
        f"by the paper's formula, which knows no coding of levels that are mostly 0) and takes "
        f"{change(uplink, MAIN, 'measured_cpu_seconds', 'afl-quant')} CPU time{lead}."
    )


def _why(cpu: str) -> str:
    """Say why CPU seconds are not saved, if they are not."""
    if cpu.endswith("less"):
        return ""
    return ": finding the mask takes a dense local round, and kernels under a mask take as long as without"


def _channels(uplink: list[Row], rounds: list[Row]) -> str:
    """Say what is saved where pruning makes the model smaller."""
    if not whole_seeds(uplink, CUT, ("2ceoafl", "afl")):
        return ""
    ends = [end_of(rounds, CUT, name) for name in ("2ceoafl", "afl")]
    tested = " and ".join(f"{100 * end['accuracy_full']:.1f} %" for end in ends if end)
    bytes_, cpu, law = (change(uplink, CUT, key) for key in ("wire_bytes", "measured_cpu_seconds", "modelled_seconds"))
    return (
        f"With channels cut out of the model (`{CUT}`, one seed and one share) it takes {cpu} CPU time than AFL ({law} "
        f"by the law) and sends {bytes_}; 2CEOAFL and AFL end at {tested} on all pictures."
    )


def _at_level(uplink: list[Row], rounds: list[Row]) -> str:
    """Say what is saved until both have reached an accuracy, which may take more rounds."""
    bytes_, cpu = until(uplink, rounds, LEVELS[-1])
    if not bytes_ or not cpu:
        return ""
    taken = [mean(k for k, _ in reached(rounds, name, LEVELS[-1]).values()) for name in ("2ceoafl", "afl")]
    return (
        f"Until {LEVELS[-1]} % on all pictures it needs {taken[0]:.0f} rounds and AFL {taken[1]:.0f}: up to there it "
        f"sends {side(bytes_)} and takes {side(cpu)} CPU time."
    )


def until(uplink: list[Row], rounds: list[Row], level: float) -> tuple[list[float], list[float]]:
    """Return by how many per cent 2CEOAFL's bytes and CPU seconds are above AFL's until a level, seed by seed."""
    own, base = (reached(rounds, name, level) for name in ("2ceoafl", "afl"))
    bytes_, cpu = [], []
    for seed in sorted(own.keys() & base.keys()):
        bytes_.append(100 * (own[seed][1] / base[seed][1] - 1))
        each = [an_upload(uplink, MAIN, name, "measured_cpu_seconds", [seed]) for name in ("2ceoafl", "afl")]
        if each[0] and each[1]:
            cpu.append(100 * (own[seed][0] * each[0] / (base[seed][0] * each[1]) - 1))
    return bytes_, cpu


def reached(rounds: list[Row], name: str, level: float) -> dict[int, tuple[int, float]]:
    """Return by seed how many rounds and bytes it took until the mean of five tests on all pictures was a level (%)."""
    found = {}
    for seed in seeds_of(rounds, MAIN):
        course = courses_of(rounds, MAIN, name, seed)
        for k in range(_CALM, len(course) + 1):
            if 100 * mean(row["accuracy_full"] for row in course[k - _CALM : k]) >= level:
                found[seed] = (course[k - 1]["round"] + 1, float(sum(row["wire_bytes"] for row in course[:k])))
                break
    return found


def levels(rounds: list[Row]) -> str:
    """Return rounds and megabytes until an accuracy is reached, as a table."""
    rows = []
    for name in FLEET:
        cells = []
        for level in LEVELS:
            found = reached(rounds, name, level).values()
            cells += [_whole([taken for taken, _ in found]), _whole([sent / 1e6 for _, sent in found])]
        if courses_of(rounds, MAIN, name):
            rows.append([title(name), *cells])
    heads = [f"{level} %: {what}" for level in LEVELS for what in ("rounds", "sent (MB)")]
    return grid("|".join(["algorithm", *heads]), rows)


def _whole(values: list[float]) -> str:
    """Return mean and standard deviation in whole numbers."""
    if not values:
        return "–"
    return f"{mean(values):,.0f} ± {stdev(values):,.0f}" if len(values) > 1 else f"{values[0]:,.0f}"


def change(uplink: list[Row], variant: str, key: str, base: str = "afl") -> str:
    """Return by how many per cent an upload of 2CEOAFL takes less or more than one of another, seed by seed."""
    apart = []
    for seed in whole_seeds(uplink, variant, ("2ceoafl", base)):
        own, other = (an_upload(uplink, variant, name, key, [seed]) for name in ("2ceoafl", base))
        if own is not None and other:
            apart.append(100 * (own / other - 1))
    return side(apart)


def side(apart: list[float]) -> str:
    """Return per cents more, or less, with the word."""
    sign = -1 if mean(apart) < 0 else 1
    return f"{spread([sign * each for each in apart])} % {'less' if sign < 0 else 'more'}"


def times_quant(uplink: list[Row], key: str = "wire_bytes") -> str:
    """Return how many times the bytes of AFL-Quant an upload of 2CEOAFL has."""
    own, base = (an_upload(uplink, MAIN, name, key) for name in ("2ceoafl", "afl-quant"))
    return f"{own / base:.2g}" if own and base else OPEN


def lightest(uplink: list[Row]) -> str:
    """Say in which order algorithms send least."""
    found = {name: size for name in FLEET if (size := an_upload(uplink, MAIN, name, "wire_bytes")) is not None}
    if len(found) < len(FLEET):
        return OPEN
    order = sorted(found, key=found.__getitem__)
    formula = {name: (an_upload(uplink, MAIN, name, "paper_bits") or 0.0) / 8 for name in FLEET}
    sizes = ", ".join(f"{title(name)} {found[name] / 1e6:.2f} MB ({formula[name] / 1e6:.1f})" for name in order)
    expected = ["afl-quant", "2ceoafl", "afl-prune", "afl"]
    same = order == expected == sorted(formula, key=formula.__getitem__)
    answer = "Yes, measured and by the paper's formula" if same else "Yes" if order == expected else "No"
    said = f"{answer}; mean size of an upload, in brackets by the formula: {sizes}."
    own, quant = (_quantised(uplink, name) for name in ("2ceoafl", "afl-quant"))
    if own and quant and own[1] < quant[1]:
        said += (
            f" The {100 * own[0]:.0f} % of 2CEOAFL's uploads that are quantised are lighter still "
            f"({own[1] / 1e3:.0f} kB on average, AFL-Quant's {quant[1] / 1e3:.0f} kB)."
        )
    return said


def _quantised(uplink: list[Row], name: str) -> tuple[float, float] | None:
    """Return the share of uploads that are quantised, and their mean bytes."""
    rows = [row for row in uplink if (row["variant"], row["algorithm"]) == (MAIN, name)]
    some = [row for row in rows if row["quantised"]]
    count = sum(row["uploads"] for row in some)
    if not count:
        return None
    size = sum(row["uploads"] * row["wire_bytes"] for row in some) / count
    return count / sum(row["uploads"] for row in rows), float(size)


def without_dead(rounds: list[Row]) -> str:
    """Say what 2CEOAFL saves where every weight has a gradient: dead ones cost nothing to send."""
    end = end_of(rounds, LIVE, "2ceoafl")
    if end is None or end_of(rounds, STEM, "afl") is None:
        return ""
    parts = []
    for base, own in ((STEM, LIVE), (MAIN, MAIN)):
        much, less = _sent(rounds, base, "afl", end["round"]), _sent(rounds, own, "2ceoafl", end["round"])
        parts.append(f"{much / 1e6:.0f} MB a round for AFL and {100 * (1 - less / much):.0f} % less for 2CEOAFL")
    return (
        f" There the fleet sends {parts[0]} (`{LIVE}`), in `{MAIN}` {parts[1]} (seed 0, the first {end['round'] + 1} "
        "rounds; 2CEOAFL was not trained to the end on that stem): dead weights do not flatter measured bytes, since "
        "they are not sent at all."
    )


def _sent(rounds: list[Row], variant: str, name: str, until: int) -> float:
    """Return the mean bytes of a round of seed 0, up to one."""
    rows = [row for row in rounds if (row["variant"], row["algorithm"], row["seed"]) == (variant, name, 0)]
    return float(mean(row["wire_bytes"] for row in rows if row["round"] <= until))
