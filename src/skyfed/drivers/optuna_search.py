"""Runs a search: a sampler says what to try next, by the results so far; the only place that knows Optuna.

Several processes may run one search in one folder. Trials follow from the results alone, so each of them knows what to
try; they share the runs of a batch, and the list of trials is read and written in turn.
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from skyfed.drivers.run_log import lengths
from skyfed.drivers.sweep_jobs import run_jobs
from skyfed.errors import BadInputError, SkyfedError
from skyfed.files import write_whole
from skyfed.rng import stream
from skyfed.runs.listing import look
from skyfed.runs.lock import in_turn, locked
from skyfed.runs.search_space import Range, Search, SearchTable, Trial, Trials, Value
from skyfed.runs.sweep_file import TURN, SweepJob

Score = Callable[[SweepJob], float | None]


def require_optuna() -> None:
    """Raise BadInputError if the sampler is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise BadInputError('[search]: optuna is not installed; allowed: pip install "skyfed[tune]", or a [grid]')


def run_search(
    search: Search, trials: Trials, place: Path, parallel: int, score: Score, done: Callable[[], None]
) -> list[str]:
    """Run trials until there are as many as asked for; returns a line for each that failed. A signal keeps all rounds.

    `score` gives the goal of a finished run, None of any other; `done` is called after each trial.
    """
    lines: list[str] = []
    since, counted = lengths(place / "logs"), 0
    with locked(place, shared=True):
        while waiting := _waiting(search, trials, place):
            ended = len(trials) - len(waiting)
            for _ in range(counted, ended):
                done()
            counted = ended
            jobs, bad = _jobs(search, waiting)
            runs = [job for own in jobs.values() for job in own]
            failures = run_jobs(runs, place, parallel, lambda job: None, since, wait=True).failures
            lines += bad + failures
            with in_turn(place / TURN):
                _tell(search, trials, waiting, jobs, place, score, failures)
    for _ in range(counted, len(trials)):
        done()
    return lines


def ask(table: SearchTable, trials: Sequence[Trial]) -> list[dict[str, Value]]:
    """Return the values of the next trials, up to the end of their batch.

    They follow from the seed and the results of the batches before alone: neither stops nor processes matter.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    first = len(trials) // table.batch * table.batch
    seed = int(stream(table.seed, "search", first).integers(2**31))
    sampler = optuna.samplers.RandomSampler(seed=seed)
    if table.sampler == "tpe":
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=table.batch > 1)
    study = optuna.create_study(direction="maximize" if table.upwards else "minimize", sampler=sampler)
    axes = {key: _axis(span) for key, span in table.ranges.items()}
    for trial in trials[:first]:
        state = optuna.trial.TrialState.FAIL if trial.result is None else optuna.trial.TrialState.COMPLETE
        known = optuna.trial.create_trial(params=trial.values, distributions=axes, value=trial.result, state=state)
        study.add_trial(known)
    asked = [dict(study.ask(axes).params) for _ in range(min(first + table.batch, table.trials) - first)]
    return asked[len(trials) - first :]


def best_config(search: Search, best: Trial) -> str:
    """Return the best trial's config, which runs as it is."""
    text = search.jobs(best.values, best.name)[0].config.to_toml()
    return f"# {best.name} of {search.path.name}: {search.table.goal} of {search.algorithm} {best.result:g}\n{text}"


def _waiting(search: Search, trials: Trials, place: Path) -> list[Trial]:
    """Return the trials that have no result yet, new ones if there are none; nothing once the search is at its end."""
    with in_turn(place / TURN):
        trials.reload()
        if all(trial.state != "asked" for trial in trials) and len(trials) < search.table.trials:
            trials.add(ask(search.table, list(trials)))
    return [trial for trial in trials if trial.state == "asked"]


def _jobs(search: Search, waiting: list[Trial]) -> tuple[dict[int, list[SweepJob]], list[str]]:
    """Return the runs of each trial by its number, and a line for each whose values do not go together."""
    jobs, lines = {}, []
    for trial in waiting:
        try:
            jobs[trial.number] = search.jobs(trial.values, trial.name)
        except BadInputError as error:  # each value is allowed, all together are not
            lines.append(f"{trial.name}: {error}")
    return jobs, lines


def _tell(
    search: Search,
    trials: Trials,
    waiting: list[Trial],
    jobs: dict[int, list[SweepJob]],
    place: Path,
    score: Score,
    failures: list[str],
) -> None:
    """Keep the results of a batch that has ended, unless another process has done so, and the best config so far."""
    trials.reload()
    told = {trial.number for trial in trials if trial.state != "asked"}
    for number in [trial.number for trial in waiting if trial.number not in told]:
        results = [(job, score(job)) for job in jobs.get(number, [])]
        without = [job for job, result in results if result is None]
        if any(look(place / job.place).state not in ("diverged", "failed") for job in without):
            raise SkyfedError("; ".join(failures))  # killed, not failed: the trial stays open
        trials.tell(number, None if without or not results else [each for _, each in results if each is not None])
    if ranked := trials.ranked(search.table.upwards):
        write_whole(place / "best.toml", best_config(search, ranked[0]).encode())


def _axis(span: Range) -> Any:
    import optuna

    if span.choices is not None:
        return optuna.distributions.CategoricalDistribution(span.choices)
    if span.whole:
        return optuna.distributions.IntDistribution(span.low, span.high, span.log, span.step or 1)
    return optuna.distributions.FloatDistribution(span.low, span.high, span.log, span.step)
