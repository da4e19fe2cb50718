"""The ground station: Eq. 13 by hand, masks, weights of the vehicles, who is present, buffers."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning_cases import Relay, message_of, onboard_of, raw_update, reference, start_of, station_of
from run_cases import tiny_config
from skyfed.blocks.aggregate import ServerSettings, aggregate, alphas, moved
from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.jobs import Jobs, Reply
from skyfed.simulate import Once, federated_round
from skyfed.station import Report, Station
from skyfed.types import Arrays, Quantised, Update
from skyfed.wire import Reference, encode_model

STARTS = [0, 2, 3]
Sent = tuple[Update, float]  # an upload and its weight
MEAN = ServerSettings()


def stepped(
    uploads: Sequence[Sent], start: Sequence[float], eta: float, server: ServerSettings = MEAN
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and buffers after a step by these uploads (Eq. 13)."""
    update = uploads[0][0]
    known = reference(update.size, len(update.buffers), STARTS if update.size == 3 else ())
    found = aggregate((message_of(update, known, weight) for update, weight in uploads), server, 10, {})
    return moved(np.asarray(start, np.float32), found.times(eta)), found.buffers


def quantised(levels: list[int], norms: list[float], s: int, bucket: int, mask: np.ndarray | None = None) -> Update:
    size = len(levels) if mask is None else len(mask)
    body = Quantised("qsgd", np.array(levels, np.int8), np.array(norms, np.float32), s, bucket)
    return Update(0, 0, size, mask, body, np.empty(0, np.float32))


# Eq. 13


def test_uploads_can_be_read_once():
    uploads = Once(iter(["one", "two"]))
    assert list(uploads) == ["one", "two"]
    with pytest.raises(ValueError, match="only once"):
        list(uploads)


def test_the_step_by_hand():
    """w - eta * (d_0 + d_1) / 2."""
    uploads = [(raw_update(np.array(d)), 1.0) for d in ([1.0, 2.0, 3.0], [3.0, -2.0, 1.0])]
    weights, _ = stepped(uploads, [1.0, 1.0, 1.0], 0.5)
    assert weights.dtype == np.float32
    assert weights.tolist() == [0.0, 1.0, 0.0]


def test_entries_that_a_vehicle_pruned_count_as_zero():
    """The sum is over all vehicles; who pruned an entry sends nothing for it but still weighs."""
    pruned = raw_update(np.array([4.0, 8.0]), np.array([True, False, True]))
    weights, _ = stepped([(pruned, 1.0), (raw_update(np.array([2.0, 2.0, 2.0])), 1.0)], np.zeros(3), 1.0)
    assert weights.tolist() == [-3.0, -1.0, -5.0]


def test_quantised_uploads_are_taken_at_norm_times_level_over_s():
    def step(*arguments: object) -> list[float]:
        return stepped([(quantised(*arguments), 1.0)], np.zeros(3), 1.0)[0].tolist()

    assert step([1, -2, 4], [8.0], 4, 0) == [-2.0, 4.0, -8.0]
    assert step([1, -2, 4], [8.0, 1.0], 4, -1) == [-2.0, 4.0, -1.0]  # a norm for each tensor: entries 0-1 and 2
    assert step([1, 4], [8.0, 1.0], 4, -1, np.array([False, True, True])) == [0.0, -2.0, -1.0]


def test_weights_are_rescaled_to_those_who_are_present():
    """The third, of weight 0.2, is missing."""
    uploads = [(raw_update(np.array([1.0])), 0.2), (raw_update(np.array([5.0])), 0.6)]
    found = aggregate((message_of(u, reference(1), w) for u, w in uploads), ServerSettings(), 3, {})
    assert found.total == pytest.approx(0.8)
    assert found.gradient == pytest.approx([(0.2 * 1 + 0.6 * 5) / 0.8])
    assert stepped(uploads, np.zeros(1), 1.0)[0] == pytest.approx([-(0.2 * 1 + 0.6 * 5) / 0.8])


def test_a_scale_common_to_all_weights_changes_nothing():
    results = []
    for scale in (1.0, 1e-6, 12345.0):
        one = raw_update(np.array([1.0, -3.0]), buffers=[2.0]), 0.3 * scale
        other = raw_update(np.array([0.5, 9.0]), buffers=[4.0]), 0.7 * scale
        results.append(np.concatenate(stepped([one, other], np.ones(2), 0.1)))
    assert results[1] == pytest.approx(results[0], rel=1e-6)
    assert results[2] == pytest.approx(results[0], rel=1e-6)


def test_buffers_are_averaged_with_the_same_weights():
    uploads = [(raw_update(np.zeros(1), buffers=[b, 10 * b]), weight) for b, weight in ((1.0, 1.0), (5.0, 3.0))]
    weights, buffers = stepped(uploads, [7.0], 0.1)
    assert weights.tolist() == [7.0]
    assert buffers.dtype == np.float32
    assert buffers.tolist() == [4.0, 40.0]


def test_the_sum_is_kept_in_double_precision():
    """A float32 sum would lose the small upload between the two large ones."""
    uploads = [(raw_update(np.array([value])), 1.0) for value in (1e8, 1.0, -1e8)]
    assert stepped(uploads, np.zeros(1), 3.0)[0].tolist() == [-1.0]


def test_without_an_upload_of_weight_there_is_no_aggregate():
    known = reference(2)
    assert aggregate(iter(()), ServerSettings(), 3, {}) is None
    for how in ("mean", "clip", "trimmed", "median", "consensus"):
        idle = message_of(raw_update(np.ones(2), vehicle=0), known, 0.0)
        assert aggregate([idle], ServerSettings(aggregate=how), 3, {}) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_step_is_the_double_sum_in_the_order_of_the_vehicles(seed, vehicles):
    rng = np.random.default_rng(seed)
    size, uploads = 17, []
    total, down, kept = 0.0, np.zeros(size), np.zeros(3)
    for _ in range(vehicles):
        mask = rng.random(size) < 0.6 if rng.random() < 0.5 else None
        count = size if mask is None else int(mask.sum())
        values = (rng.normal(size=count) * 10.0 ** rng.integers(-8, 8, count)).astype(np.float32)
        buffers, weight = rng.normal(size=3).astype(np.float32), float(rng.uniform(0.1, 2))
        uploads.append((raw_update(values, mask, buffers), weight))
        dense = np.zeros(size)
        dense[slice(None) if mask is None else mask] = values
        total, down, kept = total + weight, down + weight * dense, kept + weight * buffers.astype(np.float64)
    start = rng.normal(size=size).astype(np.float32)
    weights, buffers = stepped(uploads, start, 0.1)
    assert weights.tobytes() == (start.astype(np.float64) - (0.1 / total) * down).astype(np.float32).tobytes()
    assert buffers.tobytes() == (kept / total).astype(np.float32).tobytes()


# weights of the vehicles


def test_uniform_weights_are_equal():
    assert len(set(alphas(ServerSettings(), np.array([1, 2, 3, 4])).tolist())) == 1


def test_weights_by_data_size_are_in_proportion():
    found = alphas(ServerSettings(alpha="data"), np.array([10, 30, 60]))
    assert (found / found.sum()).tolist() == pytest.approx([0.1, 0.3, 0.6])


def test_weights_of_ones_own_are_taken_as_they_are():
    assert alphas(ServerSettings(alpha=[0.5, 0.0, 2.0]), np.ones(3, np.int64)).tolist() == [0.5, 0.0, 2.0]


@pytest.mark.parametrize(
    "alpha", ["[1.0, 1.0]", "[1.0, 1.0, 1.0, 1.0]", "[]", "[0.0, 0.0, 0.0]", "[-1.0, 1.0, 1.0]", "[nan, 1, 1]", "best"]
)
def test_weights_that_cannot_be_are_refused_before_anything_is_trained(alpha):
    with pytest.raises(BadInputError) as caught:
        load_config("smoke", ["vehicles=3", f"server.alpha={alpha}"])
    assert "server.alpha" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert tiny_config("server.alpha=[0.0, 1.0, 2]").server.alpha == [0.0, 1.0, 2.0]


def test_long_uploads_are_clipped_and_short_ones_are_not():
    uploads = [(raw_update(np.array([30.0, 40.0])), 1.0), (raw_update(np.array([0.0, 1.0])), 1.0)]
    weights, _ = stepped(uploads, np.zeros(2), 2.0, ServerSettings(clip=5.0))
    assert weights == pytest.approx([-3.0, -5.0])


def test_entries_that_do_not_travel_stay():
    """Those that can have no gradient are as they were at first, whatever the state says of the others."""
    engine = onboard_of(tiny_config("model.name=resnet18", 'algorithms=["afl"]')).engine
    layout, start = engine.layout, engine.initial()
    assert layout.live_size < layout.size
    first, later = engine.whole(start.weights), engine.whole(start.weights + 1)
    assert np.array_equal(layout.of_live(first), start.weights)
    assert np.array_equal(layout.of_live(later), start.weights + 1)
    assert np.count_nonzero(first != later) == layout.live_size


# one upload per vehicle


class Twice(Relay):
    """Vehicle 1 sends its upload twice, as a network may."""

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        for reply in super().call(jobs):
            yield reply
            if reply.words.get("vehicle") == 1:
                yield reply


def test_a_second_upload_of_a_vehicle_does_not_count():
    config = tiny_config('algorithms=["afl"]')
    plain = station_of(config, "afl")
    start = start_of(plain)
    once, _ = federated_round(plain, 0, start)
    twice, report = federated_round(station_of(config, "afl", Twice(plain.onboard), plain.onboard), 0, start)
    assert np.array_equal(once["weights"], twice["weights"])
    assert np.array_equal(once["buffers"], twice["buffers"])
    assert [upload.vehicle for upload in report.uploads] == [0, 1, 2]


# what is sent down


def models(size: int = 5000) -> tuple[Arrays, Arrays]:
    rng = np.random.default_rng(0)
    last = {"weights": rng.normal(size=size).astype(np.float32), "buffers": np.zeros(0, np.float32)}
    return last, {**last, "weights": last["weights"] * np.float32(1.0001)}


def announced(station: Station, sent: dict[int, Arrays], had: dict[int, Arrays]) -> Report:
    """What is counted of a model that is sent down in round 3."""
    report = Report(2)
    station.announce(3, {}, sent, had, report)
    return report


def test_the_broadcast_is_a_difference_for_those_who_had_the_last_model():
    last, model = models()
    base, known = (Reference(m["weights"], m["buffers"], np.array([0, 5000])) for m in (last, model))
    dense, less = len(encode_model(3, known, None)), len(encode_model(3, known, base))
    assert less < 0.6 * dense
    station = station_of(tiny_config('algorithms=["afl"]'), "afl")

    def spent(had: list[int], sent: list[int]) -> tuple[int, int, list[int]]:
        """Bytes of all messages, bytes with equal ones counted once, and what each vehicle is to receive."""
        report = announced(station, dict.fromkeys(sent, model), dict.fromkeys(had, last))
        return report.downlink_bytes, report.broadcast_bytes, station.world.radios.pending.tolist()

    assert spent([0, 1, 2], [0, 1]) == (2 * less, less, [less, less, 0])
    assert spent([0], [0, 1, 2]) == (less + 2 * dense, less + dense, [less, dense, dense])
    assert spent([0], []) == (0, 0, [0, 0, 0])
    station = station_of(tiny_config('algorithms=["afl"]', "server.downlink=dense"), "afl")
    assert spent([0, 1], [0, 1]) == (2 * dense, dense, [dense, dense, 0])


def test_models_of_their_own_are_counted_each_by_itself():
    """Vehicles may be sent different models, and have different ones from before."""
    last, model = models()
    other = {**model, "weights": np.zeros(5000, np.float32)}
    station = station_of(tiny_config('algorithms=["afl"]'), "afl")
    each = [announced(station, {0: sent}, {0: last}).downlink_bytes for sent in (model, other)]
    assert each[0] != each[1]
    three = announced(station, {0: model, 1: other, 2: model}, dict.fromkeys(range(3), last))
    assert (three.downlink_bytes, three.broadcast_bytes) == (2 * each[0] + each[1], each[0] + each[1])
    swapped = announced(station, {0: model, 1: model}, {0: last, 1: other})
    own = announced(station, {1: model}, {1: other}).downlink_bytes
    assert (swapped.downlink_bytes, swapped.broadcast_bytes) == (each[0] + own, each[0] + own)


def test_what_is_announced_in_one_round_adds_up():
    """A method with several exchanges sends several times."""
    last, model = models()
    station, report = station_of(tiny_config('algorithms=["afl"]'), "afl"), Report(0)
    for _ in range(2):
        station.announce(3, {}, {0: model, 1: model}, {0: last}, report)
    once = announced(station, {0: model, 1: model}, {0: last})
    assert report.downlink_bytes == 2 * once.downlink_bytes
    assert report.broadcast_bytes == 2 * once.broadcast_bytes
