"""What an independent plain run had shown before, beside what came out: confirmed or corrected."""

from statistics import mean

from reproduce.collect import MAIN
from reproduce.page.chance import leads
from reproduce.results import OPEN, PAPER, courses_of, end_of, grid, last, seeds_of, sensed, title
from skyfed.runs.tables import Row

_STANDS = (48.5, 48.8)  # %, where AFL stood from round 30 on
_GENIE = 45.9  # %, where a genie of 5 steps a round ended
_CHANCE = (8.0, 13.0)  # %, where one global norm stayed
_GLOBAL_AT = (15, 30, 55)  # rounds to tell of; what was known before ended after the first
_ALIKE = 1.0  # points within which a figure counts as confirmed
_FOLLOWS = 2.0  # points within which quantised AFL follows AFL


def claims(rounds: list[Row]) -> str:
    """Return what was known before, what came out here, and whether that confirms it."""
    rows = [
        ["about one sample a visit: AFL stands at 48.5–48.8 % from round 30 on", *_standing(rounds)],
        ["plenty sensed: AFL passes 48.7 % at round 30 and rises", *_rising(rounds)],
        ["QSGD with one global norm stays at chance (8–13 %; that run had 15 rounds)", *_global(rounds)],
        ["per tensor it follows AFL", *_follows(rounds)],
        ["a genie with 5 steps a round ends at 45.9 %, below AFL", *_genie(rounds)],
        ["47 to 51 % for all methods means that few pictures are sensed", *_plenty(rounds)],
    ]
    return grid("known before|measured here|verdict", rows)


def _verdict(holds: bool) -> str:
    return "confirmed" if holds else "corrected"


def _standing(rounds: list[Row]) -> list[str]:
    course = courses_of(rounds, MAIN, "afl")
    spans = [(first, first + 9) for first in (30, 60, 90)]
    some = [[100 * row["accuracy"] for row in course if first <= row["round"] <= end] for first, end in spans]
    if not all(some):
        return [OPEN, "–"]
    means = [mean(one) for one in some]
    said = ", ".join(f"{first}–{end}: {one:.1f} %" for (first, end), one in zip(spans, means, strict=True))
    visits, seeds = sensed(rounds, MAIN, "afl"), len(seeds_of(rounds, MAIN))
    pictures = f"; {visits[1]:,} pictures sensed in seed 0" if visits else ""
    within = [_STANDS[0] - _ALIKE <= one <= _STANDS[1] + _ALIKE for one in means]
    verdict = "confirmed" if all(within) else f"corrected: stands at {means[-1]:.1f} % in the end"
    return [f"rounds {said} (mean of {seeds} seed{'s' * (seeds > 1)}{pictures})", verdict]


def _rising(rounds: list[Row]) -> list[str]:
    course = courses_of(rounds, "decay 50 m", "afl", 0)
    if not course:
        return [OPEN, "–"]
    passed = next((k for k, row in enumerate(course) if 100 * row["accuracy"] >= PAPER["afl"]), None)
    end = course[-1]
    ended = f"{100 * end['accuracy']:.1f} % after {end['round'] + 1} rounds"
    if passed is None:
        return [f"does not pass it; {ended}", "corrected"]
    before = course[passed - 1]["round"] + 1 if passed else 0
    holds = before < 30 <= course[passed]["round"] + 1 and end["accuracy"] > course[passed]["accuracy"]
    return [f"passes it between rounds {before} and {course[passed]['round'] + 1}; {ended}", _verdict(holds)]


def _global(rounds: list[Row]) -> list[str]:
    course = courses_of(rounds, "norm global", "afl-quant", 0)
    if not course:
        return [OPEN, "–"]
    low = [row for row in course if 100 * row["accuracy"] <= _CHANCE[1] + _ALIKE]
    until = f"near it until round {low[-1]['round'] + 1}, " if low else ""
    at = [row for row in course if row["round"] + 1 in _GLOBAL_AT or row is course[-1]]
    said = ", ".join(f"{100 * row['accuracy']:.1f} % after {row['round'] + 1}" for row in at)
    verdict = "confirmed" if len(low) == len(course) else "corrected: it learns late"
    return [f"{until}{said} rounds", verdict]


def _follows(rounds: list[Row]) -> list[str]:
    for one in leads(rounds):
        if (one.one, one.other) == ("afl", "afl-quant"):
            holds = abs(mean(one.full)) <= _FOLLOWS
            return [f"{one.points.removeprefix('+')} points below on all pictures", _verdict(holds)]
    return [OPEN, "–"]


def _genie(rounds: list[Row]) -> list[str]:
    end, afl = end_of(rounds, "genie kappa", "sgd"), end_of(rounds, MAIN, "afl")
    if end is None or afl is None:
        return [OPEN, "–"]
    found, beside = 100 * end["accuracy"], 100 * afl["accuracy"]
    holds = abs(found - _GENIE) <= _ALIKE and found < beside
    return [f"{found:.1f} % after {end['round'] + 1} rounds, AFL {beside:.1f} %", _verdict(holds)]


def _plenty(rounds: list[Row]) -> list[str]:
    ends = {name: mean(found) for name in PAPER if (found := last(rounds, "decay 50 m", name, "accuracy"))}
    grown = sensed(rounds, "decay 50 m", "afl")
    if not ends or grown is None:
        return [OPEN, "–"]
    said = ", ".join(f"{title(name)} {end:.1f} %" for name, end in ends.items())
    return [f"with {grown[1]:,} sensed: {said}", _verdict(all(end > max(PAPER.values()) for end in ends.values()))]
