"""The links' model against LTE in ns-3: seconds and rates of the same messages at the same places.

Every round ten vehicles at new places send one message each at the same time, then receive one each. ns-3 gets our path
losses, so what differs is what a real radio does with an SNR: code rates in steps, a highest one, headers, control
channels, guard bands, retransmissions, a scheduler. A factor and a highest rate are fitted on the even rounds and
judged on the odd ones.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.bench.row import Progress, Row
from skyfed.errors import BadInputError, SkyfedError
from skyfed.rng import stream
from skyfed.world.links import UNLIMITED, ChannelSettings, RadioSettings, downlink, path_loss_db, rate, snr_db, uplink

Numbers = NDArray[np.float64]
_REGION, _ALTITUDE, _SIZE, _PACKET = 1000.0, 50.0, 100_000, 1400  # metres, metres, bytes, bytes in an IP packet
_BLOCKS = 50  # LTE's resource blocks of 180 kHz in 10 MHz (3GPP TS 36.101, table 5.6-1)
_UNIT = "% (median error)"
_ASK = "import importlib.metadata as installed; installed.version('ns3')"


@dataclass(frozen=True)
class Fit:
    """A channel's efficiency and most bits per second and Hz that come closest to ns-3."""

    efficiency: float
    most_bits: float


@dataclass(frozen=True)
class Way:
    """One direction: SNR in dB, seconds by the model and in ns-3, one row per round, one column per vehicle."""

    name: str
    snr: Numbers
    modelled: Numbers
    measured: Numbers


def bench_links(vehicles: int, rounds: int, python: str, progress: Progress) -> list[Row]:
    """Compare both directions; `python` is a Python that has ns3."""
    require_ns3(python)
    channel, radio = ChannelSettings(efficiency=1.0, most_bits=UNLIMITED), RadioSettings()  # Shannon's rate
    places = stream(0, "bench-links").uniform(-_REGION / 2, _REGION / 2, (rounds, vehicles, 2))
    grounds = np.hypot(places[..., 0], places[..., 1])
    progress(f"ns-3, {rounds} rounds of {vehicles} vehicles")
    heard = run_ns3(python, ns3_job(channel, radio, grounds))
    ways = [_way(name, channel, radio, grounds, heard) for name in ("uplink", "downlink")]
    rows = [_snr_row(channel, ways, heard)]
    for way in ways:
        rows += [_shannon_row(way, heard["version"]), _fitted_row(channel, way)]
    return [*rows, _fitted_row(channel, _together(ways))]


def require_ns3(python: str) -> None:
    """Refuse a Python that has no ns3."""
    try:
        known = subprocess.run([python, "-c", _ASK], capture_output=True, check=False).returncode == 0
    except OSError:
        known = False
    if not known:
        raise BadInputError(
            f"bench links: {python} has no ns3; allowed: pip install 'skyfed[ns3]', or --ns3 with a Python that has it"
        )


def ns3_job(channel: ChannelSettings, radio: RadioSettings, grounds: Numbers) -> dict[str, Any]:
    """Return what the simulation needs.

    ns-3 spreads a vehicle's power over all blocks, whether the vehicle has them or not. It is therefore told the power
    that puts the radio's own into one vehicle's share.
    """
    vehicles = grounds.shape[1]
    return {
        "size": _SIZE,
        "packet": _PACKET,
        "blocks": _BLOCKS,
        "vehicle_power": 10 * np.log10(1000 * radio.power * vehicles),
        "station_power": 10 * np.log10(1000 * channel.station_power),
        "noise_figures": [radio.noise_figure, channel.station_noise_figure],
        "losses": [[path_loss_db(channel, float(ground), _ALTITUDE) for ground in row] for row in grounds],
    }


def run_ns3(python: str, job: dict[str, Any]) -> dict[str, Any]:
    """Run the simulation in its own process: ns-3's bindings bring their own compiler."""
    script = Path(__file__).with_name("ns3_lte.py")
    done = subprocess.run([python, str(script)], input=json.dumps(job), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SkyfedError(f"bench links: ns-3 failed with exit code {done.returncode}: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def fitted(channel: ChannelSettings, snr: Numbers, measured: Numbers) -> Fit:
    """Return the factor and the highest rate with the least mean error of the seconds, by trying a grid of them."""
    carried = 8 * _SIZE * snr.shape[1] / channel.bandwidth / measured  # ns-3's bits per second and Hz of a share
    bits = np.log2(1 + 10 ** (snr / 10))
    fits = [Fit(share / 100, most / 10) for share in range(10, 101) for most in range(20, 121)]
    errors = [np.nanmean(np.abs(carried / (fit.efficiency * np.minimum(bits, fit.most_bits)) - 1)) for fit in fits]
    return fits[int(np.argmin(errors))]


def spread(modelled: Numbers, measured: Numbers) -> dict[str, float]:
    """Return the median and the 90th percentile of the relative error without its sign, and its mean with it, in %."""
    error = 100 * (modelled / measured - 1)
    error = error[np.isfinite(error)]
    return {
        "median, %": float(np.median(np.abs(error))),
        "90th percentile, %": float(np.percentile(np.abs(error), 90)),
        "bias, %": float(np.mean(error)),
    }


def _way(name: str, channel: ChannelSettings, radio: RadioSettings, grounds: Numbers, heard: dict[str, Any]) -> Way:
    share = 1 / grounds.shape[1]
    send, power, noise = uplink, radio.power, channel.station_noise_figure
    if name == "downlink":
        send, power, noise = downlink, share * channel.station_power, radio.noise_figure
    snr = np.vectorize(lambda ground: snr_db(channel, ground, _ALTITUDE, power, share, noise))(grounds)
    seconds = np.vectorize(lambda ground: send(channel, radio, ground, _ALTITUDE, _SIZE, share).seconds)(grounds)
    return Way(name, snr, seconds, np.array(heard[name], dtype=float))  # null becomes nan


def _together(ways: list[Way]) -> Way:
    parts = ([getattr(way, key) for way in ways] for key in ("snr", "modelled", "measured"))
    return Way("both ways", *map(np.concatenate, parts))


def _snr_row(channel: ChannelSettings, ways: list[Way], heard: dict[str, Any]) -> Row:
    worst = {way.name: float(np.max(np.abs(way.snr - np.array(heard[f"{way.name}_sinr"])))) for way in ways}
    guard = 10 * np.log10(channel.bandwidth / (_BLOCKS * 180e3))
    also = {**{f"{name}, dB": value for name, value in worst.items()}, "guard bands of LTE, dB": float(guard)}
    value = max(worst.values())
    return Row("SNR against ns-3's", value, "dB (worst)", "<= 0.5 dB", "-", value <= 0.5, also)


def _shannon_row(way: Way, version: str) -> Row:
    lost = int(np.isnan(way.measured).sum())
    also = {
        "seconds in ns-3, median": float(np.nanmedian(way.measured)),
        "seconds in ns-3, worst": float(np.nanmax(way.measured)),
        "SNR, dB, least": float(way.snr.min()),
        "SNR, dB, most": float(way.snr.max()),
        "messages": way.measured.size,
        "lost in ns-3": lost,
        "ns-3": version,
    }
    value, errors = _errors(way.modelled, way.measured)
    bar = "every message arrives in ns-3"
    return Row(f"{way.name}: seconds by Shannon", value, _UNIT, bar, "-", lost == 0, errors | also)


def _fitted_row(channel: ChannelSettings, way: Way) -> Row:
    """Return the errors on the odd rounds after a fit on the even ones."""
    fit = fitted(channel, way.snr[::2], way.measured[::2])
    close, share = channel.model_copy(update=vars(fit)), 1 / way.snr.shape[1]
    rates = np.vectorize(lambda snr: rate(close, snr, share))(way.snr[1::2])
    value, errors = _errors(8 * _SIZE / rates, way.measured[1::2])
    name = f"{way.name}: seconds with fitted settings, rounds not fitted"
    return Row(name, value, _UNIT, "<= 10 %", "-", value <= 10, errors | vars(fit))


def _errors(modelled: Numbers, measured: Numbers) -> tuple[float, dict[str, float]]:
    """Return the median error of the seconds; beside it the rest of it and that of the rates (bits per second)."""
    seconds = {f"error of the seconds, {key}": value for key, value in spread(modelled, measured).items()}
    rates = {f"error of the rate, {key}": value for key, value in spread(1 / modelled, 1 / measured).items()}
    return seconds.pop("error of the seconds, median, %"), seconds | rates
