"""Sensing by the camera's footprint: which events a visit photographs, how many are expected, own and shared worlds."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyfed.errors import BadInputError
from skyfed.field import FieldSettings, Mixture, build_field
from skyfed.rng import stream
from skyfed.world import SensingSettings, footprint_side, initial_counts
from skyfed.world.footprint import CameraGrowth, Events, build_cameras, draw_events, expected_count
from skyfed.world.sensing import Growth, split_pools

MIXTURE = Mixture(np.array([[100.0, -50.0], [-300.0, 200.0]]), np.array([30.0, 60.0]), np.array([0.5, 0.5]))
PSI = np.array([[0.2, 0.8, 0.5, 0.1], [0.8, 0.2, 0.5, 0.9]])
ROUND, STAY = 40.0, 60.0
EVERYWHERE = 1e6  # m: a square that holds all places


def pool_of(*counts: int) -> list[np.ndarray]:
    """Return a pool with so many samples of each class, numbered from 0."""
    ends = np.cumsum(counts)
    return [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]


def events_of(count: int, stay: float = STAY, seed: int = 0) -> Events:
    """Return so many events of each of two classes."""
    return draw_events(pool_of(count, count), MIXTURE, PSI, ROUND, stay, stream(seed, "test"))


def one_event(x: float, y: float, begin: float, end: float) -> Events:
    return Events(np.array([7]), np.array([[x, y]]), np.array([begin]), np.array([end]))


# one event, by hand


@pytest.mark.parametrize(
    ("x", "y", "seen"),
    [(10.0, 20.0, True), (15.0, 25.0, True), (5.0, 15.0, True), (15.1, 20.0, False), (10.0, 14.9, False)],
)
def test_the_view_is_a_square_around_the_vehicle_and_its_rim_belongs_to_it(x, y, seen):
    assert one_event(x, y, 0, 100).seen(np.array([10.0, 20.0]), 10.0, 50, 60).tolist() == [seen]


@pytest.mark.parametrize(
    ("arrive", "leave", "seen"),
    [(0, 99, False), (0, 100, True), (120, 130, True), (90, 200, True), (160, 170, True), (161, 170, False)],
)
def test_an_event_is_photographed_if_it_overlaps_the_visit(arrive, leave, seen):
    assert one_event(0, 0, 100, 160).seen(np.zeros(2), 10.0, arrive, leave).tolist() == [seen]


def test_a_visit_cannot_end_before_it_begins():
    with pytest.raises(ValueError, match="from second 5 to second 4"):
        one_event(0, 0, 0, 1).seen(np.zeros(2), 10.0, 5, 4)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 999), st.floats(-400, 200), st.floats(-100, 300), st.floats(0, 500), st.floats(-50, 250),
       st.floats(0, 99))  # fmt: skip
def test_all_events_follow_the_rule_of_one(seed, x, y, side, arrive, dwell):
    events = events_of(20, seed=seed)
    seen = events.seen(np.array([x, y]), side, arrive, arrive + dwell)
    for i, (place, begin, end) in enumerate(zip(events.places, events.begin, events.end, strict=True)):
        near = abs(place[0] - x) <= side / 2 and abs(place[1] - y) <= side / 2
        assert seen[i] == (near and begin <= arrive + dwell and end >= arrive)


# where and when events are


def test_events_are_drawn_from_the_mixture():
    events = events_of(20_000)
    for c, (centre, deviation) in enumerate(zip(MIXTURE.centres, MIXTURE.deviations, strict=True)):
        mine = events.places[events.samples // 20_000 == c]
        assert len(mine) == 20_000
        assert np.abs(mine.mean(axis=0) - centre).max() < 4 * deviation / math.sqrt(len(mine))
        assert np.cov(mine.T) == pytest.approx(deviation**2 * np.eye(2), abs=0.04 * deviation**2)


def test_events_begin_in_proportion_to_psi_and_some_before_second_0():
    events = events_of(20_000)
    spans = np.array([-STAY, 0, 40, 80, 120, 160])
    for c in range(2):
        rates = np.array([PSI[c, 0], *PSI[c]])
        share = rates * np.diff(spans) / (rates * np.diff(spans)).sum()
        begin = events.begin[events.samples // 20_000 == c]
        counts, _ = np.histogram(begin, spans)
        assert counts.sum() == len(begin)  # none outside
        chi2 = ((counts - 20_000 * share) ** 2 / (20_000 * share)).sum()
        assert chi2 < 18.5  # 4 degrees of freedom: beyond it with probability 0.001
        within = (begin[(begin >= 40) & (begin < 80)] - 40) / 40  # uniform within a round
        assert abs(within.mean() - 0.5) < 4 / math.sqrt(12 * len(within))
    assert (events.end - events.begin) == pytest.approx(STAY)


def test_the_world_is_in_its_steady_state_from_second_0():
    """With a constant psi, as many events are under way at every second."""
    psi = np.full((1, 10), 1.0)
    mixture = Mixture(np.zeros((1, 2)), np.ones(1), np.ones(1))
    events = draw_events(pool_of(46_000), mixture, psi, 40.0, 60.0, stream(0, "test"))
    under_way = [events.seen(np.zeros(2), EVERYWHERE, t, t).sum() for t in (0, 30, 200, 400)]
    assert under_way == pytest.approx([6_000] * 4, rel=0.05)  # 60 of 460 s; one standard deviation is 72


def test_nothing_begins_while_psi_is_zero():
    psi = np.array([[0.0, 0.5, 0.0, 0.0, 0.5, 0.0], [0.0] * 6])
    events = draw_events(pool_of(5_000, 100), MIXTURE, psi, 10.0, 5.0, stream(0, "test"))
    assert len(events.samples) == 5_000  # a class without psi never occurs
    rounds = np.floor(events.begin / 10)
    assert np.unique(rounds).tolist() == [1, 4]
    assert (rounds == 1).mean() == pytest.approx(0.5, abs=0.03)
    count = expected_count(MIXTURE.centres, 50.0, 0.0, 60.0, mixture=MIXTURE, psi=psi, sizes=np.array([5_000, 100]),
                           round_seconds=10.0, stay=5.0)  # fmt: skip
    assert (count[:, 1] == 0).all()
    assert count[0, 0] > 0


# what changes the number of pictures


def pictures(altitude: float = 50.0, fov: float = 30.0, dwell: float = 10.0, stay: float = STAY) -> int:
    """Return how many pictures a visit at a centre brings."""
    events = events_of(20_000, stay)
    return int(events.seen(MIXTURE.centres[0], footprint_side(altitude, fov), 60.0, 60.0 + dwell).sum())


def test_flying_higher_opening_the_camera_dwelling_and_staying_longer_each_bring_more_pictures():
    usual = pictures()
    assert usual > 100
    for more in (pictures(altitude=75), pictures(fov=40), pictures(dwell=30), pictures(stay=150)):
        assert more > 1.1 * usual
    for fewer in (pictures(altitude=30), pictures(fov=20), pictures(dwell=0), pictures(stay=10)):
        assert fewer < 0.9 * usual


# how many are expected


def test_the_expected_number_by_hand():
    """A square of two deviations around the centre has (2 Phi(1) - 1)^2 of space; time is 10 + 60 of 160 + 60 s."""
    mixture = Mixture(np.zeros((1, 2)), np.array([30.0]), np.ones(1))
    count = expected_count(np.zeros((1, 2)), 60.0, 100.0, 110.0, mixture=mixture, psi=np.ones((1, 4)),
                           sizes=np.array([500]), round_seconds=40.0, stay=60.0)  # fmt: skip
    assert count.shape == (1, 1)
    assert count[0, 0] == pytest.approx(500 * math.erf(1 / math.sqrt(2)) ** 2 * 70 / 220)


@pytest.mark.parametrize("stay", [5.0, 60.0, 500.0])
def test_the_expected_number_is_the_mean_over_drawn_worlds(stay):
    sizes, rng = np.array([40_000, 60_000]), np.random.default_rng(1)
    positions = np.concatenate([MIXTURE.centres, MIXTURE.centres + 40.0, [[-100.0, 75.0]]])
    arrive = np.array([0.0, 30.0, 75.0, 110.0, 155.0])
    count = expected_count(positions, 80.0, arrive, arrive + 10, mixture=MIXTURE, psi=PSI, sizes=sizes,
                           round_seconds=ROUND, stay=stay)  # fmt: skip
    events = draw_events(pool_of(*sizes), MIXTURE, PSI, ROUND, stay, rng)
    for n, position in enumerate(positions):
        seen = events.samples[events.seen(position, 80.0, arrive[n], arrive[n] + 10)]
        drawn = np.array([(seen < sizes[0]).sum(), (seen >= sizes[0]).sum()])
        assert (np.abs(drawn - count[n]) < 4 * np.sqrt(count[n]) + 1).all()  # a binomial varies less than a Poisson


def test_the_expected_number_of_a_second_visit_leaves_out_what_the_first_brought():
    events = draw_events(pool_of(100_000, 0), MIXTURE, PSI, ROUND, 60.0, stream(0, "test"))
    growth = CameraGrowth(np.empty(0, np.int64), events, stream(0, "order"))
    growth.visit(MIXTURE.centres[0], 50.0, 40.0, 60.0)
    growth.visit(MIXTURE.centres[0], 50.0, 90.0, 100.0)
    given = {"mixture": MIXTURE, "psi": PSI, "sizes": np.array([100_000, 0]), "round_seconds": ROUND, "stay": 60.0}
    second = expected_count(MIXTURE.centres[:1], 50.0, 90.0, 100.0, since=60.0, **given)[0, 0]
    assert abs(growth.size[2] - growth.size[1] - second) < 4 * math.sqrt(second)
    assert second < 0.8 * expected_count(MIXTURE.centres[:1], 50.0, 90.0, 100.0, **given)[0, 0]
    again = expected_count(MIXTURE.centres[:1], 50.0, 90.0, 100.0, since=200.0, **given)
    assert again[0, 0] == 0


# a vehicle's set


def test_a_set_grows_by_what_is_new_in_view():
    places = np.array([[0.0, 0.0], [3.0, 0.0], [500.0, 0.0]])
    events = Events(np.array([10, 11, 12]), places, np.array([0.0, 50.0, 0.0]), np.array([100.0, 150.0, 100.0]))
    growth = CameraGrowth(np.array([1, 2]), events, stream(0, "test"), dry=3)
    growth.visit(np.zeros(2), 10.0, 20.0, 30.0)
    growth.skip()
    growth.visit(np.zeros(2), 10.0, 60.0, 70.0)  # the first is still there, but photographed already
    growth.visit(np.zeros(2), 10.0, 70.0, 80.0)
    assert growth.size.tolist() == [2, 3, 3, 4, 4]
    assert growth.dry.tolist() == [3, 0, 0, 0, 0]
    assert sorted(growth.at(0).tolist()) == [1, 2]
    assert growth.at(2)[2:].tolist() == [10]
    assert growth.at(4)[2:].tolist() == [10, 11]
    assert growth.at(4, keep_last=1).tolist() == [11]


def test_it_reads_as_the_set_that_grows_by_eq_6():
    eq6 = Growth(pool_of(5, 5), stream(0, "test"))
    eq6.extend(np.array([[2, 0], [1, 0]]))
    camera = CameraGrowth(np.array([0, 1, 5]), events_of(10), stream(0, "test"))
    camera.skip()
    for name in ("samples", "size", "dry"):
        mine, other = getattr(camera, name), getattr(eq6, name)
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
    assert camera.at(1, 2).shape == eq6.at(1, 2).shape


def fleet(seed: int = 0, shared: bool = False, stay: float = 200.0, initial: int = 100) -> list[CameraGrowth]:
    """Return three vehicles' sets before their first visit: 200 samples of each of 4 classes per vehicle."""
    field = build_field(FieldSettings(classes=4, shared=shared), 3, 20, seed)
    pools = split_pools(np.repeat(np.arange(4), 600), 4, 1 if shared else 3, seed, "train")
    counts = np.stack([initial_counts(psi, initial) for psi in field.psi])
    return build_cameras(pools, field.mixtures, field.psi, counts, 40.0, stay, seed, "train")


def fly(cameras: list[CameraGrowth], first: int, last: int, side: float = 300.0) -> None:
    """Let all vehicles spend rounds over random places, the same for all; they rest in every fifth."""
    for t in range(first, last):
        position = stream(0, "somewhere", round=t).uniform(-300, 300, 2)
        for camera in cameras:
            if t % 5:
                camera.visit(position, side, 40.0 * t + 30, 40.0 * t + 40)
            else:
                camera.skip()


@pytest.mark.parametrize("shared", [False, True])
def test_no_vehicle_photographs_a_sample_twice_or_an_initial_one(shared):
    cameras = fleet(shared=shared)
    start = [camera.samples for camera in cameras]
    fly(cameras, 1, 20)
    for camera in cameras:
        assert len(np.unique(camera.samples)) == len(camera.samples) > len(start[0])
        new = camera.samples[camera.size[0] :]
        assert not np.isin(new, np.concatenate(start)).any()


def test_own_worlds_have_no_sample_in_common():
    cameras = fleet()
    fly(cameras, 1, 20)
    held = np.concatenate([camera.samples for camera in cameras])
    assert len(np.unique(held)) == len(held)


def test_in_a_shared_world_vehicles_over_one_place_photograph_the_same_events():
    cameras = fleet(shared=True)
    start = np.concatenate([camera.samples for camera in cameras])
    assert len(np.unique(start)) == len(start)  # old pictures are of one vehicle alone
    fly(cameras, 1, 20)
    sets = [camera.samples[camera.size[0] :] for camera in cameras]
    assert len(sets[0]) > 100
    assert sorted(sets[0]) == sorted(sets[1]) == sorted(sets[2])
    assert sets[0].tolist() != sets[1].tolist()  # each in an order of its own


def test_a_vehicle_gets_no_more_initial_samples_than_there_are():
    for shared in (False, True):
        cameras = fleet(shared=shared, initial=2000)
        held = np.array([camera.size[0] for camera in cameras])
        assert (held <= 800).all()
        assert (held > 0).all()
        wanted = [initial_counts(psi, 2000).sum() for psi in build_field(
            FieldSettings(classes=4, shared=shared), 3, 20, 0).psi]  # fmt: skip
        assert [int(camera.dry[0]) for camera in cameras] == (np.array(wanted) - held).tolist()


def test_pools_must_be_one_or_one_per_vehicle():
    with pytest.raises(ValueError, match="2 pools for 3 vehicles"):
        build_cameras([[]] * 2, [MIXTURE] * 3, np.stack([PSI] * 3), np.zeros((3, 2), int), ROUND, STAY, 0, "train")


def test_equal_seeds_give_equal_sets_and_others_do_not():
    first, second, other = fleet(3), fleet(3), fleet(4)
    for cameras in (first, second, other):
        fly(cameras, 1, 20)
    for a, b, c in zip(first, second, other, strict=True):
        assert a.samples.tolist() == b.samples.tolist()
        assert a.samples.tolist() != c.samples.tolist()


@pytest.mark.parametrize("shared", [False, True])
def test_a_restart_goes_on_from_the_recorded_visits(shared):
    whole, stopped = fleet(shared=shared), fleet(shared=shared)
    fly(whole, 1, 20)
    fly(stopped, 1, 8)
    resumed = fleet(shared=shared)
    for camera, before in zip(resumed, stopped, strict=True):
        camera.replay(before.visits)
        camera.replay(before.visits)  # what is there already is not flown again
        assert camera.samples.tolist() == before.samples.tolist()
        assert np.array_equal(camera.visits, before.visits, equal_nan=True)
    fly(resumed, 8, 20)
    for camera, other in zip(resumed, whole, strict=True):
        assert camera.samples.tolist() == other.samples.tolist()
        assert camera.size.tolist() == other.size.tolist()


# a shared field


def test_a_shared_field_is_that_of_vehicle_0():
    own, shared = (build_field(FieldSettings(shared=shared), 3, 20, 0) for shared in (False, True))
    assert own.mixtures[1].centres.tolist() != own.mixtures[0].centres.tolist()
    assert shared.psi.shape == own.psi.shape
    for u in range(3):
        assert shared.mixtures[u].centres.tolist() == own.mixtures[0].centres.tolist()
        assert shared.mixtures[u].deviations.tolist() == own.mixtures[0].deviations.tolist()
        assert shared.psi[u].tolist() == own.psi[0].tolist()


def test_a_shared_field_takes_files_that_say_the_same_for_all(tmp_path: Path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text("class,x,y,deviation\n0,10,20,5\n")
    two.write_text("vehicle,class,x,y,deviation\n0,0,10,20,5\n1,0,11,20,5\n")
    field = build_field(FieldSettings(classes=1, shared=True, file=str(one)), 2, 4, 0)
    assert [mixture.centres.tolist() for mixture in field.mixtures] == [[[10.0, 20.0]]] * 2
    with pytest.raises(BadInputError, match=r"centres differs from vehicle to vehicle.*field\.shared"):
        build_field(FieldSettings(classes=1, shared=True, file=str(two)), 2, 4, 0)


def test_a_shared_field_takes_one_projection_for_all():
    values = {"classes": 2, "bases": ["sin:1"], "shared": True}
    one = build_field(FieldSettings(projection=[[1.0], [2.0]], **values), 2, 4, 0)
    assert one.psi[0].tolist() == one.psi[1].tolist()
    with pytest.raises(BadInputError, match="projection differs"):
        build_field(FieldSettings(projection=[[[1.0], [2.0]], [[1.0], [3.0]]], **values), 2, 4, 0)


def test_the_settings_refuse_what_is_no_model_and_no_time():
    for values in ({"model": "eq7"}, {"stay": 0.0}, {"stay": math.inf}, {"sharp_altitude": -1.0}):
        with pytest.raises(ValueError, match=next(iter(values))):
            SensingSettings(**values)
