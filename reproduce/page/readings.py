"""What the paper's text may mean, reading by reading: which accuracies come out, and which are within a point of it."""

from dataclasses import dataclass
from statistics import mean

from reproduce.collect import MAIN
from reproduce.page.chance import interval
from reproduce.results import (
    FLEET,
    OPEN,
    PAPER,
    courses_of,
    grid,
    last,
    late,
    lates,
    seeds_of,
    title,
)
from skyfed.runs.tables import Row

NEAR = 1.0  # points within which an accuracy counts as the paper's
_QUANTISE, _PRUNE = ("afl-quant", "2ceoafl"), ("afl-prune", "2ceoafl")
# readings of the fleet's settings, and the algorithms that each can change; the others come out as in the main variant
READINGS: dict[str, tuple[str, ...]] = {
    MAIN: tuple(PAPER),
    "nothing sensed": tuple(PAPER),
    "decay 50 m": tuple(PAPER),
    "planner sca, placed": tuple(PAPER),
    "planner sca, true discs": tuple(PAPER),
    "25 mini-batches, all rounds": tuple(PAPER),
    "cifar stem": tuple(PAPER),
    "norm buckets of 512": _QUANTISE,
    "norm global": _QUANTISE,
    "prune kernels": _PRUNE,
}
# mini-batches a round of the genie, which touch nobody else; those of `nothing sensed` have fewer pictures
BUDGETS = {"genie kappa": 5, "genie 10 steps": 10, "genie 25 steps": 25, MAIN: 50}
_OWN = {"nothing sensed": 10, "decay 50 m": 50}  # of readings with a genie of their own


@dataclass(frozen=True)
class Measure:
    """What an accuracy is of: a column of the rounds, the last test or the late mean."""

    what: str
    key: str
    late: bool

    def of(self, rounds: list[Row], variant: str, name: str) -> list[float]:
        """Return the accuracy (%) of every seed that was trained as long as the main variant."""
        course = courses_of(rounds, variant, name)
        whole = max((row["round"] for row in courses_of(rounds, MAIN, name)), default=0)
        if not course or max(row["round"] for row in course) < whole:
            return []
        return lates(rounds, variant, name, self.key) if self.late else last(rounds, variant, name, self.key)


PRINTED = Measure("the last test on the test set so far", "accuracy", late=False)  # the paper's own
FULL = Measure("the late mean on all 10,000 pictures", "accuracy_full", late=True)


@dataclass(frozen=True)
class Reading:
    """One way to read the paper in which all five algorithms are known, with what comes out (%)."""

    fleet: str
    genie: int
    ends: dict[str, float]

    @property
    def near(self) -> list[str]:
        """The algorithms that are within a point of the paper."""
        return [name for name, end in self.ends.items() if abs(end - PAPER[name]) <= NEAR]

    @property
    def far(self) -> float:
        """How far from the paper all five are together (points)."""
        return sum(abs(end - PAPER[name]) for name, end in self.ends.items())

    def __str__(self) -> str:
        return f"`{self.fleet}` with a genie of {self.genie} mini-batches a round"

    @property
    def figures(self) -> str:
        """What comes out, in the paper's order."""
        return ", ".join(f"{end:.1f}" for end in self.ends.values()) + " %"


def ends_of(rounds: list[Row], variant: str, measure: Measure) -> dict[str, float]:
    """Return what comes out (%) of a reading by algorithm, as far as it is known."""
    found = {}
    for name in FLEET:
        some = measure.of(rounds, variant if name in READINGS[variant] else MAIN, name)
        if some:
            found[name] = mean(some)
    return found


def genies(rounds: list[Row], measure: Measure) -> dict[int, float]:
    """Return SGD's accuracy (%) by its mini-batches a round, where data are those of the main variant."""
    return {steps: mean(some) for name, steps in BUDGETS.items() if (some := measure.of(rounds, name, "sgd"))}


def known(rounds: list[Row], measure: Measure) -> list[Reading]:
    """Return all readings of which all five accuracies are known."""
    found = []
    for variant in READINGS:
        fleet = ends_of(rounds, variant, measure)
        if len(fleet) < len(FLEET):
            continue
        if variant in _OWN:
            own = measure.of(rounds, variant, "sgd")
            budgets = {_OWN[variant]: mean(own)} if own else {}
        else:
            budgets = genies(rounds, measure)
        found += [Reading(variant, steps, {"sgd": end, **fleet}) for steps, end in budgets.items()]
    return found


def near(rounds: list[Row]) -> str:
    """Say which reading gives the paper's accuracies within a point, by both measures."""
    parts = []
    for measure in (PRINTED, FULL):
        readings = known(rounds, measure)
        if not readings:
            continue
        most = max(len(one.near) for one in readings)
        best = sorted((one for one in readings if len(one.near) == most), key=lambda one: one.far)
        if most == len(PAPER):
            parts.append(f"By {measure.what} all five: {'; '.join(f'{one} ({one.figures})' for one in best)}.")
        else:
            names = ", ".join(title(name) for name in best[0].near) or "none of them"
            parts.append(f"By {measure.what} none gives all five; {best[0]} gives most, {most} ({names}).")
    if not parts:
        return OPEN
    parts += [_offset(rounds), *_borne_out(rounds)]
    return " ".join([*parts, "The tables are [below](#which-reading-fits)."])


def _borne_out(rounds: list[Row]) -> list[str]:
    """Say of genies that seed 0 alone puts within a point whether their other seeds do so too."""
    said = []
    for variant, steps in BUDGETS.items():
        ends = FULL.of(rounds, variant, "sgd")
        if len(ends) > 1 and abs(ends[0] - PAPER["sgd"]) <= NEAR:
            holds = abs(mean(ends) - PAPER["sgd"]) <= NEAR
            said.append(
                f"A genie of {steps} is within a point by seed 0 ({ends[0]:.1f} %), and with its other seeds "
                f"{'too' if holds else 'no more'} ({interval(ends)} %)."
            )
    return said


def _offset(rounds: list[Row]) -> str:
    """Say by how much the fleet's four are off in the main variant on all pictures."""
    far = [end - PAPER[name] for name, end in ends_of(rounds, MAIN, FULL).items()]
    seeds = len(seeds_of(rounds, MAIN))
    near = sum(abs(one) <= NEAR for one in far)
    return (
        f"There `{MAIN}` has {near} of the {len(far)} with vehicles within a point "
        f"({min(far):+.1f} to {max(far):+.1f}; {seeds} seed{'s' * (seeds > 1)})."
    )


def fleet_table(rounds: list[Row]) -> str:
    """Return what comes out of every reading for the algorithms with vehicles."""
    rows = [["the paper", *(f"{PAPER[name]}" for name in FLEET), "", "", ""]]
    for variant in READINGS:
        full, so_far = (ends_of(rounds, variant, measure) for measure in (FULL, PRINTED))
        if not any(FULL.of(rounds, variant, name) for name in FLEET):
            continue
        cells = [_cell(full.get(name), PAPER[name], name in READINGS[variant]) for name in FLEET]
        seeds = str(len(seeds_of(rounds, variant)))
        rows.append([f"`{variant}`", *cells, _count(full), _count(so_far), seeds])
    names = "|".join(map(title, FLEET))
    return grid(f"reading|{names}|within a point|by the last test on the test set so far|seeds", rows)


def _cell(end: float | None, printed: float, touched: bool) -> str:
    if end is None:
        return "–"
    said = f"**{end:.1f}**" if abs(end - printed) <= NEAR else f"{end:.1f}"
    return said if touched else f"({said})"


def _count(ends: dict[str, float]) -> str:
    return f"{sum(abs(end - PAPER[name]) <= NEAR for name, end in ends.items())} of {len(ends)}"


def genie_leads(rounds: list[Row]) -> dict[int, float]:
    """Return by how many points SGD is ahead of AFL of the same seeds, by its mini-batches a round."""
    found = {}
    for variant, steps in BUDGETS.items():
        own = FULL.of(rounds, variant, "sgd")
        base = [late(rounds, MAIN, "afl", FULL.key, seed) for seed in seeds_of(rounds, variant)]
        known = [end for end in base if end is not None]
        if own and len(known) == len(own):
            found[steps] = mean(own) - mean(known)
    return found


def genie_table(rounds: list[Row]) -> str:
    """Return what SGD comes to with every budget."""
    rows, ahead = [], genie_leads(rounds)
    for variant, steps in BUDGETS.items():
        full, so_far = (measure.of(rounds, variant, "sgd") for measure in (FULL, PRINTED))
        if full:
            lead = f"{ahead[steps]:+.1f}" if steps in ahead else "–"
            rows.append([f"{steps}", interval(full), lead, interval(so_far), str(len(full))])
    printed = f"{PAPER['sgd']}"
    paper = ["the paper", printed, f"{PAPER['sgd'] - PAPER['afl']:+.1f}", printed, ""]
    return grid("mini-batches a round|SGD (%)|ahead of AFL|last test on the test set so far (%)|seeds", [paper, *rows])
