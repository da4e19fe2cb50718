"""The comparison with ns-3: what it hands over, how it fits, and what it says without ns-3."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skyfed.bench import links as bench
from skyfed.cli import run_arguments
from skyfed.errors import SkyfedError
from skyfed.world.links import UNLIMITED, ChannelSettings, RadioSettings, snr_db

AIR, RADIO = ChannelSettings(efficiency=1.0, most_bits=UNLIMITED), RadioSettings()


def radios_of(efficiency: float, most_bits: float, seconds: Any = None):
    """Return a stand-in for ns-3 whose radios carry a part of Shannon's rate, from nothing but its losses."""

    def answer(python: str, job: dict[str, Any]) -> dict[str, Any]:
        share = 1 / len(job["losses"][0])
        noise = -174 + 10 * np.log10(10e6) + job["noise_figures"][0]
        snr = job["vehicle_power"] - np.array(job["losses"]) - noise
        carried = efficiency * share * 10e6 * np.minimum(np.log2(1 + 10 ** (snr / 10)), most_bits)
        times = (8 * job["size"] / carried).tolist() if seconds is None else seconds
        sinr = {f"{way}_sinr": snr.tolist() for way in ("uplink", "downlink")}
        return {"uplink": times, "downlink": times, "version": "stand-in", **sinr}

    return answer


def rows_with(monkeypatch: pytest.MonkeyPatch, answer: Any) -> dict[str, Any]:
    monkeypatch.setattr(bench, "require_ns3", lambda python: None)
    monkeypatch.setattr(bench, "run_ns3", answer)
    return {row.name: row for row in bench.bench_links(10, 12, "python", lambda text: None)}


def test_the_fit_finds_the_settings_of_the_other_side(monkeypatch):
    rows = rows_with(monkeypatch, radios_of(0.6, 5.0))
    for way in ("uplink", "downlink"):
        row = rows[f"{way}: seconds with fitted settings, rounds not fitted"]
        assert (row.also["efficiency"], row.also["most_bits"]) == (0.6, 5.0)
        assert row.value == pytest.approx(0.0, abs=1e-9)
        assert row.holds


def test_errors_are_those_of_the_model_over_the_measured(monkeypatch):
    """Radios at half of Shannon's rate take twice the modelled seconds: -50 %, and the rate is off by +100 %."""
    row = rows_with(monkeypatch, radios_of(0.5, 99.0))["uplink: seconds by Shannon"]
    assert row.value == pytest.approx(50.0)
    assert row.also["error of the seconds, bias, %"] == pytest.approx(-50.0)
    assert row.also["error of the rate, median, %"] == pytest.approx(100.0)
    assert row.also["lost in ns-3"] == 0


def test_the_snr_row_sees_equal_power_densities(monkeypatch):
    """The stand-in works out its SNR from the power and the losses that ns-3 gets, over the whole bandwidth."""
    row = rows_with(monkeypatch, radios_of(1.0, 99.0))["SNR against ns-3's"]
    assert row.value == pytest.approx(0.0, abs=1e-9)


def test_a_message_that_ns3_lost_is_counted_and_left_out(monkeypatch):
    seconds = [[0.25] * 10 for _ in range(12)]
    seconds[0][3] = None
    row = rows_with(monkeypatch, radios_of(1.0, 99.0, seconds))["uplink: seconds by Shannon"]
    assert row.also["lost in ns-3"] == 1
    assert row.holds is False
    assert np.isfinite(row.value)


def test_the_job_holds_the_path_losses_of_the_model():
    job = bench.ns3_job(AIR, RADIO, np.array([[100.0, 400.0]]))
    assert job["vehicle_power"] == pytest.approx(20.0 + 10 * np.log10(2))
    snr = snr_db(AIR, 400.0, 50.0, 0.1, 0.5, 6.0)
    assert job["vehicle_power"] - job["losses"][0][1] == pytest.approx(snr - 174.0 + 70.0 + 6.0)


def test_without_ns3_one_line_says_how_to_get_it(capsys):
    assert run_arguments(["bench", "links", "--ns3", "no-such-python"]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "pip install 'skyfed[ns3]'" in told[0]


def test_a_simulation_that_fails_fails_the_bench(tmp_path: Path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no compiler >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(SkyfedError, match="exit code 3: no compiler"):
        bench.run_ns3(str(broken), {})


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ns") is None, reason="ns3 is not installed")
def test_the_simulation_runs_where_ns3_is(capsys):
    assert run_arguments(["bench", "links", "--vehicles", "2", "--rounds", "2", "--ns3", sys.executable, "--json"]) == 0
    assert "error of the rate" in capsys.readouterr().out


def test_the_page_has_the_recorded_errors():
    """The short table of docs/links.md, and the settings that it recommends."""
    root = Path(__file__).parents[1]
    page = (root / "docs/links.md").read_text()
    rows = {row["name"]: row for row in json.loads((root / "results/bench-links.json").read_text())}
    starts = ("| uplink, ", "| downlink, ", "| both, ")
    shown = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(starts)]
    fit = "seconds with fitted settings, rounds not fitted"
    ways = ("uplink", "downlink", "both ways")
    names = [f"{way}: seconds by Shannon" for way in ways[:2]] + [f"{way}: {fit}" for way in ways]
    errors = ("seconds, 90th percentile", "seconds, bias", "rate, median", "rate, bias")
    keys = [f"error of the {error}, %" for error in errors]
    assert [cells[1:] for cells in shown] == [
        [f"{number:.3g}" for number in (rows[name]["value"], *(rows[name]["also"][key] for key in keys))]
        for name in names
    ]
    both = rows[f"both ways: {fit}"]["also"]
    assert f"`efficiency = {both['efficiency']:g}` and `most_bits = {both['most_bits']:g}`" in page
