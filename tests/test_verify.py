import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skyfed.flight.problem
from flight_cases import case, valid_plan
from skyfed.flight import plan as make_plan
from skyfed.flight import verify


def moved(t: int, x: float, y: float) -> dict[str, np.ndarray]:
    positions = valid_plan()[1].positions.copy()
    positions[t] = (x, y)
    return {"positions": positions}


def test_the_hand_made_plan_holds() -> None:
    assert verify(*valid_plan()) == []


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        (moved(3, 89.0, 0.0), {"C2"}),
        (moved(2, 95.0, 0.0), {"C3"}),
        (moved(1, 0.0, 4.0), {"C6"}),
        (moved(4, np.nan, 0.0), {"shape"}),
        ({"association": np.array([0, 0, -1, 1, 2])}, {"C1"}),
        ({"association": np.array([0.0, 0.0, -1.0, 1.0, 1.0])}, {"C1"}),
        ({"association": np.array([0, 0, -1, 1])}, {"shape"}),
        ({"positions": np.zeros((4, 2))}, {"shape"}),
        ({"objective": 0.0}, {"objective"}),
        ({"bound": -5.0}, {"bound"}),
        ({"bound": np.nan}, {"bound"}),
    ],
)
def test_each_broken_claim_is_named(changes: dict, broken: set[str]) -> None:
    problem, plan = valid_plan()
    assert {violation.constraint for violation in verify(problem, replace(plan, **changes))} == broken


def test_too_many_visits_break_c5_in_both_kinds_of_windows() -> None:
    problem, plan = valid_plan()
    tight = replace(problem, imax=np.array([[2, 2], [2, 1]]))
    assert [v.constraint for v in verify(tight, plan)] == ["C5"]  # rounds 3 and 4 are in the window from 3 on
    rolling = replace(problem, windows="rolling", imax=np.array([[1, 2, 2, 2], [2, 2, 2, 2]]))
    assert [(v.constraint, v.round, v.label) for v in verify(rolling, plan)] == [("C5", 0, 0)]


def test_speed_limit() -> None:
    problem, plan = valid_plan()
    assert verify(replace(problem, vmax=51.0), plan) == []
    assert {v.constraint for v in verify(replace(problem, vmax=49.0), plan)} == {"vmax"}


def test_overlap_of_two_discs_is_forbidden_ground() -> None:
    problem, plan = valid_plan()
    wide = replace(problem, radii=np.array([10.0, 96.0]))
    assert {v.constraint for v in verify(wide, plan)} == {"C3"}


def test_the_rim_belongs_to_both_sides() -> None:
    problem, plan = valid_plan()
    assert verify(problem, replace(plan, **moved(3, 90.0, 0.0))) == []  # associated, on the rim
    assert verify(problem, replace(plan, **moved(2, 90.0, 0.0))) == []  # not associated, on the rim


@given(st.floats(10.001, 40), st.floats(0, 6.283))
def test_leaving_an_associated_disc_is_always_seen(distance: float, angle: float) -> None:
    problem, plan = valid_plan()
    out = moved(0, distance * np.cos(angle), distance * np.sin(angle))
    assert "C2" in {v.constraint for v in verify(problem, replace(plan, **out))}


@pytest.mark.parametrize("name", ["verify.py", "constraints/base.py", "constraints/paper.py"])
def test_the_verifier_shares_no_code_with_a_planner(name: str) -> None:
    source = (Path(skyfed.flight.problem.__file__).parent / name).read_text()
    nodes = list(ast.walk(ast.parse(source)))
    modules = {n.module for n in nodes if isinstance(n, ast.ImportFrom)}
    modules |= {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    known = {"skyfed.flight.problem", "skyfed.types", "skyfed.errors", "skyfed.imports", "skyfed.settings"}
    known |= {f"skyfed.flight.constraints.{part}" for part in ("base", "paper")}
    assert {module for module in modules if module.startswith("skyfed")} <= known
    for word in ("window_spans", "problem.spans", "problem.objective"):
        assert word not in source


@pytest.mark.parametrize(
    ("t", "place", "broken"),  # both plans differ by two micrometres around the tolerance of one
    [
        (3, (90.0, 0.0, -1.0), "C2"),
        (2, (90.0, 0.0, 1.0), "C3"),
        (1, (0.0, 5.0, 0.0), "C6"),
    ],
)
def test_a_micrometre_is_forgiven_and_two_are_not(t: int, place: tuple[float, float, float], broken: str) -> None:
    problem, plan = valid_plan()
    x, y, outward = place
    for amount, expected in ((0.9e-6, []), (2e-6, [broken])):
        off = (x + outward * amount, y) if outward else (x, y - amount)
        assert [v.constraint for v in verify(problem, replace(plan, **moved(t, *off)))] == expected


def test_the_speed_limit_forgives_a_micrometre_too() -> None:
    problem, plan = valid_plan()
    plan = replace(plan, **moved(1, 0.0, 0.0) | {"association": np.array([0, 0, -1, 1, 1])})
    problem = replace(problem, dmin=0.0)
    assert verify(replace(problem, vmax=50.0 - 0.9e-6), plan) == []
    assert [(v.constraint, v.round) for v in verify(replace(problem, vmax=50.0 - 2e-6), plan)] == [
        ("vmax", 1),
        ("vmax", 2),
    ]


def test_the_round_that_two_printed_windows_share_counts_in_both() -> None:
    """Two classes: windows are rounds 1-3 and 3-4; a visit in round 3 is in both."""
    problem, plan = valid_plan()
    for imax, windows in (([[2, 2], [0, 2]], [1]), ([[2, 2], [2, 1]], [3]), ([[2, 2], [0, 1]], [1, 3])):
        found = verify(replace(problem, imax=np.array(imax)), plan)
        assert [(v.constraint, v.round, v.label) for v in found] == [("C5", first, 1) for first in windows]


def test_amounts_and_words_say_by_how_much() -> None:
    problem, plan = valid_plan()
    (found,) = verify(problem, replace(plan, **moved(3, 87.0, 0.0)))
    assert (found.constraint, found.round, found.label) == ("C2", 3, 1)
    assert found.amount == pytest.approx(3.0)
    assert str(found) == "C2 at round 3: associated with class 1 but 3 m outside its disc"
    (found,) = verify(problem, replace(plan, **moved(1, 3.0, 0.0)))
    assert found.amount == pytest.approx(2.0)


def test_all_that_is_wrong_is_listed_not_only_the_first() -> None:
    problem, plan = valid_plan()
    wrong = replace(plan, positions=np.zeros((5, 2)), objective=9.0)
    found = Counter(v.constraint for v in verify(problem, wrong))
    assert found == {"C2": 2, "C3": 3, "C6": 4, "objective": 1}


@pytest.mark.parametrize("label", [-2, 2, 10**9])
def test_a_class_that_does_not_exist_breaks_c1_alone(label: int) -> None:
    problem, plan = valid_plan()
    association = plan.association.copy()
    association[2] = label
    assert [(v.constraint, v.round) for v in verify(problem, replace(plan, association=association))] == [("C1", 2)]


def test_claims_may_round_but_not_boast() -> None:
    problem, plan = valid_plan()
    assert verify(problem, replace(plan, objective=plan.objective + 5e-8)) == []
    assert [v.constraint for v in verify(problem, replace(plan, objective=plan.objective + 1e-6))] == ["objective"]
    assert verify(problem, replace(plan, bound=np.inf)) == []
    assert verify(problem, replace(plan, bound=plan.objective)) == []
    assert [v.constraint for v in verify(problem, replace(plan, bound=plan.objective - 1e-6))] == ["bound"]
    assert [v.constraint for v in verify(problem, replace(plan, objective=np.nan))] == ["objective"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.data(), st.floats(1e-5, 1e3), st.floats(0, 6.283))
def test_any_visit_pushed_out_of_its_disc_is_seen(seed: int, data: st.DataObject, out: float, angle: float) -> None:
    problem = case(seed)
    plan = make_plan(problem, "greedy")
    t = data.draw(st.sampled_from(list(np.flatnonzero(plan.association >= 0))))
    c = plan.association[t]
    positions = plan.positions.copy()
    positions[t] = problem.centres[c] + (problem.radii[c] + out) * np.array([np.cos(angle), np.sin(angle)])
    found = verify(problem, replace(plan, positions=positions))
    assert ("C2", t, c) in {(v.constraint, v.round, v.label) for v in found}
