"""Searches: what a file may ask for, trials that follow from seed and results alone, stops that change nothing."""

import importlib.util
import json
from pathlib import Path

import pytest

import wording
from in_process import Popen
from skyfed.cli import run_arguments
from skyfed.config import load_config
from skyfed.drivers import optuna_search as driver
from skyfed.drivers.optuna_search import ask, best_config, run_search
from skyfed.drivers.sweep_jobs import Outcome
from skyfed.errors import BadInputError, SkyfedError
from skyfed.runs.folder import RunFolder
from skyfed.runs.search_space import Search, SearchTable, Trial, Trials, read_search
from skyfed.runs.sweep_file import SweepJob

TINY = """
base = "smoke"
set = ["rounds=2", "vehicles=2", 'algorithms=["afl"]', 'flight.method="greedy"', "workers=1"]
"""
TABLE = """
[search]
trials = 6
sampler = "random"
[search.ranges]
"train.eta" = {low = 0.01, high = 0.3, log = true}
"train.batch_size" = {low = 8, high = 32, step = 8}
"prune.granularity" = {choices = ["weight", "channel"]}
"""


def written(folder: Path, text: str = TINY + TABLE) -> Path:
    path = folder / "search.toml"
    path.write_text(text)
    return path


def read(folder: Path, text: str = TINY + TABLE) -> Search:
    found = read_search(written(folder, text))
    assert found is not None
    return found


# what a file may say


def test_a_search_as_its_file_says(tmp_path):
    found = read(tmp_path, TINY + 'seeds = "0-1"' + TABLE)
    assert (found.algorithm, found.table.upwards, found.table.trials) == ("afl", True, 6)
    jobs = found.jobs({"train.eta": 0.05, "prune.granularity": "channel"}, "trial-0003")
    assert [str(job.place) for job in jobs] == ["trial-0003/seed-0", "trial-0003/seed-1"]
    assert (jobs[1].config.train.eta, jobs[1].config.prune.granularity, jobs[1].config.seed) == (0.05, "channel", 1)


def test_a_file_without_the_table_is_no_search(tmp_path):
    assert read_search(written(tmp_path, TINY)) is None


def test_less_of_some_goals_is_better(tmp_path):
    for goal, upwards in (("accuracy", True), ("forgetting", False), ("joules", False)):
        assert read(tmp_path, TINY + TABLE.replace("trials", f'goal = "{goal}"\ntrials')).table.upwards == upwards
    for goal in ("uplink_bytes", "total_bytes", "mission_seconds"):
        assert not read(tmp_path, TINY + TABLE.replace("trials", f'goal = "{goal}"\ntrials')).table.upwards
    assert not read(tmp_path, TINY + TABLE.replace("trials", 'direction = "minimize"\ntrials')).table.upwards


def test_the_papers_law_has_no_mission_to_shorten(tmp_path):
    law = TINY.replace("workers=1", 'world.time=law", "sensing.model=eq6", "field.follows=rounds')
    with pytest.raises(BadInputError, match=r'"mission_seconds": allowed with world\.time = "mission"'):
        read(tmp_path, law + TABLE.replace("trials", 'goal = "mission_seconds"\ntrials'))


def bad(line: str) -> str:
    return f"[search]\ntrials = 2\n[search.ranges]\n{line}\n"


BAD = {
    "no trials": ("[search]\n[search.ranges]\nrounds = {low = 1, high = 3}", "search.trials"),
    "none at all": ("[search]\ntrials = 0\n[search.ranges]\nrounds = {low = 1, high = 3}", "search.trials"),
    "no ranges": ("[search]\ntrials = 2", "search.ranges"),
    "empty ranges": (bad(""), "search.ranges"),
    "no table": ("search = 3", "search"),
    "an unknown key": (bad("rounds = {low = 1, high = 3}").replace("trials", "budget = 1\ntrials"), "search.budget"),
    "an unknown goal": (bad("rounds = {low = 1, high = 3}").replace("trials", "goal = 'fame'\ntrials"), "search.goal"),
    "a goal of none": (bad("rounds = {low = 1, high = 3}").replace("trials", "algorithm = 'sgd'\ntrials"), "'sgd'"),
    "low above high": (bad("rounds = {low = 3, high = 1}"), "low below high"),
    "a low alone": (bad("rounds = {low = 3}"), "low below high"),
    "no end": (bad("'train.eta' = {low = 0.1, high = inf}"), "low below high"),
    "not a number": (bad("'train.eta' = {low = nan, high = 1.0}"), "low below high"),
    "log of zero": (bad("'train.eta' = {low = 0.0, high = 1.0, log = true}"), "low above 0"),
    "log with steps": (bad("rounds = {low = 1, high = 9, log = true, step = 2}"), "low above 0"),
    "both": (bad("rounds = {low = 1, high = 3, choices = [1]}"), "choices alone"),
    "no choices": (bad("rounds = {choices = []}"), "choices"),
    "a list": (bad("rounds = [1, 2]"), "search.ranges.rounds"),
    "an unknown setting": (bad("'train.etta' = {low = 0.1, high = 0.3}"), "train.etta is not a setting"),
    "a bad end": (bad("rounds = {low = 0, high = 3}"), "rounds = 0"),
    "a bad choice": (bad("'flight.method' = {choices = ['exact', 'magic']}"), "magic"),
    "the seed": (bad("seed = {low = 0, high = 3}"), "seeds ="),
    "a grid too": (bad("rounds = {low = 1, high = 3}") + "[grid]\nvehicles = [1]", "one of them"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_a_bad_table_is_one_line_and_exit_code_2(tmp_path, capsys, text, says):
    path = written(tmp_path, ("" if text.startswith("search =") else TINY) + text)
    assert run_arguments(["sweep", str(path), "--out", str(tmp_path / "out"), "--plain"]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert wording.plain(said.strip())
    assert not (tmp_path / "out").exists()


def test_without_optuna_one_line_names_the_extra(tmp_path, capsys, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optuna" else real(name))
    assert run_arguments(["sweep", str(written(tmp_path)), "--out", str(tmp_path / "out"), "--plain"]) == 2
    assert 'pip install "skyfed[tune]"' in capsys.readouterr().err


# what is tried


def table(**changes: object) -> SearchTable:
    ranges = {
        "a": {"low": 0.01, "high": 1.0, "log": True}, "b": {"low": 1, "high": 9}, "c": {"choices": ["x", "y", 3, True]},
        "d": {"low": 0.0, "high": 1.0, "step": 0.25},
    }  # fmt: skip
    return SearchTable.model_validate({"trials": 20, "ranges": ranges, **changes})


def told(settings: SearchTable, count: int) -> list[Trial]:
    """Let a search go on with results that follow from the values."""
    trials: list[Trial] = []
    while len(trials) < count:
        for values in ask(settings, trials):
            trials.append(Trial(len(trials), values))
        trials = [
            Trial(one.number, one.values, "failed" if one.values["b"] == 9 else "done", (float(one.values["a"]),))
            for one in trials
        ]
    return trials


@pytest.mark.parametrize("sampler", ["tpe", "random"])
@pytest.mark.parametrize("batch", [1, 3])
def test_trials_follow_from_the_seed_and_the_results_alone(sampler, batch):
    settings = table(sampler=sampler, batch=batch)
    trials = told(settings, 20)
    assert len(trials) == 20
    for known in range(20):  # as after a stop anywhere
        wanted = [trial.values for trial in trials[known : (known // batch + 1) * batch]]
        assert ask(settings, trials[:known]) == wanted
    assert told(table(sampler=sampler, batch=batch, seed=1), 3) != trials[:3]


def test_more_trials_later_are_those_of_a_longer_search():
    short = told(table(trials=7, batch=3), 7)
    assert told(table(trials=20, batch=3), 20)[:7] == short


def test_values_stay_in_their_ranges_and_have_their_kinds():
    for trial in told(table(sampler="random"), 20):
        assert 0.01 <= trial.values["a"] <= 1
        assert type(trial.values["b"]) is int
        assert 1 <= trial.values["b"] <= 9
        assert trial.values["c"] in ["x", "y", 3, True]
        assert trial.values["d"] in [0, 0.25, 0.5, 0.75, 1]


def test_tpe_learns_from_results():
    late = [float(trial.values["a"]) for trial in told(table(trials=40), 40)[25:]]
    random = [float(trial.values["a"]) for trial in told(table(trials=40, sampler="random"), 40)[25:]]
    assert sum(late) > 1.5 * sum(random)


# running them


class Fake:
    """Runs the jobs of trials in no time; the goal is eta, and a large one diverges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop: int = -1, kill: int = -1) -> None:
        self.ran: list[str] = []
        self._stop, self._kill = stop, kill
        monkeypatch.setattr(driver, "run_jobs", self)

    def __call__(self, jobs: list[SweepJob], place: Path, *_: object, wait: bool) -> Outcome:
        failures = []
        for job in jobs:
            if len(self.ran) == self._stop:
                raise KeyboardInterrupt
            self.ran.append(str(job.place))
            with RunFolder.claim(place / job.place, job.config, []) as folder:
                if job.config.train.eta > 0.2 and len(self.ran) - 1 != self._kill:
                    folder.note(diverged={"afl": "too much"})
                    failures.append(f"{job.place}: too much (exit 1)")
        return Outcome(len(jobs), failures)

    def score(self, job: SweepJob) -> float | None:
        if self._kill >= 0 and str(job.place) == self.ran[-1] and len(self.ran) - 1 == self._kill:
            return None
        return None if job.config.train.eta > 0.2 else job.config.train.eta


def searched(search: Search, place: Path, fake: Fake) -> Trials:
    trials = Trials(place, search.about())
    run_search(search, trials, place, 1, fake.score, lambda: None)
    return trials


def test_a_search_ends_with_the_best_config_which_runs_as_it_is(tmp_path, monkeypatch):
    search = read(tmp_path, TINY + 'seeds = "3-4"' + TABLE)
    fake = Fake(monkeypatch)
    trials = searched(search, tmp_path / "out", fake)
    assert len(trials) == 6
    assert len(fake.ran) == 12
    assert {trial.state for trial in trials} == {"done", "failed"}
    best = trials.ranked(upwards=True)[0]
    assert best.result == max(trial.result for trial in trials if trial.result is not None)
    config = load_config(str(tmp_path / "out" / "best.toml"))
    assert config.train.eta == best.values["train.eta"]
    assert config.seed == 3
    assert (tmp_path / "out" / "best.toml").read_text() == best_config(search, best)
    assert trials.ranked(upwards=False)[0] != best


def test_a_stopped_search_goes_on_to_the_same_trials(tmp_path, monkeypatch):
    search = read(tmp_path)
    whole = searched(search, tmp_path / "whole", Fake(monkeypatch))
    for stop in (0, 3):
        with pytest.raises(KeyboardInterrupt):
            searched(search, tmp_path / "out", Fake(monkeypatch, stop))
    fake = Fake(monkeypatch)
    assert list(searched(search, tmp_path / "out", fake)) == list(whole)
    assert len(fake.ran) == 3  # what was done is not done again
    assert list(searched(search, tmp_path / "out", Fake(monkeypatch, 0))) == list(whole)  # nothing is left to run


def test_a_run_that_was_killed_leaves_its_trial_open(tmp_path, monkeypatch):
    search = read(tmp_path)
    with pytest.raises(SkyfedError):
        searched(search, tmp_path / "out", Fake(monkeypatch, kill=1))
    trials = Trials(tmp_path / "out", search.about())
    assert [trial.state for trial in trials] == ["done", "asked"]


def test_another_search_or_other_things_in_the_folder_are_refused(tmp_path, monkeypatch):
    search, place = read(tmp_path), tmp_path / "out"
    searched(search, place, Fake(monkeypatch))
    longer = read(tmp_path, TINY + TABLE.replace("trials = 6", "trials = 7"))
    assert len(searched(longer, place, Fake(monkeypatch))) == 7
    for text, says in (
        (TINY.replace("rounds=2", "rounds=3") + TABLE, "base differs"),
        (TINY + TABLE.replace("0.3", "0.4"), "ranges differs"),
        (TINY + 'seeds = "1"' + TABLE, "seeds differs"),
    ):
        with pytest.raises(BadInputError, match=says):
            Trials(place, read(tmp_path, text).about())
    (place / "thesis.tex").touch()
    with pytest.raises(BadInputError, match=r"holds thesis.tex"):
        Trials(place, longer.about())
    with pytest.raises(BadInputError, match="is a file"):
        Trials(tmp_path / "search.toml", search.about())


@pytest.mark.parametrize("text", ["[", "[]", "{}", '{"search": {}, "trials": [{"number": 3}]}', '{"search": 1}'])
def test_a_damaged_list_of_trials_is_refused_in_a_line(tmp_path, text):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "search.json").write_text(text)
    with pytest.raises(BadInputError, match=r"search.json") as caught:
        Trials(tmp_path / "out", read(tmp_path).about())
    assert "\n" not in str(caught.value)


def test_a_real_search_from_the_command_line(tmp_path, capsys, monkeypatch):
    """Its runs are in this process; those of tests/test_sweep.py have processes of their own."""
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.Popen", Popen)
    text = TINY + TABLE.replace("trials = 6", 'trials = 2\nbatch = 2\ngoal = "uplink_bytes"')
    words = ["sweep", str(written(tmp_path, text)), "--out", str(tmp_path / "out"), "--plain", "--jobs", "2"]
    assert run_arguments(words) == 0
    out = capsys.readouterr().out
    assert "2 trials, the best first" in " ".join(out.split())
    assert "uplink_bytes (kB)" in out
    trials = json.loads((tmp_path / "out" / "search.json").read_text())["trials"]
    assert [trial["state"] for trial in trials] == ["done", "done"]
    assert all(trial["results"][0] > 0 for trial in trials)
    assert load_config(str(tmp_path / "out" / "best.toml")).rounds == 2
    assert "2 runs side by side" in (tmp_path / "out" / "report.html").read_text()
    before = (tmp_path / "out" / "search.json").read_bytes()
    assert run_arguments(words) == 0
    assert (tmp_path / "out" / "search.json").read_bytes() == before


def test_what_a_killed_process_left_half_written_is_no_other_search(tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    (place / ".search.json.99999999.part").write_text("{")
    Trials(place, read(tmp_path).about())
    assert list(place.iterdir()) == []
