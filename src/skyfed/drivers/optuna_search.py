"""Runs a search: a sampler says what to try next, by the results so far; the only place that knows Optuna."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from skyfed.drivers.sweep_jobs import run_jobs
from skyfed.errors import BadInputError, SkyfedError
from skyfed.files import write_whole
from skyfed.rng import stream
from skyfed.runs.folder import locked
from skyfed.runs.listing import look
from skyfed.runs.search_space import Range, Search, SearchTable, Trial, Trials, Value
from skyfed.runs.sweep_file import SweepJob

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
    for trial in trials:
        if trial.state != "asked":
            done()
    with locked(place):
        while (waiting := [trial for trial in trials if trial.state == "asked"]) or len(trials) < search.table.trials:
            if not waiting:
                trials.add(ask(search.table, list(trials)))
                continue
            lines += _batch(search, trials, waiting, place, parallel, score)
            for _ in waiting:
                done()
            if ranked := trials.ranked(search.table.upwards):
                write_whole(place / "best.toml", best_config(search, ranked[0]).encode())
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


def _batch(search: Search, trials: Trials, waiting: list[Trial], place: Path, parallel: int, score: Score) -> list[str]:
    lines, jobs = [], {}
    for trial in waiting:
        try:
            jobs[trial.number] = search.jobs(trial.values, trial.name)
        except BadInputError as error:  # each value is allowed, all together are not
            lines.append(f"{trial.name}: {error}")
            trials.tell(trial.number, None)
    failures = run_jobs([job for own in jobs.values() for job in own], place, parallel, lambda job: None)
    for number, own in jobs.items():
        results = [(job, score(job)) for job in own]
        without = [job for job, result in results if result is None]
        if any(look(place / job.place).state not in ("diverged", "failed") for job in without):
            raise SkyfedError("; ".join(failures))  # killed, not failed: the trial stays open
        trials.tell(number, None if without else [result for _, result in results if result is not None])
    return lines + failures


def _axis(span: Range) -> Any:
    import optuna

    if span.choices is not None:
        return optuna.distributions.CategoricalDistribution(span.choices)
    if span.whole:
        return optuna.distributions.IntDistribution(span.low, span.high, span.log, span.step or 1)
    return optuna.distributions.FloatDistribution(span.low, span.high, span.log, span.step)
