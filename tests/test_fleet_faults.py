"""Faults in a fleet's run, with real processes: every round closes, and the bits are those of who was there.

Only who sends twice is played by a thread of the test, which speaks to the real station.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("flwr")

from fleet_cases import SMALL, Rogue, Yard, children, family, honest, runs, says, sets, start, until, weights
from skyfed.cli import run_arguments
from skyfed.drivers.flower.patch_backoff import patch_backoff
from skyfed.rng import stream
from skyfed.runs.tables import Table
from waiting import LONG

pytestmark = pytest.mark.fleet
patch_backoff()
ONE = ['algorithms=["2ceoafl"]', "rounds=6", "fleet.deadline=1000", "fleet.grace=1000"]


@pytest.fixture(scope="module")
def pace(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds that a small run takes from its start to its end here; a round of a fleet needs far less."""
    begin = time.monotonic()
    words = ["run", "smoke", *sets(*SMALL, 'algorithms=["2ceoafl"]', "vehicles=3", "workers=1"), "--plain"]
    out = tmp_path_factory.mktemp("pace") / "run"
    subprocess.run([sys.executable, "-m", "skyfed", *words, "--out", str(out)], check=True, capture_output=True)
    return time.monotonic() - begin


def test_a_vehicle_killed_in_the_middle_of_a_round_comes_back(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        yard.station()
        yard.vehicle(0)
        vehicle_process = yard.vehicle(1)
        yard.wait("round 1: 2 in")
        vehicle_process.send_signal(signal.SIGSTOP)  # its SuperNode goes on and takes the next message
        assert 2 <= standing(yard) < 6  # a round is open, and waits for it
        vehicle_process.kill()
        vehicle_process.wait()
        yard.vehicle(1)
        yard.end()
        assert (1, 5) not in yard.same_as_absent(tmp_path)


def standing(yard: Yard) -> int:
    """Wait until no round is closed for a while; returns how many are."""
    closed = -1
    while closed != yard.closed():
        closed = yard.closed()
        time.sleep(3)
    return closed


def test_a_supernode_that_is_killed_is_started_again(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        yard.station()
        yard.vehicle(0)
        vehicle_process = yard.vehicle(1)
        yard.wait("round 1: 2 in")
        (node,) = children(vehicle_process, "skyfed.drivers.flower.node")
        os.kill(node, signal.SIGKILL)
        yard.end()
        assert says(tmp_path / "yard" / "vehicle-1.out", "the SuperNode ended (exit code -9); starting it again")
        assert (1, 5) not in yard.same_as_absent(tmp_path)


def test_a_superlink_that_is_killed_is_started_again_and_the_run_goes_on(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        station = yard.station()
        yard.vehicle(0)
        yard.vehicle(1)
        yard.wait("round 1: 2 in")
        (link,) = children(station, "skyfed.drivers.flower.link")
        os.kill(link, signal.SIGKILL)
        yard.end()
        assert says(yard.log, "starting it again")
        assert went_on(yard)
        assert {(0, 5), (1, 5)}.isdisjoint(yard.same_as_absent(tmp_path))


def test_a_key_that_was_removed_stays_out_when_the_superlink_dies(tmp_path):
    with Yard(tmp_path / "yard", 3, *ONE) as yard:
        station = yard.station()
        for u in range(3):
            yard.vehicle(u)
        yard.wait("round 1: 3 in")
        assert run_arguments(["fleet", "revoke", str(yard.run), "2"]) == 0
        (link,) = children(station, "skyfed.drivers.flower.link")
        os.kill(link, signal.SIGKILL)
        yard.end()
        assert says(yard.log, "starting it again")
        missed = yard.same_as_absent(tmp_path)
        assert (2, 5) in missed
        assert {(0, 5), (1, 5)}.isdisjoint(missed)


def test_a_station_that_is_killed_goes_on_at_the_last_round(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        station = yard.station()
        yard.vehicle(0)
        yard.vehicle(1)
        yard.wait("round 1: 2 in")
        station.kill()
        station.wait()
        yard.station()
        yard.end()
        assert went_on(yard)
        assert yard.same_as_absent(tmp_path) == []


def went_on(yard: Yard) -> bool:
    """Tell whether the run was begun twice, the second time not from the start."""
    begun = [line for line in yard.log.read_text(errors="replace").splitlines() if "2ceoafl begins" in line]
    return len(begun) == 2 and begun[0].endswith("round 0") and not begun[1].endswith("round 0")


def test_thirty_rounds_with_a_third_dropping_out_at_random(tmp_path, pace):
    settings = ['algorithms=["2ceoafl"]', "rounds=30", "eval_every=30", "fleet.tries=1", "fleet.patience=1000"]
    with Yard(tmp_path / "yard", 3, *settings, f"fleet.deadline={max(6, pace / 3):.1f}") as yard:
        yard.station()
        vehicle_processes = [yard.vehicle(u) for u in range(3)]
        yard.wait("round 0: ")
        coins, done = stream(5, "drop", 0, 0), 0
        while yard.processes["station"].poll() is None:
            if yard.closed() > done:  # a new round: who is asleep in it cannot answer
                done = yard.closed()
                asleep = [bool(coins.random() < 0.3) for _ in vehicle_processes]
                asleep[done % 3] &= not all(asleep)  # somebody is awake
                for vehicle_process, sleeps in zip(vehicle_processes, asleep, strict=True):
                    vehicle_process.send_signal(signal.SIGSTOP if sleeps else signal.SIGCONT)
            time.sleep(0.05)
        yard.end()
        missed = yard.same_as_absent(tmp_path)
        assert 10 < len(missed) < 60
        assert len({u for u, _ in missed}) == 3


def test_a_late_vehicle_misses_the_round_and_is_in_again_later(tmp_path, pace):
    deadline = f"fleet.deadline={max(15, 4 * pace):.1f}"  # the first round waits for processes that start
    with Yard(tmp_path / "yard", 2, 'algorithms=["2ceoafl"]', "rounds=6", "fleet.tries=1", deadline) as yard:
        yard.station()
        yard.vehicle(0)
        vehicle_process = yard.vehicle(1)
        yard.wait("round 0: 2 in")
        vehicle_process.send_signal(signal.SIGSTOP)
        yard.wait("vehicle 1 is left out")
        vehicle_process.send_signal(signal.SIGCONT)  # and answers what nobody waits for any more
        yard.end()
        missed = yard.same_as_absent(tmp_path)
        assert {u for u, _ in missed} == {1}
        assert (1, 5) not in missed


def test_who_sends_everything_twice_counts_once(tmp_path):
    with Yard(tmp_path / "yard", 2, 'algorithms=["2ceoafl"]', "rounds=4", "fleet.deadline=1000") as yard:
        zero, one = (yard.place / f"vehicle-{u}" for u in range(2))
        yard.station()
        yard.wait("the station listens")
        with Rogue(zero, honest(zero)), Rogue(one, honest(one), twice=True) as rogue:
            yard.end()
            until(lambda: rogue.again >= 4)  # the last one knocks in vain for a while if the station is through
        assert rogue.again == 4
        assert yard.same_as_absent(tmp_path) == []


@pytest.mark.parametrize("how", ["garbage", "nan", "round", "vehicle"])
def test_spoilt_bytes_are_dropped_with_id_and_reason(tmp_path, how):
    spoil = f'faults.spoil=[[1, 1, "{how}"]]'
    with Yard(tmp_path / "yard", 2, 'algorithms=["2ceoafl"]', "rounds=3", "fleet.deadline=1000", spoil) as yard:
        yard.station()
        yard.vehicle(0)
        yard.vehicle(1)
        yard.end()
        assert yard.same_as_absent(tmp_path) == [(1, 1)]
        assert says(yard.log, "round 1: vehicle 1 is left out")
        assert np.isfinite(weights(yard.run, "2ceoafl")).all()


def test_a_rehearsal_that_is_killed_leaves_nothing_running(tmp_path):
    words = ["smoke", "--vehicles", "2", *sets(*SMALL, "rounds=50"), "--out", str(tmp_path / "run"), "--plain"]
    process = start("try", *words, log=tmp_path / "out")
    until(lambda: says(tmp_path / "run" / "station.log", "round 0: 2 in"))
    ours = family(process.pid)
    assert len(ours) >= 5  # a SuperLink, and two vehicles with a SuperNode each
    process.kill()
    process.wait()
    until(lambda: not any(map(runs, ours)))


def test_a_rehearsal_whose_vehicle_ends_says_so(tmp_path):
    words = ["smoke", "--vehicles", "2", *sets(*SMALL, "rounds=50"), "--out", str(tmp_path / "run"), "--plain"]
    process = start("try", *words, log=tmp_path / "out")
    until(lambda: len(children(process, "vehicle-")) == 2)
    os.kill(children(process, "vehicle-")[0], signal.SIGKILL)
    assert process.wait(LONG) == 1
    assert says(tmp_path / "out", "vehicle 0 ended (exit code -9)")


def test_full_resnet_uploads_go_through_unchanged(tmp_path):
    settings = [
        'algorithms=["afl"]', "rounds=2", "eval_every=2", "flight.method=greedy", "data.name=synthetic", "vehicles=2",
        "sensing.n_max=10", "sensing.initial=64", "train.kappa=1", "fleet.poll=0.2", "workers=1",
    ]  # fmt: skip
    process = start("try", "paper", *sets(*settings), "--out", str(tmp_path / "run"), "--plain", log=tmp_path / "out")
    assert process.wait(LONG) == 0, (tmp_path / "out").read_text()
    assert run_arguments(["run", "paper", *sets(*settings), "--out", str(tmp_path / "here"), "--plain"]) == 0
    assert np.array_equal(weights(tmp_path / "run", "afl"), weights(tmp_path / "here", "afl"))
    assert min(row["wire_bytes"] for row in Table(tmp_path / "run" / "afl", "uplink").rows()) > 10e6
