import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flight_cases import case
from skyfed.bench.planner import missions
from skyfed.config import load_config
from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight import Options, Problem, load_fleet_plan, plan, planner, verify
from skyfed.flight.fleet_plan import age_of_information
from skyfed.flight.planner import METHODS, fell_back
from skyfed.flight.remote import plan_fleet
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import RunFolder
from skyfed.types import Plan
from skyfed.world.mission import prepare_mission

SMALL = case(0, classes=2, rounds=4, side=400.0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_verifies_and_stays_below_the_exact_bound(method: str) -> None:
    found = plan(SMALL, method, Options(seconds=20))
    assert verify(SMALL, found) == []
    assert found.method == method
    assert found.objective <= plan(SMALL).bound + 1e-7


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInputError, match=r"flight\.method = 'teleport'.*exact, sca"):
        plan(SMALL, "teleport")


def raising(problem, options):
    raise RuntimeError("licence expired")


def lying(problem, options):
    return replace(plan(problem, "greedy"), objective=99.0, bound=100.0)


def trespassing(problem, options):
    positions = np.tile(problem.centres[0], (problem.rounds, 1))
    return Plan(positions, np.full(problem.rounds, -1), problem.objective(np.full(problem.rounds, -1)), 9.0, 0.0, "bad")


@pytest.mark.parametrize(
    ("solver", "reason"), [(raising, "licence expired"), (lying, "objective"), (trespassing, "C3")]
)
def test_a_failing_solver_is_replaced_and_the_plan_says_so(
    monkeypatch: pytest.MonkeyPatch, solver, reason: str
) -> None:
    real = planner.load_solver
    monkeypatch.setattr(planner, "load_solver", lambda name: solver if name == "exact" else real(name))
    found = plan(SMALL)
    assert verify(SMALL, found) == []
    assert found.note.startswith("fallback greedy")
    assert reason in found.note
    monkeypatch.undo()
    assert found.bound >= plan(SMALL).objective


def test_without_a_working_fallback_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "load_solver", lambda name: raising)
    with pytest.raises(InfeasibleError, match=r"licence expired.*fallback failed too"):
        plan(SMALL)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["greedy", "random", "hover"]), st.sampled_from([np.inf, 30.0, 120.0]))
def test_simple_flights_always_verify(seed: int, method: str, vmax: float) -> None:
    problem = case(seed, classes=1 + seed % 5, rounds=1 + seed % 17, vmax=vmax, windows=("paper", "rolling")[seed % 2])
    assert verify(problem, plan(problem, method, Options(seed=seed))) == []


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(40, 600))
def test_exact_flights_verify_in_any_geometry(seed: int, side: float) -> None:
    problem = case(seed, classes=1 + seed % 6, rounds=1 + seed % 23, side=side, imax=1 + seed % 3, radii=(2.0, 45.0))
    found = plan(problem)
    assert verify(problem, found) == []
    assert not fell_back(found.note)


def test_age_of_information_by_hand() -> None:
    age = age_of_information(np.array([0, -1, 1, 0]), 2)
    np.testing.assert_array_equal(age, [[0, 1, 2, 0], [1, 2, 0, 1]])


def test_the_number_of_workers_changes_no_bit() -> None:
    problems = missions(0, 4, rounds=20)
    options = [Options(vehicle=u) for u in range(4)]
    alone, together = dict(plan_fleet(problems, "exact", options, 1)), dict(plan_fleet(problems, "exact", options, 3))
    for u in range(4):
        np.testing.assert_array_equal(alone[u].positions, together[u].positions)
        assert alone[u].bound == together[u].bound


def test_a_planner_of_ones_own_is_found_by_import_path_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_planners.py").write_text(
        "from dataclasses import replace\nfrom skyfed.flight import plan\nNUMBER = 3\n"
        "def good(problem, options):\n    return plan(problem, 'greedy', options)\n"
        "def liar(problem, options):\n    return replace(good(problem, options), objective=99.0, bound=100.0)\n"
        "def lazy(problem, options):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert not plan(SMALL, "my_planners:good").note
    assert plan(SMALL, "my_planners:liar").note.startswith(
        "fallback greedy: my_planners:liar failed (the plan does not"
    )
    assert "gave a NoneType" in plan(SMALL, "my_planners:lazy").note
    for name, reason in (
        ("nowhere:solve", "No module"),
        ("my_planners:none", "no .none. there"),
        ("my_planners:NUMBER", "int"),
    ):
        with pytest.raises(BadInputError, match=f"flight.method = '{name}'.*{reason}"):
            plan(SMALL, name)
        config = load_config("smoke", [f"flight.method={name}"])
        with pytest.raises(BadInputError, match=reason):  # before anything is written
            prepare_mission(config.field, config.flight, config.sensing, 1, 5, 0)


@pytest.mark.parametrize("name", ["magic", "a:", ":b", "a:b:c", "a b:c", "../a:b", ""])
def test_what_names_no_planner_is_refused(name: str) -> None:
    with pytest.raises(BadInputError, match=r"^flight.method = .*allowed: exact, sca, .*package.module:name or"):
        load_config("smoke", [f'flight.method="{name}"'])


def test_a_planner_of_ones_own_that_always_fails_is_not_replaced_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails for some vehicles is; one that is mended afterwards finds nothing of the fallback's."""
    source = (
        "from skyfed.flight import plan\n"
        "def solve(problem, options):\n"
        "    if options.vehicle in {failing}:\n        raise ValueError('my bug')\n"
        "    return plan(problem, 'hover', options)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "half_planner.py").write_text(source.replace("{failing}", "()"))
    config = load_config("smoke", ["flight.method=half_planner:solve", "vehicles=2", "rounds=12"])
    mission = prepare_mission(config.field, config.flight, config.sensing, 2, 12, config.seed)
    for failing, notes in (("(0, 1)", None), ("(1,)", [False, True]), ("()", [False, False])):
        (tmp_path / "half_planner.py").write_text(source.replace("{failing}", failing))
        place = tmp_path / ("run" if notes is None or notes[1] else "whole")
        with RunFolder.claim(place, config, []) as folder:
            if notes is None:
                with pytest.raises(InfeasibleError, match=r"'half_planner:solve' failed for every .*my bug\)$"):
                    plan_into(folder, config, mission, 2, lambda *_: None)
                assert not (place / "plan.npz").exists()
            else:
                fleet = plan_into(folder, config, mission, 2, lambda *_: None)
                assert [fell_back(str(note)) for note in fleet.note] == notes


def test_a_plan_that_leaves_the_region_says_so() -> None:
    """The region is no constraint, but nobody should learn at take-off that it is left."""
    far = plan(replace(SMALL, dmin=2000.0), "greedy")
    assert "positions lie outside the region of 400 x 400 m, by up to" in far.note
    tiny = plan(replace(SMALL, region=(10.0, 10.0)), "greedy")
    assert tiny.note.startswith("4 of 4 positions lie outside the region of 10 x 10 m")
    assert not plan(SMALL, "greedy").note


def test_a_missing_plan_is_not_called_damaged(tmp_path: Path) -> None:
    for path in (tmp_path / "nope.npz", str(tmp_path / "nope.npz")):
        with pytest.raises(BadInputError, match=r"nope.npz: No such file or directory$"):
            load_fleet_plan(path)
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(BadInputError, match="damaged, or not a plan"):
        load_fleet_plan(str(tmp_path / "bad.npz"))


def test_a_planner_of_ones_own_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from skyfed.flight import plan\ndef solve(problem, options):\n    return plan(problem, 'hover', options)\n"
    )
    config = load_config("smoke", [f'flight.method="{tmp_path}/mine.py:solve"'])
    assert planner.load_solver(config.flight.method).__name__ == "solve"


def test_a_planner_that_runs_out_of_memory_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one would be none that was asked for; a worker process starts again with all its memory."""

    def greedy_for_memory(problem: Problem, options: Options) -> Plan:
        raise MemoryError

    monkeypatch.setattr("skyfed.flight.exact.solve", greedy_for_memory)
    with pytest.raises(InfeasibleError, match=r"flight.method = 'exact': out of memory") as caught:
        plan(SMALL, "exact")
    assert isinstance(caught.value.__cause__, MemoryError)  # by which a worker process knows
