"""Radio links between the vehicles and the station, both ways (modelled).

The mean path loss is that of Al-Hourani, Kandeepan and Lardner (IEEE Wireless Commun. Lett. 3(6), 2014). On top of it
a link is error-free, or it fades by the Rice distribution, loses packets and sends them again: it does so where a
random generator is given. docs/links.md has the formulae and the source of every constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, degrees, exp, hypot, isfinite, log2, log10, pi

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from skyfed.errors import BadInputError
from skyfed.settings import StrictSettings
from skyfed.world.fading import send_blocks

_LIGHT = 299_792_458.0  # metres per second
_LARGEST_SNR = 3000.0  # dB, of which a number can hold the power
UNLIMITED = 1000.0  # bits per second and Hz that no SNR reaches


class RadioSettings(StrictSettings):
    """The radio of a vehicle."""

    power: PositiveFloat = Field(0.1, description="transmit power, W (20 dBm)")
    circuit_power: NonNegativeFloat = Field(0.1, description="power of the radio besides while it sends, W")
    efficiency: float = Field(0.35, gt=0, le=1, description="of the power amplifier")
    receive_power: NonNegativeFloat = Field(
        0.28, description="power of the radio while it receives, W (Microchip ATWILC3000A: 84.1 mA at 3.3 V)"
    )
    noise_figure: float = Field(6.0, description="of the vehicle's receiver, dB")

    @model_validator(mode="after")
    def _finite(self) -> "RadioSettings":
        """The radio must get finite rates from a default channel and draw finite power."""
        if not (isfinite(self.sending_power) and finite(ChannelSettings.model_construct(), self)):
            raise ValueError("power, noise_figure: allowed: values that give a finite power and a finite rate at 10 km")
        return self

    @property
    def sending_power(self) -> float:
        """Watts that a vehicle draws while it sends at its own power."""
        return self.drawn_power(self.power)

    @property
    def receiving_power(self) -> float:
        """Watts that a vehicle draws while it receives."""
        return self.receive_power

    def drawn_power(self, power: float) -> float:
        """Watts that a vehicle draws while it sends at this transmit power."""
        return power / self.efficiency + self.circuit_power


class ChannelSettings(StrictSettings):
    """What the station and the air give to all links."""

    bandwidth: PositiveFloat = Field(10e6, description="Hz in each direction; every vehicle has a share of it")
    station_power: PositiveFloat = Field(1.0, description="transmit power of the station over all of it, W (30 dBm)")
    station_noise_figure: float = Field(6.0, description="of the station's receiver, dB")
    carrier: PositiveFloat = Field(2.4e9, description="carrier frequency, Hz")
    noise: float = Field(-174.0, description="noise density, dBm/Hz (room temperature)")
    los_a: NonNegativeFloat = Field(4.88, description="a of the probability of a line of sight (suburban)")
    los_b: NonNegativeFloat = Field(0.43, description="b of the probability of a line of sight (suburban)")
    loss_los: NonNegativeFloat = Field(0.1, description="loss beyond free space if there is one, dB")
    loss_blocked: NonNegativeFloat = Field(21.0, description="the same if there is none, dB")
    efficiency: float = Field(0.43, gt=0, le=1, description="rate over Shannon's (LTE in ns-3); 1 is Shannon's own")
    most_bits: PositiveFloat = Field(
        8.1, le=UNLIMITED, description="most bits per second and Hz before `efficiency` applies (LTE in ns-3)"
    )
    least_snr_db: float = Field(-10.0, description="mean SNR below which there is no link, dB (3GPP TR 36.942, A.2)")
    rician_k: tuple[float, float] = Field(
        (5.0, 15.0), description="fading: K at elevations of 0 and 90 degrees, dB (Azari et al. 2018)"
    )
    margin_db: NonNegativeFloat = Field(3.0, description="fading: the rate is that of the mean SNR less so many dB")
    coherence: PositiveFloat = Field(
        5.3e-3, description="fading: seconds for which the channel stays as it is (0.423 c / speed / carrier, 10 m/s)"
    )
    packet: PositiveInt = Field(1500, description="fading: bytes per packet (Ethernet)")
    retries: NonNegativeInt = Field(7, le=100, description="fading: how often a lost packet is sent again (802.11)")

    @model_validator(mode="after")
    def _finite(self) -> "ChannelSettings":
        """A default radio far away and near by must have a rate both ways."""
        if not finite(self, RadioSettings.model_construct()):
            raise ValueError("noise, losses: allowed: values that give a finite rate at 10 km, both ways")
        return self


@dataclass(frozen=True)
class Transfer:
    """What became of one message.

    seconds     from its first bit to the end of the last try; 0 out of range
    delivered   whether all of it arrived
    bytes_sent  with all that was sent again; of a broadcast every receiver has the same number, sent once
    rate        bits per second that the sender chose; 0 out of range
    """

    seconds: float
    delivered: bool
    bytes_sent: int
    rate: float


OUT_OF_RANGE = Transfer(0.0, False, 0, 0.0)


def path_loss_db(channel: ChannelSettings, ground: float, altitude: float) -> float:
    """Return the mean path loss over a ground distance and an altitude, metres."""
    angle = degrees(atan2(altitude, ground))
    clear = 1 / (1 + channel.los_a * exp(-channel.los_b * (angle - channel.los_a)))
    far = max(1.0, hypot(ground, altitude))
    free = 20 * log10(4 * pi * channel.carrier * far / _LIGHT)
    return free + (clear * channel.loss_los + (1 - clear) * channel.loss_blocked)


def rician_k(channel: ChannelSettings, ground: float, altitude: float) -> float:
    """Return the Rician K-factor, linear: in dB it grows linearly with the elevation angle."""
    low, high = channel.rician_k
    return float(10 ** ((low + (high - low) * atan2(altitude, ground) / (pi / 2)) / 10))


def snr_db(
    channel: ChannelSettings, ground: float, altitude: float, power: float, share: float, noise_figure: float
) -> float:
    """Return the mean SNR of a sender with all its power, W, in a share of the bandwidth."""
    received = 10 * log10(1000 * power) - path_loss_db(channel, ground, altitude)
    return received - (channel.noise + 10 * log10(share * channel.bandwidth) + noise_figure)


def rate(channel: ChannelSettings, snr: float, share: float) -> float:
    """Return bits per second at an SNR, dB, in a share of the bandwidth."""
    bits = min(log2(1 + 10 ** (snr / 10)), channel.most_bits)
    return channel.efficiency * share * channel.bandwidth * bits


def finite(channel: ChannelSettings, radio: RadioSettings) -> bool:
    """Tell whether there is a finite rate above zero both ways, above the station and 10 km away."""
    try:
        ends = ((radio.power, channel.station_noise_figure), (channel.station_power, radio.noise_figure))
        snrs = [snr_db(channel, ground, 100.0, power, 1.0, noise) for ground in (0.0, 1e4) for power, noise in ends]
        usual = all(isfinite(snr) and abs(snr) < _LARGEST_SNR for snr in snrs)
        factors = [rician_k(channel, ground, 100.0) for ground in (0.0, 1e4)]
        rates = all(0 < rate(channel, snr, 1.0) < float("inf") for snr in snrs)
        return usual and rates and all(map(isfinite, factors))
    except (ArithmeticError, ValueError):
        return False


def outage(channel: ChannelSettings, ground: float, altitude: float, snr: float) -> float:
    """Return the probability that a packet is lost once, for a sender that uses the mean SNR less the margin."""
    from scipy.special import chndtr  # a slow import that few need

    factor = rician_k(channel, ground, altitude)
    needed = _required_snr(channel, snr) / 10 ** (snr / 10)
    return float(chndtr(2 * (factor + 1) * needed, 2, 2 * factor))  # 1 - Q1(sqrt(2K), sqrt(2(K + 1) needed))


def uplink(
    channel: ChannelSettings, radio: RadioSettings, ground: float, altitude: float, size: int, share: float,
    rng: np.random.Generator | None = None, power: float | None = None,
) -> Transfer:  # fmt: skip
    """Send a message of so many bytes to the station; without `power` at the radio's own."""
    _check(share)
    power = radio.power if power is None else power
    snr = snr_db(channel, ground, altitude, power, share, channel.station_noise_figure)
    return _send(channel, [snr], [rician_k(channel, ground, altitude)], size, share, rng)[0]


def downlink(
    channel: ChannelSettings, radio: RadioSettings, ground: float, altitude: float, size: int, share: float,
    rng: np.random.Generator | None = None, power: float | None = None,
) -> Transfer:  # fmt: skip
    """Send a message of so many bytes to one vehicle; without `power` at its share of the station's."""
    _check(share)
    power = share * channel.station_power if power is None else power
    snr = snr_db(channel, ground, altitude, power, share, radio.noise_figure)
    return _send(channel, [snr], [rician_k(channel, ground, altitude)], size, share, rng)[0]


def broadcast(
    channel: ChannelSettings, radio: RadioSettings, grounds: Sequence[float], altitude: float, size: int,
    rng: np.random.Generator | None = None, power: float | None = None,
) -> list[Transfer]:  # fmt: skip
    """Send one message to all vehicles at once, over the whole bandwidth, at the rate of the worst one in range.

    A packet is sent again while some vehicle in range lacks it.
    """
    power = channel.station_power if power is None else power
    snrs = [snr_db(channel, ground, altitude, power, 1.0, radio.noise_figure) for ground in grounds]
    return _send(channel, snrs, [rician_k(channel, ground, altitude) for ground in grounds], size, 1.0, rng)


def _check(share: float) -> None:
    if not 0 < share <= 1:
        raise BadInputError(f"share = {share:g} of the bandwidth; allowed: above 0, at most 1")


def _required_snr(channel: ChannelSettings, snr: float) -> float:
    """Return the SNR, linear, that the chosen rate needs: the mean less the margin, or what `most_bits` needs."""
    backed_off = float(10 ** ((snr - channel.margin_db) / 10))
    return min(backed_off, 2**channel.most_bits - 1)


def _send(
    channel: ChannelSettings, snrs: Sequence[float], factors: Sequence[float], size: int, share: float,
    rng: np.random.Generator | None,
) -> list[Transfer]:  # fmt: skip
    """Send to every receiver in range; `snrs` in dB and `factors` (Rician K) by receiver."""
    near = [index for index, snr in enumerate(snrs) if snr >= channel.least_snr_db]
    transfers = [OUT_OF_RANGE] * len(snrs)
    if not near:
        return transfers
    worst = min(snrs[index] for index in near)
    fading = rng is not None
    chosen = rate(channel, worst - (channel.margin_db if fading else 0.0), share)
    if chosen <= 0:
        return transfers
    sent, idle, arrived = size, 0, np.ones(len(near), dtype=bool)
    if rng is not None:
        required = _required_snr(channel, worst)
        needed = np.array([required / 10 ** (snrs[index] / 10) for index in near])
        block = channel.packet * max(1, int(chosen * channel.coherence / (8 * channel.packet)))
        sent, idle, arrived = send_blocks(size, block, needed, [factors[i] for i in near], channel.retries, rng)
    for index, good in zip(near, arrived, strict=True):
        transfers[index] = Transfer(8 * (sent + idle) / chosen, bool(good), sent, chosen)
    return transfers
