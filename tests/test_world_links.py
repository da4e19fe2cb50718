"""The radios of a row: who receives what, in which part of the band, and what is lost; by formulae of the model."""

from math import atan2, degrees, exp, hypot, log2, log10, pi

import numpy as np
import pytest

from skyfed.config import Config
from skyfed.types import Floats
from skyfed.world import Effort
from skyfed.world.radio import LOST, OUT_OF_RANGE, Radios, why_not
from world_cases import WORK, fly_mission, plan_of, settings, world_for

GROUNDS = np.array([10.0, 200.0, 400.0])
FAR = 40_000.0  # metres; out of range with an equal share of three


def radios(*overrides: str, vehicles: int = 3) -> tuple[Radios, Config]:
    config = settings(*overrides, vehicles=vehicles)
    return Radios(config.conditions, vehicles), config


def bits_per_second(config: Config, ground: float, power: float, share: float, noise_figure: float) -> float:
    """The rate by docs/links.md, error-free."""
    channel = config.world.channel
    angle = degrees(atan2(config.sensor.altitude, ground))
    sight = 1 / (1 + channel.los_a * exp(-channel.los_b * (angle - channel.los_a)))
    far = hypot(ground, config.sensor.altitude)
    loss = 20 * log10(4 * pi * channel.carrier * far / 299_792_458)
    loss += sight * channel.loss_los + (1 - sight) * channel.loss_blocked
    noise = channel.noise + 10 * log10(share * channel.bandwidth) + noise_figure
    snr = 10 ** ((10 * log10(1000 * power) - loss - noise) / 10)
    return channel.efficiency * share * channel.bandwidth * min(log2(1 + snr), channel.most_bits)


def test_the_first_model_costs_nothing():
    air, _ = radios()
    assert air.receive(0, GROUNDS, [0, 1, 2]) == {}
    mission = fly_mission(settings())
    assert all(row["received_bytes"] == row["receive_joules"] == row["receive_seconds"] == 0 for row in mission.rows[0])
    assert all(row["received_bytes"] == 9000 and row["receive_joules"] > 0 for row in mission.rows[1])


def test_unicast_shares_band_and_power_among_those_who_take_part():
    air, config = radios()
    for chosen in ([0, 1, 2], [1, 2], [2]):
        air.announce({u: (12_345 * (u + 1), 0) for u in chosen})
        air.tune(chosen, {})
        share = 1 / len(chosen)
        arrived = air.receive(1, GROUNDS, chosen)
        assert list(arrived) == chosen
        for u, transfer in arrived.items():
            rate = bits_per_second(config, GROUNDS[u], share * 1.0, share, 6.0)
            assert transfer.seconds == pytest.approx(8 * 12_345 * (u + 1) / rate, rel=1e-9)
            assert transfer.bytes_sent == 12_345 * (u + 1)
            up = air.send(1, u, GROUNDS[u], 777)
            assert up.rate == pytest.approx(bits_per_second(config, GROUNDS[u], 0.1, share, 6.0), rel=1e-9)
            assert up.seconds == pytest.approx(8 * 777 / up.rate)


def test_power_and_share_that_an_algorithm_chooses():
    air, config = radios()
    air.tune([0, 1, 2], {0: (0.4, 0.5), 1: (0.05, 0.25), 2: (0.1, 0.25)})
    for u, power, share in ((0, 0.4, 0.5), (1, 0.05, 0.25), (2, 0.1, 0.25)):
        up = air.send(0, u, GROUNDS[u], 1000)
        assert up.rate == pytest.approx(bits_per_second(config, GROUNDS[u], power, share, 6.0), rel=1e-9)
        assert air.watts(u) == pytest.approx(power / 0.35 + 0.1)
    air.tune([0, 1], {})  # nothing is kept from the round before
    assert air.watts(0) == pytest.approx(0.1 / 0.35 + 0.1)
    assert air.send(0, 0, 10.0, 9).rate == pytest.approx(bits_per_second(config, 10.0, 0.1, 0.5, 6.0), rel=1e-9)


@pytest.mark.parametrize("use", [{0: (0.1, 0.9)}, {0: (0.0, 0.1)}, {2: (0.1, 0.1)}, {1: (0.1, 0.0)}, {0: (0.1, 1.5)}])
def test_bands_that_are_no_shares_of_one_are_refused(use):
    air, _ = radios()
    with pytest.raises(ValueError, match="allowed"):
        air.tune([0, 1], use)


def test_a_broadcast_goes_at_the_rate_of_the_worst_over_the_whole_band():
    air, config = radios("world.downlink='broadcast'")
    air.announce(dict.fromkeys(range(3), (50_000, 0)))
    air.tune([0, 1, 2], {})
    rate = bits_per_second(config, 400.0, 1.0, 1.0, 6.0)
    arrived = air.receive(1, GROUNDS, [0, 1, 2])
    assert [arrived[u].seconds for u in range(3)] == pytest.approx([8 * 50_000 / rate] * 3, rel=1e-9)
    beyond = air.receive(1, np.array([10.0, 200.0, 4e5]), [0, 1, 2])
    near = bits_per_second(config, 200.0, 1.0, 1.0, 6.0)
    assert beyond[0].seconds == pytest.approx(8 * 50_000 / near, rel=1e-9)
    assert why_not(beyond[2]) == OUT_OF_RANGE


def test_messages_that_differ_are_broadcast_one_after_the_other():
    """Each has the whole band, so none can be on the air together with another."""
    air, config = radios("world.downlink='broadcast'")
    air.announce({0: (50_000, 0), 1: (80_000, 1), 2: (50_000, 0)})
    air.tune([0, 1, 2], {})
    arrived = air.receive(1, GROUNDS, [0, 1, 2])
    first = 8 * 50_000 / bits_per_second(config, 400.0, 1.0, 1.0, 6.0)
    second = 8 * 80_000 / bits_per_second(config, 200.0, 1.0, 1.0, 6.0)
    assert [arrived[u].seconds for u in range(3)] == pytest.approx([first, first + second, first], rel=1e-9)
    unheard = air.receive(1, np.array([4e5, 200.0, 4e5]), [0, 1, 2])  # nobody hears the first: it is not sent
    assert unheard[1].seconds == pytest.approx(second, rel=1e-9)


@pytest.mark.parametrize("downlink", ["unicast", "broadcast"])
def test_losses_follow_from_seed_round_and_vehicle_alone(downlink):
    fading = ("world.links='fading'", f"world.downlink='{downlink}'")

    def all_of(order: list[int], seed: int = 0) -> dict[int, list]:
        air, _ = radios(*fading, f"seed={seed}")
        air.announce(dict.fromkeys(range(3), (200_000, 0)))
        air.tune([0, 1, 2], {})
        down = air.receive(3, GROUNDS, [0, 1, 2])
        return {u: [down[u], air.send(3, u, GROUNDS[u], 300_000)] for u in order}

    assert all_of([0, 1, 2]) == dict(all_of([2, 0, 1]))
    seen = {str(all_of([0, 1, 2], seed)) for seed in range(5)}
    assert len(seen) == 5


def test_what_is_lost_is_paid_for_and_does_not_arrive():
    mission = fly_mission(settings("world.links='fading'", "world.channel.retries=0", "world.channel.margin_db=0"))
    lost = [(t, u) for t, dropped in enumerate(mission.dropped) for u, why in dropped.items() if why == LOST]
    assert len(lost) > 5
    for t, u in lost:
        row = mission.rows[t][u]
        spent = row["send_joules"] + row["receive_joules"]
        assert spent > 0
        if not row["sent_bytes"]:  # the model did not arrive: nothing was trained
            assert row["received_bytes"] > 0
            assert row["train_seconds"] == row["send_seconds"] == 0


def far_away(*overrides: str):
    config = settings("vehicle.battery=1e8", *overrides)
    plan = plan_of(config)
    places = plan.positions.copy()
    places[1] = [FAR, 0.0]
    return fly_mission(config, type(plan)(**{**vars(plan), "positions": places}))


@pytest.mark.parametrize("downlink", ["unicast", "broadcast"])
def test_who_is_out_of_range_gets_and_sends_nothing(downlink):
    mission = far_away(f"world.downlink='{downlink}'")
    first, *later = mission.rows
    assert first[1]["train_seconds"] > 0  # the first model needs no link
    assert mission.dropped[0] == {1: OUT_OF_RANGE}
    assert all(dropped == {1: OUT_OF_RANGE} for dropped in mission.dropped)
    for rows in later:
        assert rows[1]["received_bytes"] == rows[1]["sent_bytes"] == rows[1]["train_joules"] == 0
        assert rows[1]["hover_joules"] > 0
    assert all(row["sent_bytes"] for rows in later for row in rows if row["vehicle"] != 1)


def test_who_was_not_in_the_last_round_pays_for_the_whole_model():
    mission = fly_mission(settings("faults.absent=[[1, 2]]"), model=30_000, difference=9_000)
    received = np.array([[row["received_bytes"] for row in rows] for rows in mission.rows])
    expected = np.full_like(received, 9_000)
    expected[0], expected[2, 1], expected[3, 1] = 0, 0, 30_000
    np.testing.assert_array_equal(received, expected)


def test_what_is_pending_is_forgotten_with_every_announcement():
    air, _ = radios()
    air.announce({0: (10, 0), 1: (20, 1)})
    air.announce({1: (30, 0)})
    assert set(air.receive(1, GROUNDS, [0, 1, 2])) == {1}


def elapsed(config: Config, exchanges: int) -> Floats:
    """Return what a vehicle is told of the seconds of its round before each exchange."""
    world = world_for(config)
    world.view(0)
    world.radios.tune([0, 1, 2], {})
    told, effort = [], None
    for _ in range(exchanges):
        told.append(world.brief(0, 0)["elapsed"])
        effort = WORK.after(effort)
        assert isinstance(effort, Effort)
        world.send(0, 0, effort)
    told.append(world.close(0) and sum(world.rows()[0][f"{name}_seconds"] for name in PHASES))
    return np.array(told)


PHASES = ("fly", "sense", "receive", "train", "send")


def test_a_second_exchange_knows_of_the_seconds_of_the_first():
    told = elapsed(settings(), 3)
    each = np.diff(told)
    assert each == pytest.approx([each[0]] * 3, rel=1e-9)
    assert each[0] > WORK.rounds * WORK.flops / 29.6e9
