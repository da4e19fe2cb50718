"""The bench of the modelled vehicles: its mission by hand, what its constants do, a real round in a process."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from skyfed.bench import devices
from skyfed.bench.devices import Mission, bench_devices, sensitivity, sensitivity_table, wind_effect
from skyfed.bench.round_memory import peak_bytes
from skyfed.cli.entry import run_arguments
from skyfed.errors import SkyfedError
from skyfed.learning.models import build_model
from skyfed.learning.settings import ModelSettings, TrainSettings
from skyfed.learning.shapes import all_multiplications, conv_inputs
from skyfed.world import round_flops
from skyfed.world.airframe import AirframeSettings, leg
from skyfed.world.computers import COMPUTERS

ROOT = Path(__file__).parents[1]
GIGABYTE = {"torch": 2e8, "ready": 5e8, "round": 1e9, "flops": 4e10, "held": 900}


def test_the_energy_of_a_mission_by_hand():
    """48 legs of 15 s, climb 33.3 s, descent 66.7 s, 48 trainings of 4.16e10 / 29.6e9 = 1.405 s."""
    frame, training = AirframeSettings(), 48 * 4.16e10 / 29.6e9
    vertical = 100 / 3 * frame.power(0, 3) + 100 / 1.5 * frame.hover
    idle = (48 * 15 + 100 / 3 + 100 / 1.5) * 2.8
    by_hand = 48 * 15 * frame.power(10) + vertical + training * (frame.hover + 11.0) + idle
    assert Mission().joules() == pytest.approx(by_hand)


def test_the_missions_operations_are_those_of_a_round_of_preset_paper():
    model = build_model(ModelSettings(), 10, (3, 32, 32), 0)
    multiplications = all_multiplications(model, conv_inputs(model, (3, 32, 32)))
    assert Mission().flops == pytest.approx(5 * round_flops(TrainSettings(), multiplications, 932), rel=0.01)


def test_each_constant_moves_the_energy_the_way_it_must():
    found = sensitivity()
    rising = {"mass (with induced power and velocity)", "blade power", "induced power", "induced velocity", "drag",
              "computer's watts", "computer's idle watts"}  # fmt: skip
    for name, (less, more) in found.items():
        assert (less < 0 < more) if name in rising else (more < 0 < less), name
    assert max(abs(more) for _, more in found.values()) < 20


def test_a_still_mission_of_training_alone_depends_on_the_computer_and_the_hover():
    still = sensitivity(replace(Mission(), side=0.0, altitude=0.0))
    assert still["speed over ground"] == pytest.approx((0.0, 0.0))
    assert still["computer's speed"] == pytest.approx((25.0, -100 / 6))
    assert still["blade power"][1] == pytest.approx(100 * 0.2 * 79.86 / (168.49 + 11.0))


def test_no_wind_changes_nothing_and_a_strong_one_costs_a_lot():
    assert wind_effect(0.0) == 0
    assert wind_effect(20.0) > wind_effect(10.0) > 0


def test_the_page_shows_what_the_bench_computes():
    page = (ROOT / "docs/vehicles.md").read_text()
    assert sensitivity_table() in page
    assert f"{wind_effect():+.2f} %" in page
    for computer in COMPUTERS.values():
        assert f"`{computer.name}`" in page
        assert computer.source in page


def test_the_pages_example_and_its_words_agree(capsys):
    page = (ROOT / "docs/vehicles.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "docs/vehicles.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out == "1.41 s, 15.5 J of training, 1987 J of flying\n237 J of hovering meanwhile\n"
    assert "takes a Raspberry Pi 5 1.4 s and 15 J. Hovering\nmeanwhile takes 237 J" in page
    tail, head = (leg(AirframeSettings(), 10.0, (0, 0), (1, 0), (wind, 0)).joules for wind in (5, -5))
    assert f"costs {100 * (tail / head - 1):.0f} % more than the same leg against the wind" in page
    plain = Mission()
    for factor in (0.5, 2.0):
        other = replace(plain, computer=replace(plain.computer, flops=factor * plain.computer.flops))
        assert abs(other.joules() / plain.joules() - 1) < 0.1  # as the page says


def test_the_rows_without_a_process(monkeypatch):
    monkeypatch.setattr(devices, "_in_a_process", lambda preset: GIGABYTE)
    rows = bench_devices(lambda _: None)
    assert len(rows) == len(COMPUTERS) + 4
    assert all(row.holds for row in rows)
    memory = rows[3]
    assert memory.value == pytest.approx(1000.0)
    assert memory.also["more than Python with torch, MB"] == pytest.approx(800.0)
    monkeypatch.setattr(devices, "_in_a_process", lambda preset: GIGABYTE | {"round": 1e10})
    assert [row.holds for row in bench_devices(lambda _: None)[3:5]] == [False, False]


def test_a_round_that_fails_says_why():
    with pytest.raises(SkyfedError, match=r"^round of preset no-such-preset: .*no-such-preset"):
        devices._in_a_process("no-such-preset")


def test_a_real_round_in_a_process_of_its_own():
    measured = devices._in_a_process("smoke")
    assert 5e7 < measured["torch"] < measured["ready"] <= measured["round"] < 4e9
    assert measured["flops"] > 0
    assert peak_bytes() > 1e7


def test_the_command_prints_records(monkeypatch, capsys):
    monkeypatch.setattr(devices, "_in_a_process", lambda preset: GIGABYTE)
    assert run_arguments(["bench", "devices", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert {"name", "value", "unit", "bar", "goal", "holds", "also"} == set(records[0])
