"""One vehicle's round on the mission clock: what adds up, when a round ends, and what its end breaks off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from learning_cases import exchanged, station_of
from run_cases import tiny_config
from skyfed.learning.models import build_model
from skyfed.learning.settings import ModelSettings, TrainSettings
from skyfed.learning.shapes import all_multiplications, conv_inputs
from skyfed.world.clock import PHASES, Effort, Spending, round_end, round_flops
from skyfed.world.settings import WorldSettings

TURN = Spending(
    fly_seconds=30.0, sense_seconds=10.0, receive_seconds=2.0, train_seconds=8.0, send_seconds=5.0, fly_joules=4000.0,
    hover_joules=3000.0, receive_joules=0.5, train_joules=88.0, send_joules=2.0,
)  # fmt: skip


def test_a_round_is_the_sum_of_its_parts():
    assert TURN.seconds == 30 + 10 + 2 + 8 + 5
    assert TURN.joules == 4000 + 3000 + 0.5 + 88 + 2


def test_waiting_and_the_way_home_come_after_the_upload():
    assert Spending(wait_seconds=7.0, home_seconds=9.0).seconds == 0


def test_work_before_in_the_same_round_adds_up():
    first, second = Effort(1.0, 5e8, 100), Effort(2.5, 6e8, 40)
    assert first.after(None) == first
    assert second.after(first) == Effort(3.5, 6e8, 140)


# when a round ends


def test_a_round_ends_with_the_last_upload_or_at_the_deadline():
    slow, quick = Spending(fly_seconds=2.0, train_seconds=10.5), Spending(fly_seconds=4.0)
    assert round_end([slow, quick], None) == 12.5
    assert round_end([slow, quick], 10.0) == 10.0
    assert round_end([quick], 10.0) == 4.0
    assert round_end([], None) == round_end([], 10.0) == 0


def test_a_round_never_ends_before_everybody_is_at_its_place_and_has_looked():
    """As nobody turns round in the air: a deadline of 10 s does not end a flight of 12 s."""
    far = Spending(fly_seconds=12.0, sense_seconds=3.0, train_seconds=4.0)
    assert round_end([far, Spending(fly_seconds=1.0)], 10.0) == 15.0
    assert round_end([far], None) == 19.0


@pytest.mark.parametrize(
    ("more", "closes"),
    [
        ({}, None),
        ({"deadline": 10.0}, None),  # late ones are waited for
        ({"deadline": 10.0, "late": "drop"}, 10.0),
        ({"late": "drop"}, None),
        ({"deadline": 10.0, "late": "drop", "time": "law"}, None),  # links are error-free and nothing is late
    ],
)
def test_the_station_closes_a_round_where_late_uploads_are_dropped(more, closes):
    assert WorldSettings(**more).closes == closes


def test_whoever_is_done_waits_until_the_end():
    assert TURN.until(55.0) == TURN
    done = TURN.until(60.0)
    assert done.wait_seconds == 5
    assert done.joules == TURN.joules


def test_work_that_lasts_longer_than_the_round_is_broken_off_with_its_joules():
    """At 46 s of 55 s: 4 s of 8 s of training are done, half of its joules, and nothing is sent."""
    cut = TURN.until(46.0)
    assert (cut.fly_seconds, cut.sense_seconds, cut.receive_seconds) == (30.0, 10.0, 2.0)
    assert (cut.train_seconds, cut.send_seconds, cut.wait_seconds) == (4.0, 0.0, 0.0)
    assert (cut.receive_joules, cut.train_joules, cut.send_joules) == (0.5, 44.0, 0.0)
    assert cut.fly_joules == 4000


seconds = st.floats(0, 1e4)


@given(st.tuples(*[seconds] * 5), seconds)
def test_a_round_that_was_cut_lasts_until_its_end_and_takes_no_more_than_before(parts, end):
    names = ("fly", *PHASES)
    turn = Spending(**{f"{name}_seconds": each for name, each in zip(names, parts, strict=True)},
                    receive_joules=3.0, train_joules=5.0, send_joules=7.0)  # fmt: skip
    cut = turn.until(end)
    assert cut.seconds + cut.wait_seconds == pytest.approx(max(end, turn.fly_seconds), abs=1e-6)
    assert cut.seconds <= turn.seconds + 1e-9
    for name in ("receive", "train", "send"):
        assert 0 <= getattr(cut, f"{name}_joules") <= getattr(turn, f"{name}_joules")
    assert (cut.wait_seconds > 0) <= (cut.seconds == turn.seconds)  # who waits has finished


# work on board


def test_the_law_of_pruning():
    config = tiny_config("train.kappa=5", "train.rho=1", "prune.delta=0.4")
    work = [exchanged(station_of(config, name), 0, vehicles=[0])[1].uploads[0].work for name in ("afl", "afl-prune")]
    assert work == [5, pytest.approx(1 + 5 * 0.6)]


def test_flops_of_a_local_round():
    """A linear layer of 12 x 5: 60 multiply-adds, forward and twice that backward, two FLOPs each."""
    train = TrainSettings(batch_size=8, batches_per_round=2)
    assert round_flops(train, 60, held=50) == 6 * 60 * 16
    assert round_flops(train, 60, held=3) == 6 * 60 * 6  # no mini-batch has more than the vehicle holds


def test_multiplications_of_resnet18_are_those_with_real_pixels():
    module = build_model(ModelSettings(), 10, (3, 32, 32), 0)
    found = all_multiplications(module, conv_inputs(module, (3, 32, 32)))
    stem = sum(min(32, 2 * o + 4) - max(0, 2 * o - 3) for o in range(16)) ** 2 * 3 * 64
    first = 4 * (8 * 3 - 2) ** 2 * 64**2
    assert stem + first < found < 2.2e7
    assert found == 21_667_584
    small = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(8, 5))
    assert all_multiplications(small, conv_inputs(small, (3, 2, 2))) == 4 * 4 * 3 * 2 + 40
