"""Measures a vehicle's loss and gradient around two models: what Theorem 1 needs to know (A1, A2, Eq. 18)."""

from collections.abc import Sequence

import numpy as np

from skyfed.learning.engine import Engine
from skyfed.learning.probe import Partition, curvature, losses, spread, sums
from skyfed.learning.settings import TrainSettings
from skyfed.rng import stream
from skyfed.theory.settings import TheorySettings
from skyfed.types import Ints, Model, Singles


def probe_vehicle(
    engine: Engine,
    train: TrainSettings,
    theory: TheorySettings,
    now: Model,
    after: Model,
    sets: Sequence[Ints],
    key: tuple[int, int, int],
) -> tuple[dict[str, float], Singles]:
    """Measure a vehicle's loss around two models; `sets` are its samples of the rounds before, now and after.

    key: seed, round and vehicle of the random stream for the curvature.
    """
    seed, t, vehicle = key
    model, batches, loss = engine.training(), engine.batches, engine.task.loss
    total = len(engine.task.train)
    parts = Partition(sets[0], sets[1], sets[2], train.batch_size, theory.batches, seed, total)
    model.load(now.weights, now.buffers)
    old = sums(model, batches, parts.same(), loss)
    here = old.plus(sums(model, batches, parts.new(), loss))
    shift = here.mean - old.plus(sums(model, batches, parts.changed(), loss)).mean
    model.load(after.weights, after.buffers)
    there = sums(model, batches, parts.now, loss)
    later = losses(model, batches, parts.after, loss)
    pairs = [batches.narrow().take(part) for part in parts.now[: theory.beta_batches]]
    rng = stream(seed, "theory curvature", t, vehicle)
    bent = curvature(engine.plain(now.weights), pairs, theory.beta_steps, rng, loss)
    far = float(np.linalg.norm(after.weights.astype(np.float64) - now.weights))
    words = {
        "sigma2": spread(here, train.batch_size),
        "phi": float(shift @ shift),
        "now": here.loss / here.count,
        "kept": there.loss / there.count,
        "after": later,
        "curvature": bent,
        "secant": float(np.linalg.norm(there.mean - here.mean)) / far if far else 0.0,
    }
    return words, here.mean.astype(np.float32)
