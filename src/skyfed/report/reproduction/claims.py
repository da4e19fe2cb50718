"""What an independent plain run had shown before, beside what came out."""

from statistics import mean

from skyfed.report.reproduction.accuracy import judged, paired
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, grid
from skyfed.runs.store import Row


def claims(rounds: list[Row]) -> str:
    """Return what an independent plain run had shown before, beside what came out here."""
    rows = [
        ["about one sample a visit: AFL stands at 48.5–48.8 % from round 30 on", _standing(rounds)],
        ["plenty sensed: AFL passes 48.7 % at round 30 and rises", _rising(rounds)],
        ["QSGD with one global norm stays at chance (8–13 %)", _ended(rounds, "norm global", "afl-quant")],
        ["per tensor it follows AFL", judged(found) if (found := paired(rounds, "afl-quant", "afl")) else OPEN],
        ["a genie with 5 steps a round ends at 45.9 %, below AFL", _ended(rounds, "genie kappa", "sgd")],
    ]
    return grid("known before|measured here", rows)


def _standing(rounds: list[Row]) -> str:
    def between(first: int, end: int) -> str:
        some = [100 * row["accuracy"] for row in courses_of(rounds, MAIN, "afl") if first <= row["round"] < end]
        return f"{mean(some):.1f} %" if some else "–"

    if not courses_of(rounds, MAIN, "afl"):
        return OPEN
    return f"rounds 30–39: {between(30, 40)}, 60–69: {between(60, 70)}, 90–99: {between(90, 100)}"


def _rising(rounds: list[Row]) -> str:
    course = courses_of(rounds, "decay 50 m", "afl")
    if not course:
        return OPEN
    passed = next((row["round"] + 1 for row in course if 100 * row["accuracy"] >= PAPER["afl"]), None)
    when = f"passes it at round {passed}" if passed else "does not pass it"
    return f"{when}; {100 * course[-1]['accuracy']:.1f} % after {course[-1]['round'] + 1} rounds"


def _ended(rounds: list[Row], variant: str, algorithm: str) -> str:
    course = courses_of(rounds, variant, algorithm)
    return f"{100 * course[-1]['accuracy']:.1f} % after {course[-1]['round'] + 1} rounds" if course else OPEN
