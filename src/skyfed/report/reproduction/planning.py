"""Does planning help learning? AFL with every planner: what its flights hit, what they sense, what is learnt."""

from skyfed.report.reproduction.chance import scatter
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, end_of, grid, sensed
from skyfed.runs.store import Row

_FAR = "decay 50 m"
_NAMES = {MAIN: "sca (as `paper`)", _FAR: "sca, 50 m"}
# what is asked, in groups: the first variant of a group is compared with each of the others
_ASKED: list[tuple[str, str, dict[str, str]]] = [
    (
        "Positions as they come",
        "planner exact",
        {"hovering": "planner hover", "random flights": "planner random", "Algorithm 1": MAIN},
    ),
    (
        "Placed for sensing",
        "planner exact, placed",
        {
            "themselves as they come": "planner exact",
            "hovering": "planner hover, placed",
            "random flights": "planner random, placed",
            "greedy ones": "planner greedy, placed",
            "Algorithm 1": "planner sca, placed",
        },
    ),
    (
        "Placed, where sensing reaches 50 m",
        "planner exact, 50 m",
        {
            "hovering": "planner hover, 50 m",
            "Algorithm 1": "planner sca, placed, 50 m",
            "Algorithm 1 with its own positions": _FAR,
        },
    ),
]


def answer(rounds: list[Row]) -> str:
    """Say by how much exact plans are ahead, and how many pictures stand behind it; on all pictures, seed 0."""
    chance = 2 * 2**0.5 * scatter(rounds, "accuracy_full")  # twice what two seeds are apart (root mean square)
    parts = [part for asked in _ASKED if (part := _group(rounds, chance, *asked))]
    if not parts:
        return OPEN
    rule = f"beyond chance is more than {chance:.1f} points, twice what two seeds are apart" if chance else "one seed"
    return f"Exact plans are ahead (points; AFL on all 10,000 pictures, seed 0; {rule}). {' '.join(parts)}"


def _group(rounds: list[Row], chance: float, what: str, first: str, others: dict[str, str]) -> str:
    ahead = {name: far for name, other in others.items() if (far := _ahead(rounds, first, other)) is not None}
    found = sensed(rounds, first, "afl")
    if not ahead or found is None:
        return ""
    sure = ", ".join(f"of {name} {far:+.1f}" for name, far in ahead.items() if chance and abs(far) > chance)
    unsure = ", ".join(f"of {name} {far:+.1f}" for name, far in ahead.items() if not chance or abs(far) <= chance)
    said = "; ".join(part for part in (sure and f"{sure}, beyond chance", unsure and f"{unsure}, within it") if part)
    if not chance:
        said = unsure
    start, more = found
    return f"{what}, with {more:,} pictures sensed beside the first {start:,}: {said}."


def _ahead(rounds: list[Row], one: str, other: str) -> float | None:
    """Return by how many points one variant's AFL ends above another's."""
    ends = [end_of(rounds, variant, "afl") for variant in (one, other)]
    if ends[0] is None or ends[1] is None:
        return None
    return 100 * float(ends[0]["accuracy_full"] - ends[1]["accuracy_full"])


def table(rounds: list[Row], flights: list[Row]) -> str:
    """Return every planner's flights, pictures and accuracy, seed 0."""
    rows = []
    for one in flights:
        variant = one["variant"]
        name = _NAMES.get(variant, variant.removeprefix("planner "))
        end, found = end_of(rounds, variant, "afl"), sensed(rounds, variant, "afl")
        if end is None or found is None or one["seed"] or name == variant:
            continue
        hits = [_figure(one, "peak", 100, 0), _figure(one, "rank", 1, 1), _figure(one, "rim", 1, 2)]
        tested = [f"{100 * end[key]:.1f}" for key in ("accuracy", "accuracy_full")]
        over = _figure(one, "over", 100, 0)
        rows.append([name, f"{one['visits']:.0f}", *hits, over, f"{found[1]:,}", *tested, str(end["round"] + 1)])
    rows.sort(key=lambda row: ("50 m" in row[0], "placed" in row[0], row[0]))
    return grid(
        "planner|visits a vehicle|psi of the visited class: percentile over its rounds|rank among the classes|"
        "from the planned centre (radii)|over the true disc (%)|pictures sensed|AFL (%)|on all 10,000 pictures (%)|"
        "rounds",
        rows,
    )


def _figure(one: Row, key: str, factor: float, digits: int) -> str:
    return "–" if one.get(key) is None else f"{factor * one[key]:.{digits}f}"
