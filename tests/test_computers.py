"""The table of computers against the measurements kept beside it; a user's own; fleets that mix them."""

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from skyfed.settings import first_fault
from skyfed.world.computers import (
    COMPUTERS,
    MEASURED,
    Computer,
    ComputerSettings,
    computer_of,
    fleet_computers,
    training_cost,
)

OWN = ComputerSettings(name="mine", watts=20.0, idle_watts=4.0, flops=1e11, memory=4 * 10**9)


@pytest.mark.parametrize("name", COMPUTERS)
def test_watts_are_within_30_percent_of_every_cited_measurement(name):
    assert MEASURED[name], "no measurement to compare with"
    for measured in MEASURED[name]:
        assert COMPUTERS[name].watts == pytest.approx(measured.watts, rel=0.3), measured.doing


@pytest.mark.parametrize("computer", COMPUTERS.values(), ids=COMPUTERS)
def test_a_computer_is_plausible_and_says_where_its_numbers_come_from(computer):
    assert 0 < computer.idle_watts < computer.watts < 30
    assert 2**32 < computer.memory <= 8 * 2**30
    assert len(computer.source) > 100


def test_all_three_are_there_and_each_has_measurements():
    assert list(COMPUTERS) == ["raspberry-pi-5", "jetson-orin-nano", "phone"]
    assert list(MEASURED) == list(COMPUTERS)
    assert [computer.name for computer in COMPUTERS.values()] == list(COMPUTERS)


def test_the_speed_of_a_pi_is_that_of_the_cited_training():
    """20 mini-batches of 16 pictures, 1.80e9 multiply-adds each, forward and twice that backward, in 116.85 s."""
    assert COMPUTERS["raspberry-pi-5"].flops == pytest.approx(20 * 16 * 1.80e9 * 2 * 3 / 116.85, rel=0.01)


def test_the_speed_of_a_jetson_is_a_share_of_its_matrix_product():
    share = COMPUTERS["raspberry-pi-5"].flops / (2 * 37.888e9)
    assert COMPUTERS["jetson-orin-nano"].flops == pytest.approx(1.31e12 * share, rel=0.02)


def test_training_takes_operations_over_speed_and_draws_watts():
    seconds, joules = training_cost(COMPUTERS["raspberry-pi-5"], 59.2e9)
    assert seconds == pytest.approx(2.0)
    assert joules == pytest.approx(22.0)
    assert training_cost(computer_of(OWN), 0.0) == (0.0, 0.0)


def test_a_computer_by_name_or_of_ones_own():
    assert computer_of("phone") is COMPUTERS["phone"]
    assert computer_of(OWN) == Computer("mine", "mine", 20.0, 4.0, 1e11, 4 * 10**9, "your own settings")
    with pytest.raises(
        ValueError, match=r"^computer 'abacus': allowed: raspberry-pi-5, jetson-orin-nano, phone, or a "
    ):
        computer_of("abacus")


def test_one_for_all_or_one_per_vehicle():
    assert fleet_computers("phone", 3) == (COMPUTERS["phone"],) * 3
    assert fleet_computers(OWN, 2) == (computer_of(OWN),) * 2
    mixed = fleet_computers(["phone", OWN, "raspberry-pi-5"], 3)
    assert [computer.name for computer in mixed] == ["phone", "mine", "raspberry-pi-5"]
    with pytest.raises(ValueError, match=r"^computer: 2 in the list; allowed: one for all, or one for each of 3$"):
        fleet_computers(["phone", "phone"], 3)


def test_a_board_that_draws_more_when_idle_is_refused():
    with pytest.raises(ValidationError, match="idle_watts = 5: allowed: at most watts = 4"):
        ComputerSettings(name="odd", watts=4.0, idle_watts=5.0, flops=1e9, memory=1)


def test_a_wrong_name_in_a_table_of_settings_is_one_line():
    class Fleet(BaseModel):
        computer: str

        @field_validator("computer")
        @classmethod
        def _known(cls, value: str) -> str:
            computer_of(value)
            return value

    with pytest.raises(ValidationError) as refused:
        Fleet(computer="abacus")
    place, reason = first_fault(refused.value)
    assert place == "computer"
    assert reason.startswith("computer 'abacus': allowed: ")
    assert "\n" not in reason
