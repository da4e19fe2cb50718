"""Radio links by equation and by property: rates both ways, fading, lost packets, range."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import binomtest, kstest, rice

from skyfed.errors import BadInputError
from skyfed.world.fading import rician_gains, send_blocks
from skyfed.world.links import (
    OUT_OF_RANGE,
    UNLIMITED,
    ChannelSettings,
    RadioSettings,
    broadcast,
    downlink,
    outage,
    path_loss_db,
    rate,
    rician_k,
    snr_db,
    uplink,
)

SHANNON = {"efficiency": 1.0, "most_bits": UNLIMITED}
AIR, RADIO = ChannelSettings(**SHANNON), RadioSettings()
METRES = st.floats(0.0, 5000.0)
HEIGHT = st.floats(10.0, 500.0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def watts(dbm: float) -> float:
    return 10 ** (dbm / 10) / 1000


def rate_by_hand(ground: float, height: float, hertz: float, power: float, noise_figure: float) -> float:
    """Al-Hourani's mean loss and Shannon's rate in watts and ratios, where the module works in dB."""
    away = math.sqrt(ground**2 + height**2)
    elevation = 90.0 if ground == 0 else math.atan(height / ground) * 180 / math.pi
    sight = 1 / (1 + 4.88 * math.exp(-0.43 * (elevation - 4.88)))
    free = (299_792_458.0 / (4 * math.pi * 2.4e9 * away)) ** 2
    gain = free * 10 ** (-(0.1 * sight + 21.0 * (1 - sight)) / 10)
    noise = watts(-174.0) * hertz * 10 ** (noise_figure / 10)
    return hertz * math.log2(1 + power * gain / noise)


# mean rates


@given(METRES, HEIGHT, st.floats(0.01, 1.0), st.floats(1e-3, 10.0))
def test_an_error_free_uplink_takes_its_bits_over_shannons_rate(ground, height, share, power):
    sent = uplink(ChannelSettings(least_snr_db=-300.0, **SHANNON), RADIO, ground, height, 100_000, share, power=power)
    by_hand = rate_by_hand(ground, height, share * 10e6, power, 6.0)
    assert sent.rate == pytest.approx(by_hand, rel=1e-9)
    assert sent.seconds == pytest.approx(800_000 / by_hand, rel=1e-9)
    assert sent.delivered
    assert sent.bytes_sent == 100_000


def test_the_rate_of_one_megahertz_is_the_one_of_the_cost_model():
    """Numbers that the radio of cost.py gave for 1 MHz and 0.1 W, at ground distances of 100, 500 and 5000 m."""
    rates = [uplink(AIR, RADIO, ground, 100.0, 1, 0.1).rate for ground in (100.0, 500.0, 5000.0)]
    assert rates == pytest.approx([14894805.140158648, 9563956.71203267, 309731.10507823137], rel=1e-12)


@given(METRES, HEIGHT, st.floats(0.01, 1.0))
def test_a_downlink_has_its_share_of_the_stations_power(ground, height, share):
    got = downlink(ChannelSettings(least_snr_db=-300.0, **SHANNON), RADIO, ground, height, 1000, share)
    assert got.rate == pytest.approx(rate_by_hand(ground, height, share * 10e6, share * 1.0, 6.0), rel=1e-9)


def test_each_direction_has_its_own_receiver():
    deaf = RadioSettings(noise_figure=16.0)
    assert downlink(AIR, deaf, 300.0, 50.0, 1000, 0.1).rate < downlink(AIR, RADIO, 300.0, 50.0, 1000, 0.1).rate
    assert uplink(AIR, deaf, 300.0, 50.0, 1000, 0.1) == uplink(AIR, RADIO, 300.0, 50.0, 1000, 0.1)
    noisy = ChannelSettings(station_noise_figure=16.0, **SHANNON)
    assert uplink(noisy, RADIO, 300.0, 50.0, 1000, 0.1).rate < uplink(AIR, RADIO, 300.0, 50.0, 1000, 0.1).rate


@given(METRES, st.floats(1.0, 2000.0), HEIGHT)
def test_rates_fall_with_distance_and_rise_with_power_and_share(ground, further, height):
    air = ChannelSettings(least_snr_db=-300.0, **SHANNON)
    here = uplink(air, RADIO, ground, height, 1, 0.1).rate
    assert uplink(air, RADIO, ground + further, height, 1, 0.1).rate < here
    assert uplink(air, RADIO, ground, height, 1, 0.1, power=0.2).rate > here
    assert uplink(air, RADIO, ground, height, 1, 0.2).rate > here


def test_efficiency_and_the_most_bits_bound_the_rate():
    real = ChannelSettings(efficiency=0.5, most_bits=6.0)
    assert rate(real, 60.0, 0.1) == pytest.approx(0.5 * 1e6 * 6.0)
    assert rate(real, 10.0, 0.1) == pytest.approx(0.5 * 1e6 * math.log2(11))


# range


def test_below_the_least_snr_there_is_no_link():
    snr = snr_db(AIR, 1000.0, 50.0, RADIO.power, 0.1, 6.0)
    for least, reached in ((snr - 0.01, True), (snr + 0.01, False)):
        for generator in (None, rng()):
            air = ChannelSettings(least_snr_db=least, **SHANNON)
            sent = uplink(air, RADIO, 1000.0, 50.0, 1000, 0.1, generator)
            assert (sent != OUT_OF_RANGE) == reached
    assert (OUT_OF_RANGE.seconds, OUT_OF_RANGE.delivered, OUT_OF_RANGE.bytes_sent) == (0.0, False, 0)


# broadcast


def test_a_broadcast_goes_at_the_rate_of_the_worst_receiver_in_range():
    near, mid, far = broadcast(AIR, RADIO, [100.0, 700.0, 1e5], 50.0, 10_000)
    assert near == mid
    assert mid.rate == pytest.approx(rate_by_hand(700.0, 50.0, 10e6, 1.0, 6.0))
    assert far == OUT_OF_RANGE
    assert broadcast(AIR, RADIO, [1e5], 50.0, 10_000) == [OUT_OF_RANGE]
    assert broadcast(AIR, RADIO, [], 50.0, 10_000) == []


def test_a_broadcast_repeats_what_any_receiver_lacks():
    """With no repetition each receiver fares by its own channel; one far away fails far more often."""
    air = ChannelSettings(**SHANNON, retries=0)
    grounds = [50.0, 900.0]
    fates = np.array(
        [[got.delivered for got in broadcast(air, RADIO, grounds, 50.0, 1000, rng(s))] for s in range(400)]
    )
    worst = snr_db(air, 900.0, 50.0, 1.0, 1.0, 6.0)
    assert fates[:, 0].mean() > 0.99
    assert binomtest(int((~fates[:, 1]).sum()), 400, outage(air, 900.0, 50.0, worst)).pvalue > 1e-3
    again = broadcast(AIR, RADIO, grounds, 50.0, 3_000_000, rng())
    assert again[0].bytes_sent == again[1].bytes_sent > 3_000_000
    assert again[0].seconds == again[1].seconds


# fading


@pytest.mark.parametrize("factor", [0.0, 3.2, 31.6])
def test_gains_follow_the_rice_distribution_with_mean_one(factor):
    amplitudes = np.sqrt(rician_gains([factor], 20_000, rng())[:, 0])
    scale = math.sqrt(1 / (2 * (factor + 1)))
    assert kstest(amplitudes, rice(math.sqrt(2 * factor), scale=scale).cdf).pvalue > 1e-3


@pytest.mark.parametrize("ground", [0.0, 200.0, 900.0])
def test_the_loss_probability_is_marcums(ground):
    snr = snr_db(AIR, ground, 50.0, RADIO.power, 0.1, 6.0)
    factor = rician_k(AIR, ground, 50.0)
    scale = math.sqrt(1 / (2 * (factor + 1)))
    by_rice = rice(math.sqrt(2 * factor), scale=scale).cdf(math.sqrt(10**-0.3))  # 3 dB below the mean
    assert outage(AIR, ground, 50.0, snr) == pytest.approx(by_rice, rel=1e-6)
    once = ChannelSettings(**SHANNON, retries=0)
    lost = sum(not uplink(once, RADIO, ground, 50.0, 1000, 0.1, rng(seed)).delivered for seed in range(3000))
    assert binomtest(lost, 3000, by_rice).pvalue > 1e-3


def test_k_grows_from_its_lower_to_its_upper_value_with_the_elevation():
    assert 10 * math.log10(rician_k(AIR, 1e12, 1.0)) == pytest.approx(5.0)
    assert 10 * math.log10(rician_k(AIR, 50.0, 50.0)) == pytest.approx(10.0)
    assert 10 * math.log10(rician_k(AIR, 0.0, 50.0)) == pytest.approx(15.0)


def test_without_scattering_fading_is_error_free():
    """K = 80 dB leaves 0.001 dB of fading; a margin of 0.01 dB covers it and costs next to nothing."""
    still = ChannelSettings(**SHANNON, rician_k=(80.0, 80.0), margin_db=0.01)
    faded = uplink(still, RADIO, 400.0, 50.0, 3_000_000, 0.1, rng())
    plain = uplink(AIR, RADIO, 400.0, 50.0, 3_000_000, 0.1)
    assert (faded.delivered, faded.bytes_sent) == (True, 3_000_000)
    assert faded.seconds == pytest.approx(plain.seconds, rel=1e-3)
    assert faded.seconds > plain.seconds


def test_lost_packets_cost_bytes_and_seconds_as_the_loss_probability_says():
    """Every packet is sent 1 / (1 - p) times on average as long as tries do not run out."""
    p = outage(AIR, 500.0, 50.0, snr_db(AIR, 500.0, 50.0, RADIO.power, 0.1, 6.0))
    sent = [uplink(AIR, RADIO, 500.0, 50.0, 3_000_000, 0.1, rng(seed)).bytes_sent for seed in range(60)]
    assert np.mean(sent) / 3e6 == pytest.approx(1 / (1 - p), rel=0.01)


def test_a_rate_at_its_limit_is_lost_less_often():
    capped = ChannelSettings(efficiency=1.0, most_bits=4.0)
    snr = snr_db(capped, 100.0, 50.0, RADIO.power, 0.1, 6.0)
    assert outage(capped, 100.0, 50.0, snr) < 1e-3 < outage(AIR, 100.0, 50.0, snr)
    assert uplink(capped, RADIO, 100.0, 50.0, 3_000_000, 0.1, rng()).bytes_sent < 3_100_000


def test_a_message_that_never_gets_through_spends_every_try():
    sent, idle, arrived = send_blocks(10_000, 3000, np.array([np.inf]), [3.0], 2, rng())
    assert sent == 3 * 10_000
    assert idle == 2 * 2000  # the last block is a third full; each of two repetitions waits for its end
    assert not arrived[0]


@settings(max_examples=50)
@given(st.integers(0, 2_000_000), st.integers(1, 40), st.integers(0, 5), st.integers(0, 2**31))
def test_bytes_are_whole_messages_plus_lost_blocks(size, packets, retries, seed):
    sent, idle, arrived = send_blocks(size, 1500 * packets, np.array([0.5, 0.2]), [3.0, 9.0], retries, rng(seed))
    assert size <= sent <= (retries + 1) * size
    assert 0 <= idle <= retries * 1500 * packets
    assert arrived.shape == (2,)
    assert sent > size or arrived.all() or retries == 0


def test_equal_streams_give_equal_transfers():
    first, second, other = (uplink(AIR, RADIO, 600.0, 50.0, 3_000_000, 0.1, rng(seed)) for seed in (1, 1, 2))
    assert first == second != other


def test_an_empty_message_arrives_at_once():
    for air in (AIR, AIR):
        sent = uplink(air, RADIO, 100.0, 50.0, 0, 0.1, rng())
        assert (sent.seconds, sent.delivered, sent.bytes_sent) == (0.0, True, 0)


# settings


def test_powers_that_a_radio_draws():
    assert RADIO.sending_power == pytest.approx(0.1 / 0.35 + 0.1)
    assert RADIO.drawn_power(0.05) == pytest.approx(0.05 / 0.35 + 0.1)
    assert RADIO.receiving_power == RADIO.receive_power == pytest.approx(3.3 * 0.0841, rel=0.01)


UNUSABLE = [{"noise": 1e4}, {"loss_blocked": 1e4}, {"carrier": 1e300}, {"station_power": 1e308}, {"los_b": 1e300}]


@pytest.mark.parametrize("given", [*UNUSABLE, {"rician_k": (0.0, 1e9)}])
def test_channels_without_a_finite_rate_are_refused(given):
    with pytest.raises(ValidationError, match="finite rate at 10 km"):
        ChannelSettings(**given)


@pytest.mark.parametrize("given", [{"power": 1e308}, {"noise_figure": 1e4}, {"efficiency": 1e-308, "power": 10.0}])
def test_radios_without_a_finite_rate_are_refused(given):
    with pytest.raises(ValidationError, match="finite rate at 10 km"):
        RadioSettings(**given)


def test_arguments_that_make_no_sense_are_refused():
    for share in (0.0, 1.1, math.nan):
        with pytest.raises(BadInputError, match="share"):
            uplink(AIR, RADIO, 1.0, 50.0, 1, share)


def test_the_loss_is_finite_at_the_station():
    assert 40 < path_loss_db(AIR, 0.0, 1.0) < path_loss_db(AIR, 0.0, 0.0) < 62  # 40.05 dB at 1 m and at most 21 more


@pytest.mark.parametrize("ground", [0.0, 100.0, 300.0, 500.0, 700.0, 1000.0, 1400.0])
def test_the_default_margin_is_near_the_best(ground):
    """docs/links.md: at least 93 % of the best rate times the probability of getting through."""
    snr = snr_db(AIR, ground, 50.0, RADIO.power, 0.1, 6.0)

    def goodput(margin: float) -> float:
        air = ChannelSettings(**SHANNON, margin_db=margin)
        return rate(air, snr - margin, 0.1) * (1 - outage(air, ground, 50.0, snr))

    assert goodput(AIR.margin_db) >= 0.93 * max(goodput(margin / 4) for margin in range(60))
