"""The table `cost` of version 0.1: every setting has its place in the tables `world` and `vehicle`."""

import math
from typing import Any

import pytest

import wording
from skyfed.config import Config, load_config
from skyfed.errors import BadInputError
from skyfed.world.links import UNLIMITED, uplink


def read(cost: dict[str, Any], **more: Any) -> Config:
    return load_config({"vehicles": 4, "cost": cost, **more})


def refusal(cost: dict[str, Any], **more: Any) -> str:
    with pytest.raises(BadInputError) as caught:
        read(cost, **more)
    message = str(caught.value)
    assert "\n" not in message
    assert wording.plain(message), message
    return message


def test_the_world_is_that_of_version_0_1():
    """No speed limit, no enforced battery, no dwell, psi by rounds, Eq. 6, Shannon's rate at any SNR."""
    config = read({})
    assert (config.flight.vmax, config.longest_leg) == ("unlimited", float("inf"))
    assert (config.world.time, config.world.battery, config.world.dwell) == ("mission", "ignore", 0.0)
    assert (config.field.follows, config.sensing.model) == ("rounds", "eq6")
    channel = config.world.channel
    assert (channel.efficiency, channel.most_bits, channel.least_snr_db) == (1.0, UNLIMITED, -300.0)


def test_what_a_config_sets_itself_comes_first():
    config = read({"model": "device"}, flight={"vmax": 90.0}, world={"battery": "enforce"}, sensing={"n_max": 7})
    assert config.flight.vmax == 90
    assert config.world.battery == "enforce"
    assert (config.sensing.model, config.sensing.n_max) == ("eq6", 7)


def test_the_clock_and_the_law():
    cost = {"model": "law", "t_train": 2.0, "e_train": 3.0, "deadline": 9.0, "late": "drop"}
    world = read(cost).world
    assert (world.time, world.t_train, world.e_train, world.deadline, world.late) == ("law", 2.0, 3.0, 9.0, "drop")
    assert read({"model": "device"}).world.time == "mission"


def test_the_computer_by_hand():
    """C f^3 watts and f / cycles_per_flop FLOPs per second: the seconds and joules of version 0.1."""
    own = {"frequency": 2e9, "cycles_per_flop": 0.5, "capacitance": 2e-28}
    for given, watts, flops in (({}, 1e-28 * 1.5e9**3, 6e9), (own, 2e-28 * 8e27, 4e9)):
        computer = read({"cpu": given}).vehicle.computer
        assert computer.watts == pytest.approx(watts)
        assert computer.flops == pytest.approx(flops)
        assert computer.idle_watts == 0


def test_the_airframe_and_the_battery():
    flight = {"speed": 12.0, "blade_power": 70.0, "induced_power": 80.0, "tip_speed": 110.0, "induced_velocity": 4.5,
              "drag": 0.01}  # fmt: skip
    vehicle = read({"battery": 1e5, "flight": flight}).vehicle
    assert (vehicle.battery, vehicle.speed) == (1e5, 12.0)
    assert {name: getattr(vehicle.airframe, name) for name in flight if name != "speed"} == {
        name: value for name, value in flight.items() if name != "speed"
    }


def test_the_radio_and_the_air():
    radio = {"power": 0.2, "circuit_power": 0.3, "efficiency": 0.5}
    air = {"carrier": 5e9, "noise": -170.0, "los_a": 5.0, "los_b": 0.5, "loss_los": 1.0, "loss_blocked": 20.0}
    config = read({"radio": {**radio, **air, "noise_figure": 7.0, "bandwidth": 2e6}})
    assert {name: getattr(config.vehicle.radio, name) for name in radio} == radio
    assert {name: getattr(config.world.channel, name) for name in air} == air
    assert config.world.channel.station_noise_figure == 7
    assert config.world.channel.bandwidth == 8e6  # each of four vehicles had its own


def test_the_rate_of_one_vehicle_among_several_is_that_of_version_0_1():
    """500 m away, 100 m up: 11.31 degrees, P(line of sight) = 0.765, a noise floor of -174 + 60 + 6 = -108 dBm."""
    far = math.hypot(500, 100)
    clear = 1 / (1 + 4.88 * math.exp(-0.43 * (math.degrees(math.atan(0.2)) - 4.88)))
    loss = 20 * math.log10(4 * math.pi * far * 2.4e9 / 299_792_458) + clear * 0.1 + (1 - clear) * 21
    config = read({})
    found = uplink(config.world.channel, config.vehicle.radio, 500.0, 100.0, 1_000_000, 1 / 4)
    assert found.rate == pytest.approx(1e6 * math.log2(1 + 10 ** ((20 - loss + 108) / 10)), rel=1e-12)
    assert found.seconds == pytest.approx(8e6 / found.rate)
    assert clear == pytest.approx(0.765, abs=0.001)


@pytest.mark.parametrize(
    ("cost", "key"),
    [
        ({"model": "x"}, "world.time = "),
        ({"model": []}, "world.time = "),
        ({"model": {}}, "world.time = "),
        ({"battery": -1}, "vehicle.battery = "),
        ({"battery": 0}, "vehicle.battery = "),
        ({"deadline": 0}, "world.deadline = "),
        ({"late": "x"}, "world.late = "),
        ({"flight": {"speed": 0}}, "vehicle.speed = "),
        ({"flight": {"tip_speed": "x"}}, "vehicle.airframe.tip_speed = "),
        ({"radio": {"power": 0}}, "vehicle.radio.power = "),
        ({"radio": {"carrier": -1}}, "world.channel.carrier = "),
        ({"radio": {"bandwidth": {}}}, "cost.radio.bandwidth = "),
        ({"radio": {"bandwidth": True}}, "cost.radio.bandwidth = "),
        ({"cpu": "fast"}, "cost.cpu = "),
        ({"radio": 3}, "cost.radio = "),
        ({"flight": []}, "cost.flight = "),
        ({"cpu": {"frequency": "x"}}, "cost.cpu.frequency = "),
        ({"cpu": {"frequency": -1.0}}, "vehicle.computer"),
        ({"cpu": {"cycles_per_flop": 0}}, "cost.cpu: allowed: "),
        ({"cpu": {"frequency": 1e200}}, "cost.cpu: allowed: "),
        ({"cpu": {"frequency": 10**400}}, "cost.cpu: allowed: "),
        ({"radio": {"bandwidth": 10**400}}, "world.channel.bandwidth = "),
        ({"deadlin": 3}, "cost.deadlin is not a setting; allowed in [cost]: "),
        ({"cpu": {"frequencies": 3}}, "cost.cpu.frequencies is not a setting; allowed in [cost.cpu]: "),
        ({"a\nb": 3}, "cost.a b is not a setting; "),
        ({"radio": {"x": 3}}, "cost.radio.x is not a setting; allowed in [cost.radio]: "),
    ],
)
def test_a_wrong_setting_is_refused_by_its_old_or_its_new_name(cost, key):
    assert refusal(cost).startswith(key)


@pytest.mark.parametrize("vehicles", [0, -1, 10**400, 1.5, "x", True, []])
def test_a_number_of_vehicles_that_is_none_is_refused_for_itself(vehicles):
    assert refusal({}, vehicles=vehicles).startswith("vehicles = ")


def test_a_table_that_is_none_is_refused():
    with pytest.raises(BadInputError, match="cost is not a setting"):
        load_config({"cost": 3})
