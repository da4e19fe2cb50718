"""Constraints of the user's own: planned around, verified, refused where a planner cannot, and never imported early."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from flight_cases import case, valid_plan
from in_process import skyfed
from skyfed.config import config_from_tree, load_config
from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight import Constraint, Options, Problem, Violation, load_fleet_plan, plan, supports, verify
from skyfed.flight.constraints.base import ConstraintSpec, allowed_raster, load_constraints
from skyfed.flight.planner import fell_back
from skyfed.flight.remote import plan_fleet
from skyfed.report.figures import draw_map
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import RunFolder
from skyfed.types import Plan
from skyfed.world.mission import prepare_mission
from test_figures import hand_made_fleet

NO_FLY = Path(__file__).parents[1] / "examples" / "no_fly.py"
WALL = [(-30.0, -160.0), (30.0, -160.0), (30.0, 160.0), (-30.0, 160.0)]
NOTCH = [(-120.0, -40.0), (60.0, -40.0), (60.0, 90.0), (20.0, -10.0), (-120.0, 0.0)]  # not convex


def no_fly(polygon: Sequence[tuple[float, float]]) -> Constraint:
    (constraint,) = load_constraints([ConstraintSpec(use=f"{NO_FLY}:NoFly", polygon=polygon)])
    return constraint


def walled(seed: int, polygon: Sequence[tuple[float, float]] = WALL, **changes: object) -> Problem:
    """Four discs of which some lie on either side of the polygon."""
    problem = case(seed, classes=4, rounds=10, side=400.0, **changes)
    centres = np.array([[-150.0, -60.0], [-120.0, 100.0], [110.0, -80.0], [150.0, 70.0]]) + 10 * seed
    return replace(problem, centres=centres, constraints=(no_fly(polygon),))


def touches(polygon: Sequence[tuple[float, float]], start: np.ndarray, stop: np.ndarray) -> bool:
    """Walk along a leg in small steps and sum the angles that the polygon's corners turn through around each point."""
    count = max(2, math.ceil(math.dist(start, stop) / 0.25))
    for k in range(count + 1):
        x, y = start + (stop - start) * k / count
        turned = 0.0
        for (ax, ay), (bx, by) in zip(polygon, [*polygon[1:], polygon[0]], strict=True):
            turn = math.atan2(by - y, bx - x) - math.atan2(ay - y, ax - x)
            turned += (turn + math.pi) % (2 * math.pi) - math.pi
        if abs(turned) > math.pi:
            return True
    return False


@pytest.mark.parametrize("vmax", [np.inf, 90.0])
@pytest.mark.parametrize("method", ["greedy", "random", "hover", "exact"])
@pytest.mark.parametrize("polygon", [WALL, NOTCH], ids=["wall", "notch"])
def test_no_point_and_no_leg_touches_the_polygon(method: str, vmax: float, polygon: list) -> None:
    problem = walled(0, polygon, vmax=vmax)
    found = plan(problem, method)
    assert verify(problem, found) == []
    assert not fell_back(found.note)
    assert (found.association >= 0).sum() >= 3
    for start, stop in zip(found.positions[:-1], found.positions[1:], strict=True):
        assert not touches(polygon, start, stop)


@pytest.mark.parametrize("vmax", [np.inf, 90.0])
def test_the_bound_without_constraints_still_holds_and_the_note_says_so(vmax: float) -> None:
    problem = walled(1, vmax=vmax)
    found, free = plan(problem), plan(problem.paper_only)
    assert found.objective <= free.bound + 1e-9
    assert found.bound == pytest.approx(free.bound)
    assert "bound proven without NoFly" in found.note
    assert not free.note


def test_exact_crosses_the_wall_where_rounds_allow_and_beats_greedy() -> None:
    found = plan(walled(0))
    assert len({c // 2 for c in found.association if c >= 0}) == 2  # classes 0 and 1 are west of it, 2 and 3 east
    assert found.objective >= plan(walled(0), "greedy").objective - 1e-9


def test_positions_anywhere_keep_out_too() -> None:
    problem = walled(0, NOTCH)
    for method in ("greedy", "exact"):
        assert verify(problem, plan(problem, method, Options(placement="anywhere"))) == []


def test_the_verifier_names_round_and_constraint() -> None:
    problem, found = valid_plan()
    problem = replace(problem, constraints=(no_fly([(40, -5), (60, -5), (60, 5), (40, 5)]),))
    assert [(v.constraint, v.round) for v in verify(problem, found)] == [("NoFly", 2), ("NoFly", 1), ("NoFly", 2)]
    assert str(verify(problem, found)[0]) == "NoFly at round 2: position (50.0, 0.0) is not allowed"
    assert "leg from (0.0, 6.0) to (50.0, 0.0) is not allowed" in str(verify(problem, found)[1])


class Battery(Constraint):
    """Sees the whole plan: metres flown in all, and home again."""

    class Settings(BaseModel):
        metres: float

    def plan_violations(self, problem: Problem, plan: Plan) -> list[Violation]:
        flown = float(np.hypot(*np.diff(plan.positions, axis=0).T).sum() + np.hypot(*plan.positions[-1]))
        over = flown - self.settings.metres
        return [Violation(self.name, problem.rounds - 1, -1, over, f"{over:.0f} m too far")] if over > 0 else []


@supports("plans")
def stay_home(problem: Problem, options: Options) -> Plan:
    return plan(replace(problem, constraints=()), "hover", options)


def test_a_constraint_may_see_the_whole_plan() -> None:
    problem, found = valid_plan()
    (violation,) = verify(replace(problem, constraints=(Battery(metres=200.0),)), found)
    assert (violation.constraint, violation.round) == ("Battery", 4)
    assert violation.amount > 0
    assert verify(replace(problem, constraints=(Battery(metres=300.0),)), found) == []


def test_whole_plans_are_left_to_a_planner_that_declares_them() -> None:
    problem = replace(case(0), constraints=(Battery(metres=1e6),))
    with pytest.raises(
        BadInputError, match=r"'exact' does not support constraint Battery \(it restricts plans\); use a"
    ):
        plan(problem)
    assert not plan(problem, "test_constraints:stay_home").note
    strict = replace(problem, constraints=(Battery(metres=1.0),))
    with pytest.raises(InfeasibleError, match=r"Battery at round 5.*the fallback failed too: .*'greedy' does not supp"):
        plan(strict, "test_constraints:stay_home")


@pytest.mark.parametrize("method", ["sca", "scip"])
def test_what_a_planner_does_not_support_is_refused_by_name(method: str) -> None:
    told = f"flight.method = '{method}' does not support constraint NoFly .it restricts legs and points.; use exact or"
    with pytest.raises(BadInputError, match=told):
        plan(walled(0), method)


@pytest.mark.parametrize("method", ["sca", "scip"])
def test_the_command_line_refuses_it_in_one_line_before_anything_is_written(method: str, tmp_path: Path) -> None:
    constraint = f'flight.constraints=[{{use="{NO_FLY}:NoFly", polygon=[[0,0],[9,0],[9,9]]}}]'
    command = ["plan", "smoke", "--set", constraint, "--set", f"flight.method={method}", "--out", "run"]
    done = skyfed(tmp_path, *command)
    assert (done.returncode, (tmp_path / "run").exists()) == (2, False)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "does not support constraint NoFly" in done.stderr


@pytest.mark.parametrize("method", ["greedy", "exact"])
def test_no_room_at_all_is_infeasible_and_names_the_constraint(method: str) -> None:
    everywhere = [(-900.0, -900.0), (900.0, -900.0), (900.0, 900.0), (-900.0, 900.0)]
    with pytest.raises(InfeasibleError, match="constraint NoFly leaves no point over any disc"):
        plan(walled(0, everywhere), method)


def test_a_closed_disc_is_named_in_the_note() -> None:
    found = plan(walled(0, [(-210.0, -120.0), (-90.0, -120.0), (-90.0, 0.0), (-210.0, 0.0)]), "greedy")
    assert "NoFly closes the disc of class 0" in found.note
    assert not (found.association == 0).any()


class Nowhere(Constraint):
    """Allows every point and no leg."""

    def allows_legs(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        return np.zeros(len(start), bool)


def test_without_any_leg_no_plan_exists_and_the_error_names_the_constraint() -> None:
    for method in ("greedy", "exact"):
        with pytest.raises(InfeasibleError, match="constraints: Nowhere"):
            plan(replace(case(0), constraints=(Nowhere(),)), method)


SOURCE = """
import numpy as np
from skyfed.flight import Constraint
from pydantic import BaseModel
NUMBER = 3
class Empty(Constraint):
    pass
class Raises(Constraint):
    def allows_points(self, points):
        raise ValueError("my bug\\nin two lines")
class Shapeless(Constraint):
    def allows_points(self, points):
        return np.ones((len(points), 2), bool)
class Changes(Constraint):
    def allows_points(self, points):
        points += 1
        return np.ones(len(points), bool)
class Halves(Constraint):
    class Settings(BaseModel):
        east: float = 0.0
    def allows_points(self, points):
        return points[:, 0] > self.settings.east
"""


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("Gone", {}, "no .Gone. there; it defines Empty, Raises"),
        ("NUMBER", {}, "is a int; allowed: a subclass of skyfed.flight.Constraint"),
        ("Empty", {}, "restricts nothing; define allows_points"),
        ("Raises", {"x": 1}, "x is not a setting; allowed: none"),
        ("Halves", {"west": 1}, "west is not a setting; allowed: east"),
        ("Halves", {"east": "far"}, "east: must be a number"),
    ],
)
def test_what_cannot_be_loaded_says_so_in_one_line(tmp_path: Path, name: str, settings: dict, told: str) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    with pytest.raises(BadInputError, match=told) as raised:
        load_constraints([ConstraintSpec(use=f"{tmp_path / 'mine.py'}:{name}", **settings)])
    assert str(raised.value).startswith("flight.constraints = ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("use", ["nowhere.at.all:Thing", "/nowhere/file.py:Thing"])
def test_what_is_not_there_says_so(use: str) -> None:
    with pytest.raises(BadInputError, match=r"flight\.constraints = '.*': (ModuleNotFound|FileNotFound)Error"):
        load_constraints([ConstraintSpec(use=use)])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Raises", "allows_points: ValueError: my bug in two lines"),
        ("Shapeless", r"allowed: bool of shape"),
        ("Changes", "read-only"),
    ],
)
def test_one_that_fails_when_asked_is_never_replaced_by_greedy(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    constraints = load_constraints([ConstraintSpec(use=f"{tmp_path / 'mine.py'}:{name}")])
    for method in ("exact", "greedy"):
        with pytest.raises(BadInputError, match=f"^constraint {name}: .*{told}"):
            plan(replace(case(0), constraints=constraints), method)


def test_reading_a_config_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    (tmp_path / "mine.toml").write_text('[flight]\nconstraints = ["trap.py:Trap", {use = "no.such:Thing", x = [1]}]\n')
    config = load_config(str(tmp_path / "mine.toml"))
    assert [spec.use for spec in config.flight.constraints] == [f"{tmp_path / 'trap.py'}:Trap", "no.such:Thing"]
    assert config.flight.constraints[1].settings == {"x": [1]}
    (tmp_path / "again.toml").write_text(config.to_toml())
    assert load_config(str(tmp_path / "again.toml")) == config


def test_a_path_on_the_command_line_is_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("smoke", ['flight.constraints=["here/mine.py:Thing"]'])
    assert config.flight.constraints[0].use == f"{tmp_path.resolve() / 'here/mine.py'}:Thing"


@pytest.mark.parametrize("use", ["", "mine", "mine.py", "a:b:c", "../mine:Thing", 3, ["a:b"]])
def test_what_names_no_class_is_refused_when_the_config_is_read(use: object) -> None:
    with pytest.raises(BadInputError, match=r"^flight\.constraints = "):
        config_from_tree({"flight": {"constraints": [{"use": use}]}})


def test_workers_import_constraints_themselves_and_change_no_bit(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    constraints = load_constraints([ConstraintSpec(use=f"{tmp_path / 'mine.py'}:Halves", east=-20.0)])
    problems = [replace(case(seed), constraints=constraints) for seed in range(3)]
    options = [Options(vehicle=u) for u in range(3)]
    alone, together = (dict(plan_fleet(problems, "greedy", options, workers)) for workers in (1, 2))
    for u in range(3):
        np.testing.assert_array_equal(alone[u].positions, together[u].positions)
        assert (alone[u].positions[:, 0] > -20).all()


def test_a_saved_plan_is_verified_again_under_the_constraints(tmp_path: Path) -> None:
    """A constraint whose file was changed after planning refuses the plan it would no longer allow."""
    (tmp_path / "mine.py").write_text(SOURCE)
    overrides = [
        f'flight.constraints=["{tmp_path / "mine.py"}:Halves"]',
        "vehicles=1",
        "rounds=6",
        "flight.method=greedy",
    ]
    config = load_config("smoke", overrides)

    def planned() -> None:
        mission = prepare_mission(config.field, config.flight, config.sensing, 1, 6, config.seed)
        with RunFolder.claim(tmp_path / "run", config, []) as folder:
            plan_into(folder, config, mission, 1, lambda *_: None)

    planned()
    fleet = load_fleet_plan(str(tmp_path / "run" / "plan.npz"))
    assert (fleet.positions[..., 0] > 0).all()
    assert [json.loads(text)["use"] for text in fleet.constraints] == [config.flight.constraints[0].use]
    assert len(fleet.only(0).constraints) == 0
    planned()
    (tmp_path / "mine.py").write_text(SOURCE.replace("points[:, 0] >", "-points[:, 0] >"))
    with pytest.raises(BadInputError, match=r"the plan of vehicle 0 does not verify: Halves at round 0"):
        planned()


def test_the_plan_keeps_which_points_are_allowed_for_maps(tmp_path):
    class West(Constraint):
        def allows_points(self, points):
            return points[:, 0] < 0

    class Legs(Constraint):
        def allows_legs(self, start, stop):
            return np.ones(len(start), bool)

    raster = allowed_raster([West(), Legs()], np.array([1000.0, 500.0]))
    assert raster.all(axis=0).sum() == raster.any(axis=0).sum() == len(raster) // 2
    assert raster[:, 0].all()
    assert allowed_raster([Legs()], np.array([1000.0, 500.0])).shape == (0, 0)  # legs cannot be shown as points
    fleet = replace(hand_made_fleet(2, 3, 5), allowed=raster)
    path = tmp_path / "plan.npz"
    path.write_bytes(fleet.to_bytes())
    assert np.array_equal(load_fleet_plan(path).allowed, raster)
    assert not load_fleet_plan(path).only(0).allowed.size  # a vehicle does not plan
    labels = [text.get_text() for text in draw_map(fleet, 50.0).legends[0].get_texts()]
    assert "Not allowed" in labels
