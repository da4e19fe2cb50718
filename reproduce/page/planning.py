"""Does planning help learning? AFL with every planner: what its flights hit, what they sense, what is learnt."""

from reproduce.collect import MAIN
from reproduce.results import OPEN, end_of, grid, late, sensed
from skyfed.runs.tables import Row

_FAR = "decay 50 m"
_TRUE = "planner sca, true discs"
_NAMES = {MAIN: "sca (as `paper`)", _FAR: "sca, 50 m"}
# what is asked, in groups: exact plans, and what they are compared with
_ASKED: list[tuple[str, str, dict[str, str]]] = [
    (
        "Positions as they come",
        "planner exact",
        {
            "hovering": "planner hover",
            "random flights": "planner random",
            "greedy ones": "planner greedy",
            "Algorithm 1": MAIN,
        },
    ),
    (
        "Placed for sensing",
        "planner exact, placed",
        {
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
            "random flights": "planner random, 50 m",
            "greedy ones": "planner greedy, 50 m",
            "Algorithm 1": "planner sca, placed, 50 m",
            "Algorithm 1 with its own positions": _FAR,
        },
    ),
]


def answer(rounds: list[Row], flights: list[Row]) -> str:
    """Say by how much exact plans are above or below others, and how many pictures stand behind it."""
    groups = [(what, *found) for what, first, others in _ASKED if (found := _group(rounds, first, others))]
    if not groups:
        return OPEN
    parts = [f"{what}, exact plans give {own}: {', '.join(others)}." for what, own, others in groups]
    measure = "AFL, late means on all 10,000 pictures, pictures sensed in brackets; one seed, so none of it is shown"
    more = [part for part in (_placing(rounds), _known(rounds, flights)) if part]
    return f"{' '.join([*parts, *more])} ({measure}.)"


def _group(rounds: list[Row], first: str, others: dict[str, str]) -> tuple[str, list[str]] | None:
    """Return what exact plans give, and how far that is from each of the others."""
    own = late(rounds, first, "afl", "accuracy_full")
    ends = {name: late(rounds, variant, "afl", "accuracy_full") for name, variant in others.items()}
    if own is None or all(end is None for end in ends.values()):
        return None
    apart = [
        f"{own - end:+.1f} against {name} ({_pictures(rounds, others[name])})"
        for name, end in ends.items()
        if end is not None
    ]
    return f"{own:.1f} % ({_pictures(rounds, first)})", apart


def _pictures(rounds: list[Row], variant: str) -> str:
    found = sensed(rounds, variant, "afl")
    return f"{found[1] if found else 0:,}"


def _placing(rounds: list[Row]) -> str:
    """Say what it brings to place the same plans for sensing."""
    ends = [late(rounds, variant, "afl", "accuracy_full") for variant in ("planner exact, placed", "planner exact")]
    if ends[0] is None or ends[1] is None:
        return ""
    ahead = ends[0] - ends[1]
    return f"To place the same exact plans for sensing brings {ahead:+.1f} points."


def _known(rounds: list[Row], flights: list[Row]) -> str:
    """Say what it brings Algorithm 1 to know the true discs."""
    over = {row["variant"]: row["over"] for row in flights if not row["seed"] and row.get("over") is not None}
    end = late(rounds, _TRUE, "afl", "accuracy_full")
    if end is None or _TRUE not in over or MAIN not in over:
        return ""
    return (
        f"Algorithm 1 that knows the true discs is over them in {100 * over[_TRUE]:.0f} % of its visits "
        f"({100 * over[MAIN]:.0f} % with estimates) and gives {end:.1f} % ({_pictures(rounds, _TRUE)})."
    )


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
        full = late(rounds, variant, "afl", "accuracy_full") or 0.0
        tested = [f"{100 * end['accuracy']:.1f}", f"{100 * end['accuracy_full']:.1f}", f"{full:.1f}"]
        over = _figure(one, "over", 100, 0)
        rows.append([name, f"{one['visits']:.0f}", *hits, over, f"{found[1]:,}", *tested])
    rows.sort(key=lambda row: ("50 m" in row[0], "placed" in row[0], row[0]))
    return grid(
        "planner|visits a vehicle|psi of the visited class: percentile over its rounds|rank among the classes|"
        "from the planned centre (radii)|over the true disc (%)|pictures sensed|AFL (%)|on all 10,000 pictures (%)|"
        "late mean (%)",
        rows,
    )


def _figure(one: Row, key: str, factor: float, digits: int) -> str:
    return "–" if one.get(key) is None else f"{factor * one[key]:.{digits}f}"
