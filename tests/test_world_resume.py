"""A world that goes on from any checkpoint is the one that was not interrupted; so is a vehicle's own world."""

import numpy as np
import pytest

from skyfed import World
from skyfed.world import Effort, View
from world_cases import TASK, Mission, fly_mission, plan_of, settings, world_for

HARD = (
    "world.links='fading'", "vehicle.battery=60e3", "vehicle.recharge=40", "world.deadline=45",
    "world.late='drop'", "world.downlink='broadcast'", "world.wind=[3.0, -5.0]", "faults.absent=0.2",
)  # fmt: skip
CAMERA = ("sensing.model='footprint'", "sensing.stay=100")
CASES = {
    "plain": (),
    "batteries that land": ("vehicle.battery=60e3",),
    "recharging": ("vehicle.battery=60e3", "vehicle.recharge=40"),
    "all at once": HARD,
    "camera": CAMERA,
    "camera, one field": (*CAMERA, "field.shared=true", *HARD),
    "law": ("world.time='law'", "field.follows='rounds'"),
    "newest samples": (*HARD, "sensing.keep_last=30"),
}


def work(t: int, u: int) -> Effort:
    return Effort(1.0 + 30 * ((t + u) % 3), 4e9, 40_000 * (1 + u))


def half(view: View) -> list[int]:
    """Return every second vehicle; and nobody in round 4."""
    return [] if view.round == 4 else view.present[view.round % 2 :: 2]


def held(mission: Mission) -> list[list[int]]:
    last = mission.config.rounds - 1
    return [mission.world.observe(u, last).tolist() for u in range(mission.config.vehicles)]


@pytest.mark.parametrize("choose", [lambda view: view.present, half])
@pytest.mark.parametrize("case", CASES)
def test_a_mission_goes_on_from_every_round_as_if_it_had_not_stopped(case, choose):
    config = settings(*CASES[case], rounds=12)
    whole = fly_mission(config, work=work, choose=choose)
    for t, state in enumerate(whole.states[:-1]):
        rest = fly_mission(config, work=work, choose=choose, first=t + 1, state=state)
        assert rest.rows == whole.rows[t + 1 :], t
        assert rest.rounds == whole.rounds[t + 1 :], t
        assert rest.dropped == whole.dropped[t + 1 :], t
        assert held(rest) == held(whole), t
        for name, array in whole.world.flights.flown().items():
            np.testing.assert_array_equal(rest.world.flights.flown()[name], array)
        assert np.array_equal(rest.world.tested(11), whole.world.tested(11))


@pytest.mark.parametrize("case", CASES)
def test_two_missions_are_equal(case):
    config = settings(*CASES[case], rounds=12)
    one, other = fly_mission(config, work=work), fly_mission(config, work=work)
    assert (one.rows, one.rounds, held(one)) == (other.rows, other.rounds, held(other))


class Wandering(World):
    """Plans three rounds ahead, by what is known when it is asked."""

    ahead = 3

    def stretch(self, t):
        """Fly further out the more samples were sensed so far, and the later it is."""
        known = 0 if not t else int(self.samples(t - 1).sum())
        spread = np.linspace(0, 1, self.vehicles)[:, None]
        steps = np.arange(self.ahead)[None] + 1
        east = 150.0 + (known % 97) + 20 * steps + 40 * spread + self.flights.clock / 100
        return np.stack([east, 10 + 0 * east], axis=-1)


class OneByOne(Wandering):
    """Plans one round at a time."""

    ahead = 1


@pytest.mark.parametrize("kind", [Wandering, OneByOne])
def test_stretches_that_were_planned_before_the_stop_are_flown_to_their_end(kind):
    config = settings("vehicle.battery=100e3", "vehicle.recharge=40", rounds=10)

    def new() -> World:
        return kind(plan_of(config), TASK, config.conditions)

    whole = fly_mission(config, work=work, world=new())
    assert len({row["x"] for rows in whole.rows for row in rows}) > 10
    for t, state in enumerate(whole.states[:-1]):
        rest = fly_mission(config, work=work, first=t + 1, state=state, world=new())
        assert rest.rows == whole.rows[t + 1 :], t


def test_a_state_is_a_copy_of_the_past():
    config = settings(*HARD)
    mission = fly_mission(config, work=work)
    world = world_for(config)
    states, then = [], []
    for t in range(config.rounds):
        world.view(t)
        world.close(t)
        states.append(world.state())
        then.append({name: array.copy() for name, array in states[-1].items()})
    for state, copied in zip(states, then, strict=True):
        for name, array in copied.items():
            np.testing.assert_array_equal(state[name], array)
    assert mission.states


def test_the_central_baseline_holds_what_the_plan_brings_if_nobody_lands():
    """Its world closes no round: flights start every round_time seconds, whatever batteries say."""
    for more in ((), CAMERA):
        poor, rich = (world_for(settings(f"vehicle.battery={joules}", *more)) for joules in (60e3, 1e9))
        assert [poor.union(t).tolist() for t in range(8)] == [rich.union(t).tolist() for t in range(8)]
        again = world_for(settings("vehicle.battery=60e3", *more))
        again.restore({name: np.array(array) for name, array in poor.state().items()})
        assert again.union(7).tolist() == poor.union(7).tolist()
        plan = plan_of(settings())
        legs = np.hypot(*(plan.positions[:, 1:] - plan.positions[:, :-1]).transpose(2, 0, 1)) / 10.0
        np.testing.assert_allclose(poor.flights.arrive[:, 1:], 60.0 * np.arange(1, 8) + legs)


# a vehicle's own world


def told(world: World, vehicle: int, arrive: np.ndarray, t: int) -> list[int]:
    """Return what a vehicle holds in round t by its own world, after an order that tells its arrivals."""
    world.flights.tell(vehicle, arrive[vehicle, : t + 1])
    return world.data(vehicle, t)["samples"].tolist()


@pytest.mark.parametrize("case", CASES)
def test_a_vehicles_own_world_holds_what_the_stations_world_says(case):
    config = settings(*CASES[case], rounds=12)
    plan = plan_of(config)
    if config.field.shared:
        everywhere = {name: np.repeat(getattr(plan, name)[:1], 3, 0) for name in ("psi", "true_centres", "true_radii")}
        plan = type(plan)(**{**vars(plan), **everywhere})
    station = fly_mission(config, plan, work=work)
    arrive = station.world.flights.flown()["arrive"]
    for u in range(3):
        for asked in (range(12), (2, 3, 8, 11), (11,)):  # some rounds are missed
            world = world_for(config, plan.only(u))
            for t in asked:
                assert told(world, u, arrive, t) == station.world.observe(u, t).tolist(), (u, t)
