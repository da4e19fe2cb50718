"""Every number of docs/reproduction.md, which is written by hand, is what the recorded results give."""

import re
from itertools import combinations, pairwise
from pathlib import Path
from statistics import mean

import pytest

from reproduce.collect import MAIN, SHRINKING
from reproduce.page.accuracy import late_model
from reproduce.page.costs import change, cost_model, directions, reached
from reproduce.page.readings import BUDGETS, FLEET, NEAR, sgd_lead, whole_lates
from reproduce.page.shift import STILL, mean_moves, moves
from reproduce.page.vanishing import by_rate
from reproduce.results import (
    PAPER,
    an_upload,
    end_of,
    interval,
    last,
    late,
    lates,
    learning_curve,
    read_machines,
    read_results,
    run_name,
    seeds_of,
    title,
)
from skyfed.config import load_config
from skyfed.report.numbers import number, probability, with_interval
from skyfed.report.seed_model import Comparison, half_interval

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reproduction.md"
MOST_WORDS = 2500
FOUND = read_results(ROOT / "results/reproduction")
ROUNDS, UPLINK = FOUND["rounds"], FOUND["uplink"]
CUT = "channels cut out"
# what is no number: names, places in the paper, levels of confidence
NAMES = (
    r"\]\([^)]*\)", r"`[^`]*`", "2CEOAFL", "CIFAR-10", "ResNet18", r"2506\.02972", r"Theorem 1", r"95 %", "32 × 32",
    r"hold together at 5 %", r"levels that are mostly 0", r"10,000 test pictures", r"AFL of seed 0",
)  # fmt: skip


def prose() -> str:
    """The page on one line."""
    return " ".join(PAGE.read_text().split())


def points(test: Comparison, sign: str = "+") -> str:
    """A difference with its simultaneous interval."""
    return with_interval(test.difference, (test.high - test.low) / 2, sign)


def one(variant: str, name: str) -> str:
    """The late mean of seed 0 on all pictures."""
    end = late(ROUNDS, variant, name, "accuracy_full")
    assert end is not None
    return f"{end:.1f}"


def less(key: str, variant: str = MAIN, other: str = "afl") -> str:
    """By how many per cent an upload of 2CEOAFL takes less than another's."""
    return interval([-apart for apart in change(UPLINK, variant, key, "2ceoafl", other)])


def size(name: str, key: str = "wire_bytes") -> float:
    """Bytes or bits of a mean upload."""
    found = an_upload(UPLINK, MAIN, name, key)
    assert found is not None
    return found


def accuracies() -> list[str]:
    above = {name: mean(lates(ROUNDS, MAIN, name, "accuracy_full")) - PAPER[name] for name in FLEET}
    sgd = [end - PAPER["sgd"] for end in lates(ROUNDS, MAIN, "sgd", "accuracy_full")]
    pictures = mean(row["test_size"] for row in ROUNDS if row["variant"] == MAIN and row["round"] == 99)
    share = mean(mean(last(ROUNDS, MAIN, name, "accuracy")) for name in PAPER) / 100
    chance = 196 * (share * (1 - share) / pictures) ** 0.5
    budget = {steps: interval(whole_lates(ROUNDS, name, "sgd")) for name, steps in BUDGETS.items()}
    far = min(float(one("decay 50 m", name)) - PAPER[name] for name in FLEET)
    few, behind = BUDGETS["genie kappa"], -(sgd_lead(ROUNDS, "genie kappa") or 0)
    return [
        f"The four algorithms with vehicles end {min(above.values()):+.1f} to {max(above.values()):+.1f} points from",
        f"and SGD {interval(sgd, '+')}.",
        f"about {pictures:,.0f} pictures in the end",
        f"chance alone moves an accuracy by ± {chance:.1f} points",
        f"as many as the whole fleet, {load_config(MAIN).vehicles * load_config(MAIN).train.kappa}.",
        f"With 5, 10 and 25 it ends at {budget[5]} (one seed), {budget[10]} (one seed) and {budget[25]} %",
        f"so the paper's {PAPER['sgd']} % lies between 10 and 25.",
        f"has all {sum(abs(far) <= NEAR for far in above.values())} algorithms with vehicles within one point",
        f"If sensing reaches 50 m all of them are at least {far:.1f} points above the paper (one seed).",
        f"with {few} mini-batches per round it is behind AFL by {behind:.1f} points (one seed)",
        f"AFL-Quant ends at {one('norm global', 'afl-quant')} % instead of {one(MAIN, 'afl-quant')} % (one seed)",
        f"or one per 512 weights ({one('norm buckets of 512', 'afl-quant')} %, one seed)",
    ]


def comparisons() -> list[str]:
    model = late_model(ROUNDS)
    costs = {name: test.reversed for name, test in model.against("afl").items()}
    quant, sgd = model.pair("afl-quant", "2ceoafl"), model.pair("sgd", "afl")
    by_seed = [[late(ROUNDS, MAIN, name, "accuracy_full", seed) or 0 for name in PAPER] for seed in range(3)]
    held = sum(all(a > b for a, b in pairwise(ends)) for ends in by_seed)
    both = points(costs["2ceoafl"], "")
    prints = [f"{PAPER['afl'] - PAPER[name]:.1f}" for name in ("afl-prune", "afl-quant", "2ceoafl")]
    return [
        f"it is ahead by {points(quant)} points, so it is not inferior by a margin of one point",
        f"only 2CEOAFL is shown to be worse than AFL, by {both} points",
        f"Only SGD over AFL is shown, {points(sgd)} points ({probability(sgd.p)})",
        f"the full order holds in {held} of {len(by_seed)} seeds",
        f"pruning costs {points(costs['afl-prune'], '')} points",
        f"quantising {points(costs['afl-quant'], '')}, and neither",
        f"Both together cost {both} points, which is shown ({probability(costs['2ceoafl'].p)})",
        f"The paper prints {prints[0]}, {prints[1]} and {prints[2]}.",
    ]


def fluctuations() -> list[str]:
    so_far, full = (
        [mean(mean_moves(ROUNDS, MAIN, name, key)) for name in PAPER] for key in ("accuracy", "accuracy_full")
    )
    return [
        f"accuracy moves by {min(so_far):.1f} to {max(so_far):.1f} points on the test set so far",
        f"and by {min(full):.1f} to {max(full):.1f} on all pictures",
    ]


def costs() -> list[str]:
    times, formula = (size("2ceoafl", key) / size("afl-quant", key) for key in ("wire_bytes", "paper_bits"))
    cpu = interval(change(UPLINK, MAIN, "measured_cpu_seconds", "2ceoafl", "afl"))
    own = [row for row in UPLINK if (row["variant"], row["algorithm"]) == (MAIN, "2ceoafl")]
    quantised = sum(row["uploads"] for row in own if row["quantised"]) / sum(row["uploads"] for row in own)
    until = {name: reached(ROUNDS, name, 47).values() for name in ("afl", "2ceoafl", "afl-quant")}
    sent = {name: interval([sent / 1e6 for _, sent in by_seed]) for name, by_seed in until.items()}
    taken = {name: f"{mean(taken for taken, _ in by_seed):.0f}" for name, by_seed in until.items()}
    return [
        f"It sends {times:.0f} times fewer bytes.",
        f"takes {cpu} % more CPU time with 2CEOAFL than with AFL",
        f"where the paper's law predicts {less('modelled_seconds')} % less",
        f"An upload is {less('wire_bytes')} % smaller than with AFL ({less('paper_bits')} % by the paper's formula)",
        f"and a vehicle's round takes {cpu} % more CPU time",
        f"AFL-Quant, with {size('afl-quant') / 1e6:.3f} MB per upload",
        f"2CEOAFL sends {size('2ceoafl') / 1e6:.2f}, AFL-Prune {size('afl-prune') / 1e6:.2f}",
        f"and AFL {size('afl') / 1e6:.1f} MB",
        f"only a factor of {formula:.1f} between AFL-Quant and 2CEOAFL",
        f"{100 * quantised:.0f} % of 2CEOAFL's uploads are quantised too",
        f"Until 47 % the fleet sends up {sent['afl']} MB with AFL, {sent['2ceoafl']} with 2CEOAFL",
        f"and {sent['afl-quant']} with AFL-Quant",
        f"That takes {taken['afl']}, {taken['2ceoafl']} and {taken['afl-quant']} rounds.",
        f"2CEOAFL then takes {less('measured_cpu_seconds', CUT)} % less CPU time than AFL",
        f"({less('modelled_seconds', CUT)} % less by the paper's law)",
        f"and ends at {one(CUT, '2ceoafl')} %, AFL at {one(CUT, 'afl')} % (one seed",
    ]


def both_directions() -> list[str]:
    known = {name: found for name in ("afl", "2ceoafl", "afl-quant") if (found := directions(ROUNDS, name))}
    up, down = ([number(found[k]) for found in known.values()] for k in (0, 1))
    total = {name: sum(found) for name, found in known.items()}
    rounds = end_of(ROUNDS, "both ways", "afl")
    assert rounds is not None
    first = f"(one seed, the first {rounds['round'] + 1} rounds)"
    return [
        f"AFL-Quant needs {total['2ceoafl'] / total['afl-quant']:.2g} times fewer bytes than 2CEOAFL",
        f"and {total['afl'] / total['afl-quant']:.2g} times fewer than AFL {first}",
        f"receives {down[0]} MB with AFL, {down[1]} with 2CEOAFL and {down[2]} with AFL-Quant",
        f"and it sends {up[0]}, {up[1]} and {up[2]} {first}",
    ]


def weights() -> list[str]:
    known = read_machines(ROOT / "results/reproduction")[run_name({"variant": MAIN, "seed": 0})]
    dead = known["weights"] - known["live_weights"]
    of_live = 1 - size("2ceoafl", "kept_live") / known["live_weights"]
    return [
        f"Of ResNet18's {known['weights']:,} weights, {dead:,} ({100 * dead / known['weights']:.1f} %) never do",
        f"prunes {100 * size('2ceoafl', 'delta'):.1f} % of all weights, but {100 * of_live:.1f} % of those that get",
    ]


def flights() -> list[str]:
    planned = [[one(f"planner {name}{end}", "afl") for name in ("exact", "hover", "random")] for end in ENDINGS]
    visits = [row for row in FOUND["flights"] if row["variant"] == MAIN]
    classes = load_config(MAIN).field.classes
    return [
        f"exact plans end at {planned[0][0]} %, hovering at {planned[0][1]} % and random flights at {planned[0][2]} %",
        f"chosen for sensing it is {planned[1][0]}, {planned[1][1]} and {planned[1][2]} %",
        f"if sensing also reaches 50 m, {planned[2][0]}, {planned[2][1]} and {planned[2][2]} %.",
        f"as high as in {100 * mean(row['peak'] for row in visits):.0f} % of its rounds (chance gives 50 %)",
        f"among the {classes} classes is {mean(row['rank'] for row in visits):.1f} (chance gives {(classes + 1) / 2})",
    ]


ENDINGS = ("", ", placed", ", 50 m")


def theory() -> list[str]:
    terms, seen = (
        by_rate(FOUND["rates"], "term", "rate", "value"),
        by_rate(FOUND["floor"], "error", "share", "gradient2"),
    )
    low, high = sorted(terms["pruning"])[:2]
    small, larger = sorted(seen["pruning"])[:2]
    allowed = max(terms["pruning"]) / max(SHRINKING)
    rate, rounds = load_config(MAIN).train.eta, end_of(ROUNDS, "theory", "2ceoafl")
    assert rounds is not None
    left = {name: values[low] / values[high] for name, values in terms.items()}
    return [
        f"The paper's rate of {rate} is about {round(rate / allowed, -4):,.0f} times larger than what the corrected",
        f"in a run of 2CEOAFL (one seed, {rounds['round'] + 1} rounds)",
        f"the bound keeps {left['pruning']:.2g} of its pruning term",
        f"gradients and quantisation falls to {left['gradient noise x quantisation']:.2g}",
        f"pruning keeps {seen['pruning'][small] / seen['pruning'][larger]:.2g} of what it leaves",
    ]


def test_the_page_of_the_theorem_has_the_recorded_rate() -> None:
    allowed = max(row["rate"] for row in FOUND["rates"]) / max(SHRINKING)
    row = f"| corrected | {allowed:.1e} | {round(0.1 / allowed, -4):,.0f} times |".replace("e-0", "e-")
    assert row in (ROOT / "docs/theory.md").read_text()


def repeated() -> list[str]:
    config = load_config(MAIN)
    first, again = ({row["round"]: row for row in learning_curve(ROUNDS, name, "afl", 0)} for name in (MAIN, CUT))
    equal = [t for t in again if first[t]["accuracy"] == again[t]["accuracy"]]
    assert len(equal) == len(again)
    apart = 100 * max(abs(first[t]["accuracy_full"] - again[t]["accuracy_full"]) for t in again)
    hours = sum(row["seconds"] for row in ROUNDS) / 3600
    return [
        f"{config.vehicles} vehicles, {config.rounds} rounds, {len(seeds_of(ROUNDS, MAIN))} seeds.",
        f"{hours:.0f} hours on two cores",
        f"All {len(equal)} tests on the test set so far came out equal",
        f"on all pictures they differ by at most {apart:.2f}",
    ]


SENTENCES = [
    words
    for part in (accuracies, comparisons, fluctuations, costs, both_directions, weights, flights, theory, repeated)
    for words in part()
]


@pytest.mark.parametrize("words", SENTENCES)
def test_the_page_says_what_the_results_give(words: str) -> None:
    assert words in prose()


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_says_what_the_results_give() -> None:
    assert rows() == [
        [title(name), f"{printed}", interval(ends), f"{len(ends)}", verdict([end - printed for end in ends])]
        for name, printed in PAPER.items()
        if (ends := lates(ROUNDS, MAIN, name, "accuracy_full"))
    ]


def verdict(above: list[float]) -> str:
    """By the mean and, where that is further than a point away, by the whole interval."""
    if abs(mean(above)) <= NEAR:
        return "within one point"
    beyond = abs(mean(above)) - (half_interval(above) or 0) > NEAR
    return f"more than one point {'above' if mean(above) > 0 else 'below'}" if beyond else "unclear"


def test_no_number_of_the_page_goes_unchecked() -> None:
    rest = prose()
    for row in rows():
        rest = rest.replace(f"| {' | '.join(row)} |", "")
    for words in sorted(SENTENCES, key=len, reverse=True):
        rest = rest.replace(words, "")
    for name in NAMES:
        rest = re.sub(name, "", rest)
    assert not re.findall(r".{0,60}\d.{0,20}", rest)


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().split()) <= MOST_WORDS
    assert len(rows()) == len(PAPER)


def test_what_the_page_says_without_a_number() -> None:
    """Verdicts follow the model, and no statement rests on one seed."""
    model = late_model(ROUNDS)
    assert model.pair("afl-quant", "2ceoafl").verdict(margin=1.0) == "not inferior (margin 1)"
    assert [pair for pair in combinations(FLEET, 2) if model.pair(*pair).shown] == [("afl", "2ceoafl")]
    against = model.against("afl")
    assert [name for name in FLEET[1:] if against[name].shown] == ["2ceoafl"]
    assert model.pair("sgd", "afl").verdict() == "better"
    inside = [
        abs(mean(above)) + (half_interval(above) or 0) <= NEAR
        for name in FLEET
        if (above := [end - PAPER[name] for end in lates(ROUNDS, MAIN, name, "accuracy_full")])
    ]
    assert not any(inside)  # none of the four intervals lies wholly within one point
    assert all(abs(float(one(STILL, name)) - PAPER[name]) <= NEAR for name in FLEET)
    cpu = cost_model(UPLINK, "measured_cpu_seconds")
    assert cpu.pair("2ceoafl", "afl").verdict(higher_is_better=False) == "worse"
    order = ["afl-quant", "2ceoafl", "afl-prune", "afl"]
    assert sorted(FLEET, key=size) == order == sorted(FLEET, key=lambda name: size(name, "paper_bits"))
    assert (
        whole_lates(ROUNDS, "genie 10 steps", "sgd")[0]
        < PAPER["sgd"]
        < mean(whole_lates(ROUNDS, "genie 25 steps", "sgd"))
    )
    still = [mean(moves(ROUNDS, STILL, name, "accuracy_full", 0)) for name in FLEET]
    paper = [mean(moves(ROUNDS, MAIN, name, "accuracy_full", 0)) for name in FLEET]
    assert any(a > b for a, b in zip(still, paper, strict=True))  # no sensing moves accuracy about as much
    up, down = directions(ROUNDS, "afl-quant") or (0.0, 0.0)
    assert down > up
