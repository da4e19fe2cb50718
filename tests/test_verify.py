import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyfed.flight.problem
from flight_cases import valid_plan
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


def test_the_verifier_shares_no_code_with_a_planner() -> None:
    source = Path(skyfed.flight.problem.__file__).with_name("verify.py").read_text()
    found = {n.module for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)}
    found |= {alias.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import) for alias in n.names}
    assert found <= {"math", "numpy", "dataclasses", "skyfed.flight.problem", "skyfed.records"}
    assert "window_spans" not in source
    assert "problem.spans" not in source
    assert "problem.objective" not in source
