"""What every algorithm must keep: the same bits everywhere, memories, masks, uploads unbiased, bytes that decode.

The first part runs over all algorithms that come with skyfed and over rows of EXTRA, which take no more than their
import path. The second part is about 2CEOAFL and its baselines.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learning_cases import Memory, Relay, exchanged, job_of, onboard_of, retrained, run_row, start_of, station_of
from run_cases import LAW, fleet_plan, pictures, tiny_config, write_picture_folder
from skyfed.algorithms import KNOWN, Row, find_class
from skyfed.algorithms.base import Algorithm, Parts
from skyfed.algorithms.twoceoafl import TwoCEOAFL
from skyfed.config import Config
from skyfed.drivers.execute import execute
from skyfed.drivers.pool import PoolDriver
from skyfed.errors import BadInputError, SkyfedError
from skyfed.jobs import Jobs, Reply
from skyfed.kit import Kit
from skyfed.learning.batches import Batches
from skyfed.onboard import Onboard
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Table
from skyfed.simulate import run
from skyfed.station import Report, Station
from skyfed.tasks import load_task
from skyfed.types import Arrays, same_arrays
from skyfed.wire import MODEL, Expected, Message, decode_parts, encode, encode_parts, paper_bits
from skyfed.world import World

ROOT = Path(__file__).parents[1]
EXTRA: list[tuple[str, ...]] = [  # import path below the checkout, then settings that it needs
    ("tests/counting.py:Counting",),
    ("examples/fedprox.py:FedProx",),
    ("examples/topk_error_feedback.py:TopK",),
    ("examples/clustered.py:Clustered",),
]
ROWS: dict[str, tuple[str, ...]] = {  # label -> settings
    **{name: (f'algorithms=["{name}"]',) for name in KNOWN},
    **{path.rpartition(":")[2]: (f'algorithms=["{ROOT / path}"]', *more) for path, *more in EXTRA},
}
CENTRAL = [name for name, known in KNOWN.items() if known.central]
PAPER = [name for name, known in KNOWN.items() if known.path == KNOWN["2ceoafl"].path]
PRUNING = [name for name in PAPER if KNOWN[name].settings.get("pruning", True)]

every_row = pytest.mark.parametrize("label", list(ROWS))
every_federated = pytest.mark.parametrize("label", [label for label in ROWS if label not in CENTRAL])
every_paper = pytest.mark.parametrize("algorithm", PAPER)
every_pruning = pytest.mark.parametrize("algorithm", PRUNING)


def config_of(label: str, *overrides: str) -> Config:
    return tiny_config(*ROWS[label], *overrides)


def row(label: str, *overrides: str) -> Station:
    return station_of(config_of(label, *overrides), label)


def bytes_of(arrays: Arrays) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def bits(memory: Memory) -> list[object]:
    """States and memories after every round."""
    return [
        (bytes_of(state), {u: bytes_of(own) for u, own in sorted(memories.items())})
        for state, memories in zip(memory.states, memory.memories, strict=True)
    ]


def sent(memory: Memory) -> list[list[bytes]]:
    return [[upload.data for upload in report.uploads] for report in memory.reports]


def figures(memory: Memory) -> list[list[object]]:
    """Everything about every round that does not depend on this machine's clock."""
    found: list[list[object]] = []
    for report, rows, costs in zip(memory.reports, memory.rows, memory.costs, strict=True):
        uploads = [str(replace(upload, seconds=0, cpu=0)) for upload in report.uploads]  # as text: NaN equals NaN
        tested = report.tested
        numbers = [tested.accuracy, tested.accuracy_full, tested.loss, report.train_loss, *tested.metrics.values()]
        came = [report.dropped, report.chosen, report.notes, report.efforts]
        mission = [report.mission, rows, costs, report.downlink_bytes, report.broadcast_bytes]
        found.append([str(numbers), uploads, *came, *mission])
    return found


# the same bits


@every_row
def test_two_runs_give_the_same_bits_and_another_seed_others(label):
    one, again = (run_row(row(label)) for _ in range(2))
    assert len(one.states) == 3
    assert bits(one) == bits(again)
    assert sent(one) == sent(again)
    assert figures(one) == figures(again)
    assert bits(run_row(row(label, "seed=1")))[-1] != bits(one)[-1]


@every_row
def test_every_round_changes_the_state(label):
    memory = run_row(row(label))
    assert len({str(bytes_of(state)) for state in memory.states}) == 3


@every_row
def test_going_on_from_any_round_gives_the_same_bits(label):
    config = config_of(label)
    whole = run_row(station_of(config, label))
    for first in range(1, config.rounds):
        kept = whole.worlds[first - 1]
        station = station_of(config, label, memories=dict(whole.memories[first - 1]), kept=kept)
        rest = run_row(station, whole.states[first - 1], first)
        assert bits(rest) == bits(whole)[first:]
        assert sent(rest) == sent(whole)[first:]
        assert figures(rest) == figures(whole)[first:]
        assert [bytes_of(world) for world in rest.worlds] == [bytes_of(world) for world in whole.worlds[first:]]


def test_one_process_can_run_all_rows_one_after_the_other():
    """What a row leaves behind in the shared model must not reach the next one."""
    config = tiny_config(f"algorithms={every_use()}")
    shared = onboard_of(config)
    for label in ROWS:
        many = run_row(station_of(config, label, onboard=shared))
        assert bits(many) == bits(run_row(row(label))), label


class Backwards(Relay):
    """Does jobs in the opposite order; replies come in the right one."""

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        return reversed(list(super().call(list(reversed(jobs)))))


@every_row
def test_the_order_in_which_vehicles_work_changes_nothing(label):
    station = row(label)
    turned = station_of(station.onboard.config, label, Backwards(station.onboard), station.onboard)
    one, other = run_row(station), run_row(turned)
    assert bits(one) == bits(other)
    assert sent(one) == sent(other)


@every_federated
def test_vehicles_alone_send_what_they_send_together(label):
    station = row(label)
    together = {upload.vehicle: upload.data for upload in exchanged(station, 1)[1].uploads}
    alone = {u: exchanged(row(label), 1, vehicles=[u])[1].uploads[0].data for u in (2, 0)}
    assert len(set(together.values())) == 3
    assert alone == {u: together[u] for u in (2, 0)}


class Careful(Memory):
    """Takes note of what was handed over, to see later that nobody has changed it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: list[object] = []

    def record(self, state: Arrays, memories: dict[int, Arrays], report: Report) -> None:
        super().record(state, memories, report)
        self.seen.append(bits(self)[-1])


@every_row
def test_what_is_handed_in_is_left_as_it_was(label):
    station = row(label)
    start = start_of(station)
    before, samples = bytes_of(start), [station.world.observe(u, 2).tobytes() for u in range(3)]
    memory = Careful(station.world)
    run(station, memory, start)
    assert bytes_of(start) == before
    assert bits(memory) == memory.seen
    assert [station.world.observe(u, 2).tobytes() for u in range(3)] == samples


# worker processes


def every_use(base: Path = ROOT) -> str:
    """All rows as the TOML of one config."""
    return str([*KNOWN, *(str(base / path) for path, *_ in EXTRA)]).replace("'", '"')


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The tiny experiment with its pictures in files, as worker processes need them."""
    place = tmp_path_factory.mktemp("pooled")
    root = write_picture_folder(place / "pictures", pictures())
    more = [setting for _, *settings in EXTRA for setting in settings]
    config = tiny_config(
        f'data.name="folder:{root}"', f'data.dir="{place / "cache"}"', "data.size=8", f"algorithms={every_use()}", *more
    )
    load_task(config.data)  # into the cache
    return config


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_nothing(pooled, workers):
    onboard = Onboard(pooled, load_task(pooled.data))
    with PoolDriver(onboard, workers) as driver:
        place = driver._place
        for label in ROWS:
            alone = run_row(station_of(pooled, label, onboard=onboard))
            many = run_row(station_of(pooled, label, driver, onboard))
            assert bits(many) == bits(alone), label
            assert sent(many) == sent(alone), label
            assert figures(many) == figures(alone), label
        one = np.ones(3, np.float32)  # the same arrays under other names are something else
        assert driver._share({"a": one}) == driver._share({"a": one}) != driver._share({"b": one})
        kept = sorted(path.name for path in place.iterdir())
        assert len(kept) <= 1 + 2 + 3 + 2, kept  # the lock, and what a few calls were sent: not one file per round
    assert not place.exists()  # nothing is left when the workers have gone


# memories


@every_federated
def test_an_absent_vehicle_keeps_its_memory(label):
    """Vehicle 2 is away in round 1; others may rest if they were not chosen."""
    memory = run_row(row(label, "faults.absent=[[2, 1]]", "rounds=4"))
    for t, report in enumerate(memory.reports):
        came = {upload.vehicle for upload in report.uploads}
        assert report.changed <= came
        before = memory.memories[t - 1] if t else {}
        for u in set(range(3)) - report.changed:
            assert same_arrays(memory.memories[t].get(u, {}), before.get(u, {}))
    assert 2 not in memory.reports[1].chosen
    assert same_arrays(memory.memories[1].get(2, {}), memory.memories[0].get(2, {}))


class InPlace(Algorithm):
    """Changes the arrays of its memory in place."""

    def local(self, kit: Kit, received: Arrays, memory: Arrays) -> tuple[Parts, Arrays]:
        memory.setdefault("count", np.zeros(1, np.int64))
        memory["count"] += 1
        return {"update": kit.raw(kit.descend(received))}, memory


def test_a_memory_that_is_changed_in_place_is_a_changed_memory():
    memory = run_row(station_of(tiny_config(f'algorithms=["{__name__}:InPlace"]'), "InPlace"))
    assert [{int(own["count"][0]) for own in memories.values()} for memories in memory.memories] == [{1}, {2}, {3}]
    assert all(report.changed == {0, 1, 2} for report in memory.reports)


# bytes


@every_federated
def test_every_upload_is_read_and_written_back_to_the_same_bytes(label):
    station = row(label)
    sizes = station.algorithm.parts()
    for t in range(3):
        sent = station.sends(t, start_of(station))
        report = Report(t)
        messages = list(station.exchange(t, 0, sent, report))
        assert not report.dropped
        for message, upload in zip(messages, report.uploads, strict=True):
            again = encode_parts(message.parts, sizes, t, message.vehicle, message.reference)
            assert again == upload.data
            expected = Expected(t, message.vehicle, message.reference)
            assert list(decode_parts(again, sizes, expected)) == list(sizes)


# testing and going wrong


@every_row
def test_models_are_tested_every_so_many_rounds_and_at_the_end(label):
    memory = run_row(row(label, "eval_every=2"))
    tested = [report.tested for report in memory.reports]
    assert [np.isfinite(one.accuracy) for one in tested] == [False, True, True]
    assert [one.per_class is not None for one in tested] == [False, True, True]
    assert tested[-1].accuracy_full == pytest.approx(tested[-1].per_class.mean())  # the fixed test set is balanced
    assert [report.round for report in memory.reports] == [0, 1, 2]
    assert np.isfinite(memory.reports[-1].train_loss)


@every_row
def test_what_is_delivered_are_models_of_finite_numbers_and_serves_every_vehicle(label):
    station = row(label)
    state, layout = run_row(station).states[-1], station.onboard.engine.layout
    models = station.algorithm.deliver(state)
    assert models
    for model in models.values():
        assert (model.weights.shape, model.buffers.shape) == ((layout.live_size,), (layout.buffers,))
        assert np.isfinite(model.weights).all()
        assert np.isfinite(model.buffers).all()
    assert {station.algorithm.serves(state, u) for u in range(3)} <= set(models)


class Noisy(Relay):
    """Loses the last byte of what vehicle 1 sends."""

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        for reply in super().call(jobs):
            yield replace(reply, data=reply.data[:-1]) if reply.words.get("vehicle") == 1 else reply


@every_federated
def test_a_vehicle_whose_bytes_are_damaged_is_left_out_and_named(label):
    """Who is absent leaves its share of the band to others, so rounds are shorter; psi must not follow that."""
    config = config_of(label, "field.follows=rounds")
    onboard = onboard_of(config)
    memory = run_row(station_of(config, label, Noisy(onboard), onboard))
    for report in memory.reports:
        assert list(report.dropped) == [u for u in report.chosen if u == 1]
    away = [[1, t] for t in range(3)]
    absent = run_row(row(label, "field.follows=rounds", f"faults.absent={away}"))
    assert [bytes_of(state) for state in memory.states] == [bytes_of(state) for state in absent.states]


def test_central_rows_send_nothing():
    for label in CENTRAL:
        memory = run_row(row(label))
        assert sent(memory) == [[], [], []]
        assert all(not report.chosen and not report.downlink_bytes for report in memory.reports)


# a row with everything


def test_counts_are_kept_by_vehicles_and_come_to_the_station():
    """Of three vehicles one rests in every round: vehicle t mod 3."""
    station = row("Counting", "rounds=5", "faults.absent=[[1, 2]]")
    memory = run_row(station)
    there = [[1, 2], [0, 2], [0], [1, 2], [0, 2]]  # in round 2 vehicle 2 rests and vehicle 1 is away
    counts = np.zeros(3, int)
    for t, report in enumerate(memory.reports):
        assert report.chosen == there[t]
        assert [upload.vehicle for upload in report.uploads] == 2 * there[t]
        counts[there[t]] += 1
        assert memory.states[t]["seen"].tolist() == counts.tolist()
        assert memory.states[t]["asked"].tolist() == [len(there[t])]
        assert {u: int(own["count"][0]) for u, own in memory.memories[t].items()} == {
            u: count for u, count in enumerate(counts.tolist()) if count
        }
        told = [upload.facts.get("count") for upload in report.uploads]
        assert told == [None] * len(there[t]) + [counts[u] for u in there[t]]


def test_the_work_and_the_bytes_of_all_exchanges_add_up():
    memory = run_row(row("Counting"))
    first, costs = memory.reports[0], memory.costs[0]
    for u in first.chosen:
        asked, trained = (upload for upload in first.uploads if upload.vehicle == u)
        assert (asked.work, trained.work) == (0, 3)
        effort = first.efforts[u]
        assert (effort.rounds, effort.sent) == (3, len(asked.data) + len(trained.data))
        assert costs[u]["send_seconds"] == pytest.approx(8 * effort.sent / costs[u]["rate"])
        assert costs[u]["send_seconds"] > 0


def test_several_models_are_judged_by_the_vehicles_that_use_them():
    station = row("Counting", "eval_every=1")
    memory = run_row(station)
    engine, growths, total = station.onboard.engine, station.world.schedule.test, len(station.onboard.task.test)
    for t, (state, report) in enumerate(zip(memory.states, memory.reports, strict=True)):
        models = station.algorithm.deliver(state)
        scores = {name: engine.score(model, 0, total).score for name, model in models.items()}
        assert not np.array_equal(scores["fast"], scores["slow"])
        own = [scores["slow" if u % 2 else "fast"] for u in range(3)]
        inside = [score[growth.at(t)] for score, growth in zip(own, growths, strict=True)]
        assert report.tested.accuracy == pytest.approx(np.concatenate(inside).mean())
        assert report.tested.accuracy_full == pytest.approx(np.mean(own))


class Watcher:
    """Stops a run after some rounds."""

    def __init__(self, stop: int = 99) -> None:
        self.left, self.lines = stop, []

    def begin(self, algorithm: str, first: int, rows: list[object]) -> None:
        self.first = first

    def round(self, algorithm: str, row: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt

    def say(self, line: str) -> None:
        self.lines.append(line)


def recorded(place: Path, config: Config, *stops: int) -> Watcher:
    task, plan = pictures().task(), fleet_plan(3, config.rounds)
    for stop in stops:
        with RunFolder.claim(place, config, []) as folder, pytest.raises(KeyboardInterrupt):
            execute(folder, config, task, plan, Watcher(stop))
    with RunFolder.claim(place, config, []) as folder:
        execute(folder, config, task, plan, watcher := Watcher())
    return watcher


@every_row
def test_a_run_that_was_stopped_goes_on_to_the_same_files(label, tmp_path):
    config = config_of(label, "rounds=4")
    recorded(tmp_path / "whole", config)
    watcher = recorded(tmp_path / "parts", config, 1, 2)
    assert watcher.first == 3
    names = {path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole" / label).rglob("*.safetensors")}
    assert names == {
        path.relative_to(tmp_path / "parts") for path in (tmp_path / "parts" / label).rglob("*.safetensors")
    }
    models = [name for name in names if name.name.startswith("model") or "models" in name.parts]
    assert models
    assert all((tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes() for name in models)
    clock = {"seconds", "measured_seconds", "measured_cpu_seconds"}
    for table in ("rounds", "uplink", "vehicles"):
        one, other = (
            [
                {key: value for key, value in line.items() if key not in clock}
                for line in Table(place / label, table).rows()
            ]
            for place in (tmp_path / "whole", tmp_path / "parts")
        )
        assert one == other, table


def test_a_row_s_own_column_is_in_its_table_and_its_models_are_saved(tmp_path):
    config = config_of("Counting")
    recorded(tmp_path / "run", config)
    rows = Table(tmp_path / "run" / "Counting", "uplink").rows()
    assert [line["count"] for line in rows] == [0, 0, 1, 1, 0, 0, 1, 2, 0, 0, 2, 2]
    assert (tmp_path / "run" / "Counting" / "model.safetensors").exists()
    assert sorted(path.stem for path in (tmp_path / "run" / "Counting" / "models").iterdir()) == ["fast", "slow"]


# rows that are none


class Recipe:
    """What an algorithm was in version 0.1."""


OLD, NONE = Recipe(), object()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("OLD", "a Recipe, as in version 0.1"), ("NONE", "a class made from"), ("Recipe", "a class made from")],
)
def test_what_is_no_algorithm_is_refused_in_one_line(name, expected):
    with pytest.raises(BadInputError, match=expected) as caught:
        find_class(Row(use=f"{__name__}:{name}"))
    assert "\n" not in str(caught.value)


class TooLong(InPlace):
    """Names a vector with more letters than a message has room for."""

    def parts(self) -> dict[str, int]:
        return {"update": MODEL, "x" * 25: 3}


def test_vectors_that_no_message_can_hold_are_refused_before_anything_is_trained():
    with pytest.raises(BadInputError, match=r"row 'TooLong': a vector named 'x+'; allowed: 1 to 24") as caught:
        onboard_of(tiny_config(f'algorithms=["{__name__}:TooLong"]'))
    assert "\n" not in str(caught.value)


# 2CEOAFL and its baselines: masks


def opened(station: Station, t: int, state: Arrays) -> list[tuple[Message, dict[str, object]]]:
    """What the station decodes in a round, with what vehicles report of it."""
    messages, report = exchanged(station, t, state)
    assert not report.dropped
    return [(message, upload.facts) for message, upload in zip(messages, report.uploads, strict=True)]


def dense(message: Message) -> np.ndarray:
    """The upload as the station takes it, in double precision."""
    return message.vector().astype(np.float64)


@every_paper
def test_masked_entries_are_absent_and_count_as_zero(algorithm):
    station = row(algorithm, "prune.delta=0.5")
    layout = station.onboard.engine.layout
    for message, facts in opened(station, 1, start_of(station)):
        update = message.update
        assert (update.mask is not None) == (algorithm in PRUNING)
        if update.mask is None:
            assert facts["kept"] == update.kept == layout.size
            continue
        assert facts["kept"] == update.kept == int(update.mask.sum())
        assert (~update.mask).sum() == round(0.5 * layout.kernels.sum())
        assert update.mask[~layout.kernels].all()
        assert not dense(message)[~update.mask].any()


@every_pruning
def test_an_entry_that_every_vehicle_pruned_stays_as_it_was(algorithm):
    station = row(algorithm, "prune.delta=0.6")
    state, checked = start_of(station), 0
    for t in range(3):
        messages = [message for message, _ in opened(station, t, state)]
        after = station.algorithm.step(state, messages, t)
        nobody = ~np.logical_or.reduce([message.update.mask for message in messages])
        checked += int(nobody.sum())
        assert np.array_equal(after["weights"][nobody], state["weights"][nobody])
        state = after
    assert checked > 100


@every_paper
def test_the_station_moves_by_the_mean_of_what_was_decoded(algorithm):
    """Through its own vehicle no masked entry changes: its part of the step is exactly zero there."""
    station = row(algorithm, "prune.delta=0.5")
    start = start_of(station)
    messages = [message for message, _ in opened(station, 0, start)]
    after = run_row(station, start).states[0]
    expected = start["weights"] - 0.1 * sum(dense(message) for message in messages) / 3
    assert np.abs(after["weights"] - expected).max() < 1e-7
    assert after["buffers"] == pytest.approx(np.mean([m.update.buffers for m in messages], axis=0), rel=1e-6)


# unbiased


@every_paper
@pytest.mark.parametrize("bucket", ["64", "0", "tensor"])
def test_the_mean_upload_is_the_raw_one(algorithm, bucket):
    """Only the quantiser's stream changes between draws; delta, masks and batches stay."""
    station = row(algorithm, "model.name=mlp", "model.width=2", "prune.delta=0.3", f"quantise.bucket={bucket}")
    state = start_of(station)
    kit = station.onboard.kit(job_of(station, 0, 1, state))
    trained = retrained(station, 0, 1, state, 0.3 if algorithm in PRUNING else 0.0)
    kit.winning_ticket = lambda *_: None
    kit.descend = lambda *_, **__: trained
    raw = trained.gradient.astype(np.float64)
    draws = 600
    total, square, quantised = np.zeros_like(raw), np.zeros_like(raw), 0
    for seed in range(draws):
        kit._seed = seed
        parts, _ = station.algorithm.local(kit, state, {})
        quantised += parts["update"].quantised
        seen = dense(Message(0, 1, parts, kit.reference(state)))
        total += seen
        square += seen**2
    share = {"afl": 0.0, "afl-prune": 0.0, "afl-quant": 1.0, "2ceoafl": 0.7}.get(algorithm)
    if share is not None:
        assert abs(quantised / draws - share) <= 5 * (share * (1 - share) / draws) ** 0.5
    mean = total / draws
    spread = np.sqrt(np.maximum(square / draws - mean**2, 0) / draws)
    some = spread > 1e-7 * np.abs(raw).max()
    assert np.abs(mean - raw)[~some].max(initial=0) <= 1e-2 * np.abs(raw).max()
    if some.any():
        errors = (mean - raw)[some] / spread[some]
        assert np.abs(errors.mean()) <= 6 / some.sum() ** 0.5 + 0.2
        assert np.median(np.abs(errors)) < 1.2  # 0.67 for a normal law
        relative = np.linalg.norm(mean - raw) / np.linalg.norm(raw)
        assert relative < 5 * np.linalg.norm(spread) / np.linalg.norm(raw)


# what is sent


@every_paper
@pytest.mark.parametrize("bucket", ["64", "0", "tensor"])
def test_the_bytes_decode_to_what_was_sent(algorithm, bucket):
    station = row(algorithm, f"quantise.bucket={bucket}")
    state, layout = start_of(station), station.onboard.engine.layout
    for t in range(3):
        messages, report = exchanged(station, t, state)
        for message, upload in zip(messages, report.uploads, strict=True):
            update, facts, u = message.update, upload.facts, upload.vehicle
            assert encode(update, message.reference) == upload.data
            assert (update.round, update.vehicle) == (t, u)
            assert update.quantised == facts["quantised"]
            assert 0 < upload.buffer_bytes <= 4 * len(update.buffers) == 4 * layout.buffers
            local = retrained(station, u, t, state, facts["delta"])
            raw = local.gradient if local.mask is None else local.gradient[local.mask]
            assert np.array_equal(update.buffers, local.buffers)
            if update.quantised:
                step = np.abs(dense(message) - local.gradient).max() / np.linalg.norm(raw)
                assert step <= (1 + 2**-7) / 3  # norms are rounded up to bfloat16
            else:
                assert np.array_equal(update.body.values, raw)
            assert facts["paper_bits"] == paper_bits(layout.size, facts["delta"], 3, raw=not update.quantised)


# the same for all


class Notebook(Batches):
    """Batches that remember what was drawn."""

    seen: list[bytes]

    def draw(self, *arguments: object) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in super().draw(*arguments):
            self.seen.append(images.numpy().tobytes() + labels.numpy().tobytes())
            yield images, labels


def test_all_algorithms_train_on_the_same_batches():
    drawn = {}
    for algorithm in PAPER:
        station = row(algorithm)
        engine = station.onboard.engine
        engine.batches = Notebook(engine.task)
        engine.batches.seen = []
        exchanged(station, 2, vehicles=[1])
        drawn[algorithm] = engine.batches.seen
    train = station.onboard.config.train
    for algorithm, seen in drawn.items():
        assert len(seen) == train.kappa + (train.rho if algorithm in PRUNING else 0)
        assert seen[-train.kappa :] == drawn["afl"]
    assert drawn["afl-prune"] == drawn["2ceoafl"]
    assert drawn["afl-prune"][0] not in drawn["afl"]  # the dense steps have batches of their own


def test_the_two_algorithms_that_prune_have_the_same_ratios_and_masks():
    one, other = (row(name, *LAW) for name in ("afl-prune", "2ceoafl"))
    state = start_of(one)
    for t in range(3):
        messages, report = exchanged(one, t, state)
        for (message, facts), mine, upload in zip(opened(other, t, state), messages, report.uploads, strict=True):
            delta = upload.facts["delta"]
            assert delta == facts["delta"]
            assert 0.05 <= delta < 0.7
            assert np.array_equal(message.update.mask, mine.update.mask)
            assert report.efforts[upload.vehicle].rounds == pytest.approx(1 + 3 * (1 - delta))
        one.world.close(t)
        for u, upload in enumerate(report.uploads):
            seconds = one.world.upload_costs(u)["modelled_seconds"]
            assert seconds == pytest.approx(1 + 3 * (1 - upload.facts["delta"]))


def test_without_ratio_and_coin_2ceoafl_is_afl():
    more = ("prune.delta=0.0", "quantise.raw_probability=1.0", "rounds=1")
    one, other = (run_row(row(name, *more)).states[0] for name in ("2ceoafl", "afl"))
    assert np.abs(one["weights"] - other["weights"]).max() < 1e-6  # a masked step rounds once, a plain one twice
    assert one["buffers"] == pytest.approx(other["buffers"], rel=1e-5)


# a sixth row

_asked: list[tuple[float, object]] = []


class Mine(TwoCEOAFL):
    """2CEOAFL with a coin of its own."""

    def raw_probability(self, delta: float) -> float:
        _asked.append((delta, self.settings.quantise.raw_probability))
        return 1 - delta


def test_a_sixth_row_with_its_own_coin_runs_like_the_others():
    _asked.clear()
    config = tiny_config(f'algorithms=["{__name__}:Mine"]', "rounds=4", "prune.delta=[0.2, 0.3, 0.4]")
    memory = run_row(station_of(config, "Mine"))
    uploads = [upload for report in memory.reports for upload in report.uploads]
    assert len(uploads) == 12
    assert {upload.facts["quantised"] for upload in uploads} == {True, False}
    assert sorted(set(_asked)) == [(0.2, "delta"), (0.3, "delta"), (0.4, "delta")]
    assert memory.reports[-1].tested.accuracy > 0
    assert not any(report.dropped for report in memory.reports)


def test_the_same_algorithm_in_two_rows_with_settings_of_their_own():
    config = tiny_config('algorithms=["afl", {use="afl", label="short", train={kappa=1}}]')
    onboard = onboard_of(config)
    work = {}
    for label in config.labels:
        station = station_of(config, label, onboard=onboard)
        work[label] = {upload.work for report in run_row(station).reports for upload in report.uploads}
    assert work == {"afl": {3.0}, "short": {1.0}}


# going wrong


def test_training_that_diverges_everywhere_ends_with_one_line():
    with pytest.raises(SkyfedError) as caught:
        run_row(row("afl", "train.eta_local=1e30"))
    assert "round 0" in str(caught.value)
    assert "eta_local" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(SkyfedError, match="sgd stops at round 0"):
        run_row(row("sgd", "train.eta=1e30"))


def test_vehicles_without_any_picture_are_told_so():
    """More vehicles than pictures of a class: pools are empty, and that is not a matter of learning rates."""
    config = config_of("afl")
    with pytest.raises(BadInputError) as caught:
        station_of(config, "afl", onboard=onboard_of(config, pictures(train=2, test=15)))
    assert "\n" not in str(caught.value)


def test_a_batch_too_small_for_batch_norm_is_refused_in_one_line():
    """On 1 x 1 maps batch norm needs two pictures; torch says so deep inside."""
    with pytest.raises(BadInputError) as caught:
        exchanged(row("afl", "model.name=resnet18", "train.batch_size=1"), 0, vehicles=[0])
    assert "\n" not in str(caught.value)


def test_a_field_for_another_number_of_places_is_refused():
    with pytest.raises(BadInputError, match=r"field.classes = 5, but the data has 4 places"):
        onboard_of(tiny_config("field.classes=5"))


# a user's own module


class Dropping(nn.Module):
    """A module with dropout, whose coins come from torch's own generator."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, 8), nn.Dropout(0.5), nn.Linear(8, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Counting(nn.Module):
    """A module whose batch norm averages over all steps so far, counted in an integer buffer."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4, momentum=None)
        self.head = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.convolution(x)).mean(dim=(2, 3)))


@pytest.mark.parametrize("name", ["Dropping", "Counting"])
def test_a_module_with_coins_or_counters_of_its_own_keeps_the_contract(name):
    found = []
    for seed, order in ((1, [0, 1, 2]), (2, [2, 1, 0])):
        torch.manual_seed(seed)
        uploads = exchanged(row("afl", f"model.name={__name__}:{name}"), 1, vehicles=order)[1].uploads
        found.append({upload.vehicle: upload.data for upload in uploads})
    assert found[0] == found[1]


@every_row
def test_global_generators_are_neither_used_nor_touched(label):
    torch.manual_seed(3)
    before, plain = torch.get_rng_state(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    run_row(row(label, "rounds=1"))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tobytes() == plain  # noqa: NPY002
