"""Accuracy per vehicle: by its definition, and the same in tables, in `skyfed evaluate`, in lists and on the page."""

import json
from pathlib import Path

import numpy as np
import pytest

import skyfed
from skyfed.cli import run_arguments
from skyfed.config import load_config
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.runs.start import world_of
from skyfed.runs.tables import Table
from skyfed.tasks import Samples, load_task
from skyfed.world import World
from skyfed.world.fairness import Fairness, fairness_of, vehicle_accuracy

ROOT = Path(__file__).parents[1]


def test_by_hand():
    by_class = np.array([[1.0, 0.5, np.nan], [1.0, 0.5, np.nan], [1.0, 0.5, np.nan]])
    sensed = np.array([[3, 1, 0], [0, 2, 5], [0, 0, 4]])  # of class 2 there is no test sample
    assert np.allclose(vehicle_accuracy(by_class, sensed), [0.875, 0.5, np.nan], equal_nan=True)


def test_it_is_the_score_over_samples_weighted_by_class_shares():
    """By definition: sum_i w_i s_i with w_i = share of the sample's class / number of test samples of the class."""
    rng = np.random.default_rng(0)
    places, score = rng.integers(4, size=500), rng.random(500)
    sensed = rng.integers(1, 60, (5, 4))
    by_class = np.array([score[places == c].mean() for c in range(4)])
    found = vehicle_accuracy(np.tile(by_class, (5, 1)), sensed)
    for u in range(5):
        weights = (sensed[u] / sensed[u].sum())[places] / np.bincount(places)[places]
        assert weights.sum() == pytest.approx(1)
        assert found[u] == pytest.approx(weights @ score)


def test_one_class_has_no_vehicle_of_its_own():
    assert np.isnan(vehicle_accuracy(np.ones((3, 1)), np.ones((3, 1), int))).all()


def test_the_figures_of_fairness():
    assert fairness_of(None) is fairness_of([]) is fairness_of([None]) is None
    assert fairness_of([0.4, None, 0.8]) == Fairness(pytest.approx(0.6), 0.4, 0.4, pytest.approx(0.6), 0.8)
    spread = fairness_of([k / 100 for k in range(25)])
    assert spread.worst_tenth == pytest.approx((0 + 1 + 2) / 300)  # a tenth of 25, rounded up
    assert (spread.worst, spread.median, spread.best) == (0.0, 0.12, 0.24)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A central row, and one with several models."""
    place = tmp_path_factory.mktemp("fair") / "run"
    rows = ["sgd", "afl", f"{ROOT / 'examples/clustered.py'}:Clustered"]
    sizes = {"rounds": 2, "vehicles": 3, "workers": 1, "model": {"name": "mlp", "width": 8}}
    skyfed.run("smoke", out=place, progress=False, algorithms=rows, eval_every=2, **sizes)
    return place


def test_evaluate_computes_what_was_recorded_with_the_last_test(run, capsys):
    capsys.readouterr()
    assert run_arguments(["evaluate", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert [score["algorithm"] for score in scores] == ["sgd", "afl", "Clustered"]
    for score in scores:
        untested, tested = Table(run / score["algorithm"], "rounds").rows()
        assert untested["accuracy_vehicle"] is None
        assert score["vehicles"] == pytest.approx(tested["accuracy_vehicle"])
        assert score["accuracy"] == pytest.approx(tested["accuracy_full"])
        assert score["fairness"]["worst"] == min(score["vehicles"])
        assert score["not_defined"] == ""
        assert (score["samples"], score["metrics"]) == (1500, {})


def test_lists_and_tables_show_it(run, capsys):
    capsys.readouterr()
    assert run_arguments(["evaluate", str(run), "--algorithm", "afl"]) == 0
    tested = Table(run / "afl", "rounds").rows()[-1]["accuracy_vehicle"]
    said = capsys.readouterr().out
    assert "each on its own test data" in said
    assert f"{100 * min(tested):.1f}" in said
    assert run_arguments(["runs", str(run), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["trained"][1]["fairness"]["worst"] == min(tested)


def test_the_page_shows_it_for_every_algorithm(run, tmp_path):
    page = skyfed.load(run).report(tmp_path / "page.html").read_text()
    section = page[page.index('id="per-vehicle"') : page.index("</section>", page.index('id="per-vehicle"'))]
    for name in ("sgd", "afl", "Clustered"):
        tested = Table(run / name, "rounds").rows()[-1]["accuracy_vehicle"]
        row = section[section.index(f'data-algorithm="{name}"') :].partition("</tr>")[0]
        assert f'<td class="number">{100 * min(tested):.1f}</td>' in row
        assert row.count("--at:") == 3


def test_what_was_sensed_counts_also_when_it_is_no_longer_held(run):
    config = load_config(run / "config.toml")
    task, plan = load_task(config.data), load_fleet_plan(run / "plan.npz")
    short = config.model_copy(update={"sensing": config.sensing.model_copy(update={"keep_last": 5})})
    whole, forgetful = (world_of(each, task, plan) for each in (config, short))
    assert (whole.sensed(1) == forgetful.sensed(1)).all()
    assert whole.sensed(1).sum() == whole.samples(1).sum() > forgetful.samples(1).sum()
    assert (whole.sensed(1) >= whole.sensed(0)).all()


class Camera(World):
    """A world whose vehicles bring samples of their own, some of a place that is not known."""

    def observe(self, vehicle, t):
        some = self.task.train.some(np.arange(4 * vehicle, 4 * vehicle + 4))
        return Samples(some.inputs, some.targets, np.array([0, 1, 1, -1]))


def test_a_world_of_ones_own_is_asked_what_it_sensed(run):
    config = load_config(run / "config.toml").model_copy()
    config = config.model_copy(update={"world": config.world.model_copy(update={"use": f"{__name__}:Camera"})})
    world = world_of(config, load_task(config.data), load_fleet_plan(run / "plan.npz"))
    assert world.sensed(1).tolist() == [[1, 2, *[0] * 8]] * 3


def test_a_task_of_one_place_says_that_it_is_not_defined(tmp_path, capsys, monkeypatch):
    (tmp_path / "my_task.py").write_text(
        "import numpy as np\nfrom skyfed import Samples, Task\n\n"
        "def part(n, seed):\n    x = np.random.default_rng(seed).normal(size=(n, 4)).astype('float32')\n"
        "    return Samples(x, (x[:, 0] > 0).astype(int), np.zeros(n, int))\n\n"
        "def sure(outputs, targets):\n    return outputs.softmax(1).max(1).values\n\n"
        "def load():\n    return Task(part(400, 1), part(100, 2), ('everywhere',), 2, metrics={'sure': sure})\n"
    )
    settings = {"data": {"name": f"{tmp_path / 'my_task.py'}:load"}, "field": {"classes": 1}, "flight": {"imax": 1}}
    sizes = {"rounds": 2, "vehicles": 2, "workers": 1, "model": {"name": "mlp", "width": 8}}
    place = tmp_path / "run"
    skyfed.run("smoke", out=place, progress=False, algorithms=["afl"], **settings, **sizes)
    assert Table(place / "afl", "rounds").rows()[-1]["accuracy_vehicle"] is None
    capsys.readouterr()
    assert run_arguments(["evaluate", str(place), "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)
    assert score["fairness"] is score["vehicles"] is None
    assert "one class" in score["not_defined"]
    assert score["metrics"]["sure"] == pytest.approx(Table(place / "afl", "rounds").rows()[-1]["sure"])
    assert run_arguments(["evaluate", str(place)]) == 0
    said = capsys.readouterr().out
    assert "accuracy per vehicle is not defined for AFL: the data has one class" in said
    assert "sure" in said
