"""Tasks of one's own: signals with several labels, real targets, transforms, uneven pools; and bad ones in one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from learning_cases import exchanged, onboard_of, run_row, start_of, station_of
from run_cases import fleet_plan, pictures, tiny_config
from skyfed.config import Config
from skyfed.drivers.execute import execute
from skyfed.drivers.pool import PoolDriver
from skyfed.errors import BadInputError
from skyfed.learning.batches import Batches
from skyfed.learning.evaluate import try_task
from skyfed.runs.folder import RunFolder
from skyfed.runs.start import world_of
from skyfed.runs.tables import Table
from skyfed.simulate import federated_round
from skyfed.tasks import DataSettings, Samples, Task, load_task
from skyfed.tasks.task import check_task, cross_entropy
from skyfed.world import World
from skyfed.world.sensing import split_pools

PLACES = ("north", "east", "south", "west")
SIGNALS = ("model.name=cnn", "model.width=8", "train.eta_local=0.2", "train.eta=0.2", "rounds=6", "eval_every=1")


def bce(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction=reduction)


def labels_right(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == (targets > 0.5)).double().mean(dim=1)


def all_right(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == (targets > 0.5)).all(dim=1)


def signals(seed: int = 0) -> Task:
    """Signals (2, 128) of up to three tones, each a label; at every place one tone is likely."""
    rng = np.random.default_rng(seed)
    time = np.arange(128) / 128

    def part(count: int) -> Samples:
        places = rng.integers(0, 4, count)
        present = rng.random((count, 3)) < np.where(np.arange(3) == places[:, None], 0.9, 0.3)
        tones = np.sin(2 * np.pi * np.array([3, 9, 27])[:, None] * time + rng.uniform(0, 6.28, (count, 2, 3, 1)))
        inputs = (present[:, None, :, None] * tones).sum(axis=2) + 0.3 * rng.normal(size=(count, 2, 128))
        return Samples(inputs.astype(np.float32), present.astype(np.float32), places)

    return Task(part(400), part(100), PLACES, 3, bce, labels_right, metrics={"all_right": all_right})


def within(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().squeeze(1) < 0.25


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).squeeze(1).square()


def lines(seed: int = 0) -> Task:
    """Five numbers, of which a sixth follows."""
    rng = np.random.default_rng(seed)

    def part(count: int) -> Samples:
        inputs = rng.normal(size=(count, 5))
        return Samples(inputs, (inputs @ [[0.5], [-0.3], [0.2], [0.0], [0.1]]), rng.integers(0, 4, count))

    return Task(part(400), part(100), PLACES, 1, functional.mse_loss, within, metrics={"squared error": error})


def task_config(*overrides: str) -> Config:
    return tiny_config('algorithms=["2ceoafl", "afl", "sgd"]', *overrides)


# several labels


@pytest.mark.parametrize("label", ["2ceoafl", "afl", "sgd"])
def test_signals_with_several_labels_are_learnt(label):
    config = task_config(*SIGNALS, "train.kappa=8")
    memory = run_row(station_of(config, label, onboard=onboard_of(config, signals())))
    first, last = memory.reports[0].tested, memory.reports[-1].tested
    assert last.loss < first.loss
    assert last.accuracy_full > 0.75  # always saying the more frequent would give about 0.55
    assert 0 <= last.metrics["all_right"] <= last.accuracy_full
    assert last.per_class.shape == (4,)
    assert np.isfinite([report.train_loss for report in memory.reports]).all()


def test_losses_and_scores_are_those_of_plain_torch():
    """Of samples with several labels the loss is the mean over labels."""
    config = task_config(*SIGNALS)
    task = signals()
    station = station_of(config, "afl", onboard=onboard_of(config, task))
    state = run_row(station).states[-1]
    engine = station.onboard.engine
    found = engine.score(station.algorithm.deliver(state)["model"], 0, 100)
    engine.model.load(state["weights"], state["buffers"])
    with torch.no_grad():
        outputs = engine.model.module.eval()(torch.from_numpy(task.test.inputs))
    targets = torch.from_numpy(task.test.targets)
    assert found.loss == pytest.approx(bce(outputs, targets, "none").mean(dim=1).numpy(), rel=1e-4, abs=1e-6)
    assert found.score.tolist() == labels_right(outputs, targets).tolist()
    assert found.metrics["all_right"].tolist() == all_right(outputs, targets).double().tolist()
    assert (found.score.dtype, found.loss.dtype) == (np.float64, np.float32)


class Watcher:
    def begin(self, algorithm: str, first: int, rows: list[object]) -> None:
        pass

    def round(self, algorithm: str, row: object) -> None:
        pass

    def say(self, line: str) -> None:
        pass


def test_metrics_are_columns_of_the_table_of_rounds(tmp_path):
    (tmp_path / "my task.py").write_text(f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\n"
                                         "from test_tasks import signals as load\n")  # fmt: skip
    config = task_config(*SIGNALS, "rounds=3", f'data.name="{tmp_path}/my task.py:load"')
    task = load_task(config.data)
    assert task.content_hash() == signals().content_hash() != signals(1).content_hash()
    with RunFolder.claim(tmp_path / "run", config, []) as folder:
        assert execute(folder, config, task, fleet_plan(3, 3), Watcher()) == []
    for label in config.labels:
        path = tmp_path / "run" / label / "rounds.parquet"
        assert path.exists()
        rows = Table(tmp_path / "run" / label, "rounds").rows()
        assert len(rows) == 3
        assert all(0 <= row["all_right"] <= row["accuracy_full"] <= 1 for row in rows)


# real targets


@pytest.mark.parametrize("label", ["2ceoafl", "afl", "sgd"])
def test_real_targets_are_learnt(label):
    config = task_config("model.name=mlp", "model.width=16", "rounds=6", "eval_every=1", "train.kappa=8")
    memory = run_row(station_of(config, label, onboard=onboard_of(config, lines())))
    first, last = memory.reports[0].tested, memory.reports[-1].tested
    assert last.metrics["squared error"] < 0.5 * np.square(lines().test.targets).mean()
    assert last.loss < first.loss
    assert last.accuracy_full > 0.3
    outside = last.metrics["squared error"] - last.loss  # the one on the whole test set, the other on a part
    assert abs(outside) < 0.5 * last.loss


def test_wide_inputs_and_targets_are_taken_in_the_model_s_precision():
    batches = Batches(lines(), torch.float32)
    inputs, targets = batches.take(np.arange(3))
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.float32)
    assert np.array_equal(inputs.numpy(), lines().train.inputs[:3].astype(np.float32))  # as they are


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.uint32, np.int64, np.bool_])
def test_labels_of_any_whole_type_are_the_same_labels(dtype):
    task = pictures().task()
    few = task.train.targets % 2
    train = replace(task.train, targets=few.astype(dtype))
    _, targets = Batches(replace(task, train=train)).take(np.arange(40))
    assert targets.dtype == torch.int64
    assert targets.tolist() == few[:40].tolist()


# transforms


def test_a_transform_is_told_whether_it_is_training():
    asked = []

    def transform(inputs: Tensor, training: bool) -> Tensor:
        asked.append((tuple(inputs.shape), training))
        return inputs

    config = task_config(*SIGNALS, "rounds=1", 'algorithms=["afl"]')
    run_row(station_of(config, "afl", onboard=onboard_of(config, replace(signals(), transform=transform))))
    assert {training for _, training in asked} == {True, False}
    assert [shape for shape, training in asked if training] == [(8, 2, 128)] * 9  # three vehicles, three batches
    assert [shape for shape, training in asked if not training] == [(100, 2, 128)]


def test_a_transform_is_as_if_the_inputs_were_so():
    task = signals()
    doubled = [Samples(2 * part.inputs, part.targets, part.places) for part in (task.train, task.test)]
    config = task_config(*SIGNALS, "rounds=2", 'algorithms=["afl"]')
    found = []
    for each in (replace(task, train=doubled[0], test=doubled[1]), replace(task, transform=lambda x, _: 2 * x)):
        memory = run_row(station_of(config, "afl", onboard=onboard_of(config, each)))
        found.append((memory.states[-1]["weights"].tobytes(), memory.reports[-1].tested.loss))
    assert found[0] == found[1]


def noisy(inputs: Tensor, training: bool) -> Tensor:
    return inputs + 0.1 * torch.randn(inputs.shape) if training else inputs


def test_random_transforms_follow_the_seed_and_leave_torch_s_generator_alone():
    config = task_config(*SIGNALS, 'algorithms=["afl"]')
    found = []
    for seed, order in ((1, [0, 1, 2]), (2, [2, 1, 0])):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        station = station_of(config, "afl", onboard=onboard_of(config, replace(signals(), transform=noisy)))
        uploads = exchanged(station, 1, vehicles=order)[1].uploads
        found.append({upload.vehicle: upload.data for upload in uploads})
        assert torch.equal(torch.get_rng_state(), before)
    assert found[0] == found[1]
    plain = exchanged(station_of(config, "afl", onboard=onboard_of(config, signals())), 1)[1].uploads
    assert {upload.vehicle: upload.data for upload in plain} != found[0]


# uneven pools


def truth(per_place: int = 100, places: int = 6) -> np.ndarray:
    return np.random.default_rng(3).permutation(np.repeat(np.arange(places), per_place))


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("vehicles", [1, 3, 10])
def test_uneven_pools_are_disjoint_complete_and_the_same_again(alpha, vehicles):
    pools = split_pools(truth(), 6, vehicles, 0, "train", alpha)
    everything = np.sort(np.concatenate([own for pool in pools for own in pool]))
    assert everything.tolist() == list(range(600))
    assert all((truth()[own] == c).all() for pool in pools for c, own in enumerate(pool))
    again = split_pools(truth(), 6, vehicles, 0, "train", alpha)
    assert all(
        np.array_equal(a, b) for one, other in zip(pools, again, strict=True) for a, b in zip(one, other, strict=True)
    )


def shares(alpha: float | None, seed: int = 0, part: str = "train", per_place: int = 1000) -> np.ndarray:
    """(vehicles, places): which share of a place's samples each vehicle gets."""
    pools = split_pools(truth(per_place), 6, 5, seed, part, alpha)
    return np.array([[len(own) for own in pool] for pool in pools]) / per_place


def test_the_smaller_the_parameter_the_more_uneven():
    spread = [
        np.mean([shares(alpha, seed).std(axis=0).mean() for seed in range(10)]) for alpha in (0.1, 1.0, 10.0, 1e4)
    ]
    assert spread == sorted(spread, reverse=True)
    assert spread[0] > 0.25  # one vehicle with everything would give 0.4
    assert spread[-1] < 0.01
    assert np.ptp(shares(None)) == 0


def test_every_place_is_shared_out_in_its_own_way_and_seeds_in_theirs():
    one = shares(0.3)
    assert len({tuple(column) for column in one.T}) == 6
    assert not np.array_equal(one, shares(0.3, seed=1))


def test_training_and_test_samples_are_shared_out_alike():
    assert np.abs(shares(0.3) - shares(0.3, part="test", per_place=200)).max() <= 1 / 200


def test_the_mean_share_is_even():
    mean = np.mean([shares(0.5, seed, per_place=100) for seed in range(200)], axis=0)
    assert np.abs(mean - 0.2).max() < 5 * 0.4 / (1.5 * 200) ** 0.5 / 1.5


def test_the_setting_reaches_the_world_and_changes_who_holds_what():
    task, plan = pictures(train=300).task(), fleet_plan()
    more = ("seed=2", "sensing.initial=200", "sensing.n_max=200")
    even, skewed, again = (
        world_of(tiny_config(*more, *skew), task, plan)
        for skew in ((), ("data.dirichlet=0.3",), ("data.dirichlet=0.3",))
    )
    for t in range(3):
        assert [skewed.observe(u, t).tolist() for u in range(3)] == [again.observe(u, t).tolist() for u in range(3)]
        assert len(set(skewed.union(t).tolist())) == len(skewed.union(t))
    assert even.samples(2).tolist() != skewed.samples(2).tolist()


def test_a_world_may_answer_its_flights_round_by_round(monkeypatch):
    config, task, plan = tiny_config(), pictures().task(), fleet_plan()
    whole = world_of(config, task, plan)
    monkeypatch.setattr(World, "stretch", lambda world, t: plan.positions[:, t : t + 1])
    cut = world_of(config, task, plan)
    for t in range(3):
        assert [cut.observe(u, t).tolist() for u in range(3)] == [whole.observe(u, t).tolist() for u in range(3)]
        assert cut.brief(1, t) == whole.brief(1, t)
        assert cut.flights.metres(1, t) == whole.flights.metres(1, t) == [np.hypot(200, 10), 200.0, 200.0][t]
        assert np.array_equal(cut.tested(t), whole.tested(t))


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "some", "0.0"])
def test_a_parameter_that_cannot_be_is_refused(value):
    with pytest.raises(BadInputError, match=r"^data\.dirichlet") as caught:
        tiny_config(f"data.dirichlet={value}")
    assert "\n" not in str(caught.value)


def test_a_vehicle_that_would_start_with_nothing_is_named():
    config = tiny_config("data.dirichlet=0.001", "seed=1")
    with pytest.raises(BadInputError, match=r"starts without a sample; .* a larger data\.dirichlet") as caught:
        world_of(config, pictures().task(), fleet_plan())
    assert "\n" not in str(caught.value)


# bad tasks


def changed(part: str = "train", **arrays: object) -> Task:
    task = signals()
    return replace(task, **{part: replace(getattr(task, part), **arrays)})


WHOLE = signals()
BAD = {
    "no task": ("nothing", "gave a str; allowed: a skyfed.tasks.Task"),
    "none": (None, "gave a NoneType"),
    "no places": (replace(WHOLE, places=()), "0 places; allowed: 1 to 10000"),
    "too many places": (replace(WHOLE, places=("p",) * 10_001), "10001 places"),
    "fewer targets": (
        changed(targets=WHOLE.train.targets[:9]),
        "train: inputs, targets and places must have one length",
    ),
    "fewer places": (changed("test", places=WHOLE.test.places[:9]), "test: inputs, targets and places must have"),
    "nothing to test": (
        replace(WHOLE, test=Samples(WHOLE.test.inputs[:0], WHOLE.test.targets[:0], WHOLE.test.places[:0])),
        "above 0",
    ),
    "places of floats": (changed(places=WHOLE.train.places + 0.5), "places must be whole numbers"),
    "a place too far": (changed(places=WHOLE.train.places + 1), "places must be 0 to 3"),
    "a place below": (changed("test", places=WHOLE.test.places - 1), "places must be 0 to 3"),
    "other inputs": (changed("test", inputs=WHOLE.test.inputs[:, :1]), "differ in shape"),
    "other targets": (changed("test", targets=WHOLE.test.targets[:, :1]), "differ in shape"),
    "a NaN": (changed(inputs=WHOLE.train.inputs * np.nan), "train inputs must be finite numbers"),
    "an infinite target": (changed("test", targets=WHOLE.test.targets + np.inf), "test targets must be finite"),
    "words": (changed(targets=np.full((400, 3), "a")), "must be finite numbers"),
    "objects": (changed(inputs=WHOLE.train.inputs.astype(object)), "must be finite numbers"),
    "no outputs": (replace(WHOLE, outputs=0), "outputs must be 1 or more"),
    "a loss by its name": (replace(WHOLE, loss="cross_entropy"), "loss is a str; allowed: a function"),
    "a metric that is a number": (replace(WHOLE, metrics={"error": 3}), "error is a int; allowed: a function"),
    "labels above the outputs": (
        replace(pictures().task(), outputs=3),
        "targets are 0 to 3; allowed with outputs = 3: 0 to 2",
    ),
}


@pytest.mark.parametrize(("task", "expected"), BAD.values(), ids=BAD)
def test_tasks_that_cannot_be_are_refused_in_one_line(task, expected):
    with pytest.raises(BadInputError) as caught:
        check_task(task, "mine.py:load")
    message = str(caught.value)
    assert expected in message
    assert message.startswith("data.name = 'mine.py:load': ")
    assert "\n" not in message
    assert check_task(WHOLE, "mine.py:load") is WHOLE


def binary(outputs, targets, reduction="mean"):
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction=reduction)


LABELLED, NUMBERS = pictures().task(), np.linspace(0, 1, 400)
REAL = replace(WHOLE, train=replace(WHOLE.train, targets=NUMBERS), outputs=1)
JUDGED = {
    "a loss of one number": (
        replace(LABELLED, loss=lambda outputs, targets, reduction="mean": functional.cross_entropy(outputs, targets)),
        "loss of the task: ValueError: gave shape () for 4 samples (allowed: as torch's own, with reduction=",
    ),
    "a loss without a reduction": (
        replace(LABELLED, loss=lambda outputs, targets: None), "'reduction' (allowed: as torch's own, with reduction="
    ),
    "a score of one number": (
        replace(LABELLED, score=lambda outputs, targets: outputs.mean()), "() for 4 samples (allowed: one number per sa"
    ),
    "a score per label": (
        replace(WHOLE, score=lambda outputs, targets: outputs > 0), "gave shape (2, 3) for 2 samples (allowed: one numb"
    ),
    "a score above 1": (
        replace(LABELLED, score=lambda outputs, targets: 5.0 * (targets + 1)), "gave 5 to 20 (allowed: one number per"
    ),
    "true and false": (
        replace(REAL, train=replace(REAL.train, targets=NUMBERS > 0.5), loss=binary),
        "(true and false reach it as whole numbers; a loss of real numbers needs float32 targets)",
    ),
    "several true and false": (
        changed(targets=WHOLE.train.targets > 0), "(several labels must be float32)"
    ),
    "real numbers as labels": (
        replace(REAL, loss=cross_entropy), "(real targets need a loss of real numbers, as torch.nn.functional.mse_loss)"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("task", "expected"), JUDGED.values(), ids=JUDGED)
def test_a_loss_or_score_that_does_not_fit_the_targets_is_refused_with_what_would(task, expected):
    with pytest.raises(BadInputError) as caught:
        try_task(task)
    assert expected in str(caught.value), caught.value
    try_task(WHOLE)
    try_task(LABELLED)


def test_a_loader_that_gives_other_samples_in_a_worker_is_noticed(tmp_path):
    text = """
import os
import numpy as np
from skyfed.tasks import Samples, Task

def load():
    seed = {}
    samples = Samples(np.random.default_rng(seed).random((40, 4), np.float32), np.arange(40) % 4, np.arange(40) % 4)
    return Task(samples, samples, ("a", "b", "c", "d"), 4)
"""
    for name, seed in (("fixed.py", "0"), ("fickle.py", "os.getpid()")):
        (tmp_path / name).write_text(text.format(seed))
        config = tiny_config(f"data.name={tmp_path / name}:load", "model.name=mlp", "algorithms=['afl']")
        onboard = onboard_of(config, load_task(config.data))
        with PoolDriver(onboard, 2) as driver:
            station = station_of(config, "afl", driver, onboard)
            if seed == "0":
                assert federated_round(station, 0, start_of(station))[1].uploads
                continue
            with pytest.raises(BadInputError, match="gave other samples in a worker process"):
                federated_round(station, 0, start_of(station))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def load(): raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("def load(needed): pass", "TypeError"),
        ("load = 3", "TypeError"),
        ("def load(): raise SystemExit(2)", "SystemExit"),
        ("def other(): pass", "no 'load' there; it defines other"),
        ("raise ValueError('broken')", "ValueError: broken"),
    ],
)
def test_loaders_that_go_wrong_are_refused_in_one_line(tmp_path, text, expected):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(BadInputError) as caught:
        load_task(DataSettings(name=f"{tmp_path}/mine.py:load"))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_models_that_do_not_fit_the_shape_are_refused_in_one_line():
    for overrides, task in ((("model.name=resnet18",), signals()), (("model.name=cnn",), lines())):
        with pytest.raises(BadInputError) as caught:
            onboard_of(task_config(*overrides), task)
        assert "\n" not in str(caught.value)
        assert str(task.shape) in str(caught.value)
