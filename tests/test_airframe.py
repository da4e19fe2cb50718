"""Power of the airframe against the paper that it comes from, an independent statement of Eq. 12, and physics."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skyfed.world.airframe import GRAVITY, AirframeSettings, Leg, hovering, landing, leg, leg_joules, take_off

PLAIN = AirframeSettings()
HERE, EAST = (0.0, 0.0), (1000.0, 0.0)
speeds = st.floats(0.0, 60.0)


def equation_12(speed: float) -> float:
    """The paper's Eq. 12 as it is printed, from its Table I."""
    weight, air, disc, solidity, tip, profile, correction, fuselage = 20.0, 1.225, 0.503, 0.05, 120.0, 0.012, 0.1, 0.6
    p_0 = profile / 8 * air * solidity * disc * tip**3
    p_i = (1 + correction) * weight**1.5 / math.sqrt(2 * air * disc)
    v_0 = math.sqrt(weight / (2 * air * disc))
    induced = math.sqrt(math.sqrt(1 + speed**4 / (4 * v_0**4)) - speed**2 / (2 * v_0**2))
    return p_0 * (1 + 3 * speed**2 / tip**2) + p_i * induced + 0.5 * fuselage * air * solidity * disc * speed**3


@pytest.mark.parametrize("speed", [0.0, 1.0, 4.03, 10.0, 18.3, 30.0, 60.0])
def test_power_is_equation_12(speed):
    assert PLAIN.power(speed) == pytest.approx(equation_12(speed), rel=1e-3)


def test_the_constants_follow_from_the_papers_table():
    assert pytest.approx(0.5 * 0.6 * 1.225 * 0.05 * 0.503, rel=1e-12) == PLAIN.drag
    assert PLAIN.mass * GRAVITY == pytest.approx(20.0, rel=1e-3)
    assert PLAIN.induced_velocity == pytest.approx(math.sqrt(20 / (2 * 1.225 * 0.503)), rel=1e-3)


def test_hovering_and_the_best_speeds_are_those_that_the_paper_prints():
    assert PLAIN.hover == pytest.approx(168.49, rel=0.001)
    assert PLAIN.best_endurance_speed == pytest.approx(10.2, rel=0.05)
    assert PLAIN.best_range_speed == pytest.approx(18.3, rel=0.05)


@pytest.mark.parametrize("airframe", [PLAIN, PLAIN.heavier(1.7), AirframeSettings(drag=0.05), AirframeSettings(drag=0)])
def test_no_speed_beats_the_best_ones(airframe):
    grid = np.linspace(0.01, 120, 20_000)
    powers = airframe.powers(grid)
    assert airframe.power(airframe.best_endurance_speed) <= powers.min() + 1e-9
    assert airframe.best_endurance_speed == pytest.approx(grid[powers.argmin()], abs=0.02)
    assert airframe.best_range_speed == pytest.approx(grid[(powers / grid).argmin()], abs=0.02)


def test_without_induced_power_hovering_is_the_longest_flight():
    assert AirframeSettings(induced_power=0).best_endurance_speed == 0


def test_an_airframe_without_any_drag_is_refused():
    with pytest.raises(ValidationError, match="blade_power, drag: allowed: at least one above 0"):
        AirframeSettings(blade_power=0, drag=0)


@given(speeds)
def test_powers_of_many_speeds_are_those_of_each(speed):
    assert PLAIN.powers(np.array([speed]))[0] == pytest.approx(PLAIN.power(speed), rel=1e-12)


@given(speeds)
def test_power_stays_exact_at_high_speed(speed):
    """The printed form loses digits where V is far above v0; this one must stay positive and smooth."""
    fast = speed + 1e4
    induced = PLAIN.power(fast) - AirframeSettings(induced_power=0).power(fast)
    assert induced == pytest.approx(88.63 * 4.03 / fast, rel=1e-1)


def test_climbing_costs_its_potential_energy_and_descending_wins_nothing_back():
    assert PLAIN.power(5.0, 3.0) - PLAIN.power(5.0) == pytest.approx(PLAIN.mass * GRAVITY * 3.0)
    assert PLAIN.power(5.0, -3.0) == PLAIN.power(5.0)
    up, down = take_off(PLAIN, 90.0), landing(PLAIN, 90.0)
    assert up == Leg(30.0, 30.0 * PLAIN.power(0.0, 3.0), 90.0)
    assert up.joules == pytest.approx(30 * PLAIN.hover + PLAIN.mass * GRAVITY * 90)
    assert down == Leg(60.0, 60.0 * PLAIN.hover, 90.0)
    assert take_off(PLAIN, 0.0) == landing(PLAIN, 0.0) == Leg(0.0, 0.0, 0.0)


def test_a_heavier_airframe_has_the_papers_constants_of_that_weight():
    heavy = PLAIN.heavier(2.0)
    assert heavy.mass == 2 * PLAIN.mass
    assert heavy.induced_power == pytest.approx(1.1 * 40**1.5 / math.sqrt(2 * 1.225 * 0.503), rel=1e-3)
    assert heavy.induced_velocity == pytest.approx(math.sqrt(40 / (2 * 1.225 * 0.503)), rel=1e-3)
    assert heavy.hover > PLAIN.hover


def test_a_leg_in_calm_air_by_hand():
    assert leg(PLAIN, 10.0, (100.0, 200.0), (400.0, 600.0)) == Leg(50.0, pytest.approx(50 * PLAIN.power(10.0)), 500.0)
    assert leg(PLAIN, 10.0, EAST, EAST, (5.0, 0.0)) == Leg(0.0, 0.0, 0.0)


def test_wind_changes_the_speed_through_the_air_and_not_the_time():
    with_it, against, across = (leg(PLAIN, 15.0, HERE, EAST, wind) for wind in ((5.0, 0.0), (-5.0, 0.0), (0.0, 5.0)))
    seconds = 1000 / 15
    assert with_it.joules == pytest.approx(seconds * PLAIN.power(10.0))
    assert against.joules == pytest.approx(seconds * PLAIN.power(20.0))
    assert across.joules == pytest.approx(seconds * PLAIN.power(math.hypot(15.0, 5.0)))
    assert with_it.seconds == against.seconds == across.seconds == pytest.approx(seconds)


@given(st.floats(0.1, 12.0), st.floats(0.0, 10.0))
def test_head_wind_costs_more_than_tail_wind_where_flight_is_fast(wind, beyond):
    """Both speeds through the air are then above that of best endurance, where power rises."""
    speed = PLAIN.best_endurance_speed + wind + beyond
    head, tail = (leg(PLAIN, speed, HERE, EAST, (sign * wind, 0.0)).joules for sign in (-1, 1))
    assert head > tail


def test_a_tail_wind_costs_more_than_a_head_wind_where_flight_is_slow():
    """At 10 m/s over ground a tail wind of 5 m/s leaves 5 m/s through the air, where rotors need more power."""
    assert leg(PLAIN, 10.0, HERE, EAST, (5.0, 0.0)).joules > leg(PLAIN, 10.0, HERE, EAST, (-5.0, 0.0)).joules


@given(st.floats(0.5, 20.0), st.floats(0.0, 10.0), st.floats(0.0, 2 * math.pi))
def test_out_and_back_in_wind_costs_more_than_in_calm_air(wind, beyond, angle):
    speed = PLAIN.best_endurance_speed + beyond
    blow = (wind * math.cos(angle), wind * math.sin(angle))
    there_and_back = leg(PLAIN, speed, HERE, EAST, blow).joules + leg(PLAIN, speed, EAST, HERE, blow).joules
    assert there_and_back > 2 * leg(PLAIN, speed, HERE, EAST).joules


def test_many_legs_are_those_of_each():
    random = np.random.default_rng(0)
    starts, stops = random.uniform(-500, 500, (2, 50, 2))
    stops[7] = starts[7]
    for wind in (HERE, (3.0, -4.0)):
        each = [leg(PLAIN, 12.0, tuple(a), tuple(b), wind).joules for a, b in zip(starts, stops, strict=True)]
        assert leg_joules(PLAIN, 12.0, starts, stops, wind) == pytest.approx(each)


def test_hovering_in_wind_is_flight_at_the_winds_speed():
    assert hovering(PLAIN, 60.0, HERE) == pytest.approx(60 * PLAIN.hover)
    assert hovering(PLAIN, 60.0, (3.0, 4.0)) == pytest.approx(60 * PLAIN.power(5.0))
    assert hovering(PLAIN, 60.0, (3.0, 4.0)) < hovering(PLAIN, 60.0, HERE)
    assert take_off(PLAIN, 30.0, (3.0, 4.0)).joules == pytest.approx(10 * PLAIN.power(5.0, 3.0))
