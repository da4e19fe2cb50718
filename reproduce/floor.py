"""What is left of each error as both learning rates shrink, seen in training: quadratic losses, one error at a time.

The bound says what may be left; here models are trained until nothing but the error moves them, and the squared norm of
the masked gradient is measured.
"""

from dataclasses import dataclass

import numpy as np

from skyfed.rng import stream
from skyfed.types import Floats, Ints

RATES = (0.5, 0.05, 0.005)  # of 1 / (4 beta kappa), the corrected bound's first condition
_KAPPA = 5
_SETTLING, _MEASURED = 6, 6  # lengths, in times that the slowest direction needs to shrink to 1/e


@dataclass(frozen=True)
class Errors:
    """f_u(w) = (w - c_u)' H_u (w - c_u) / 2 for U vehicles in n dimensions, and what disturbs training.

    hessians  (U, n, n)         centres  (U, n)
    noise     variance of a mini-batch's gradient        q  relative variance of the quantiser; 0 uploads raw
    delta     lowest and highest share of the smallest weights that a vehicle prunes in a round
    """

    hessians: Floats
    centres: Floats
    noise: float = 0.0
    q: float = 0.0
    delta: tuple[float, float] = (0.0, 0.0)

    @property
    def curvatures(self) -> tuple[float, float]:
        """Smallest and largest eigenvalue of all Hessians."""
        found = np.linalg.eigvalsh(self.hessians)
        return float(found.min()), float(found.max())

    @property
    def optimum(self) -> Floats:
        """Where the mean of the losses is smallest."""
        pull = np.einsum("uij,uj->i", self.hessians, self.centres)
        return np.linalg.solve(self.hessians.sum(axis=0), pull)


def one_at_a_time(vehicles: int = 10, n: int = 20) -> dict[str, Errors]:
    """Return problems that each have one error of the bound, with the paper's pruning ratios."""
    rng = stream(0, "floor")
    hessians = np.empty((vehicles, n, n))
    for u in range(vehicles):
        turn, _ = np.linalg.qr(rng.standard_normal((n, n)))
        hessians[u] = turn @ np.diag(rng.uniform(0.5, 2, n)) @ turn.T
    same = np.tile(rng.standard_normal(n), (vehicles, 1))
    return {
        "gradient noise x quantisation": Errors(hessians, same, noise=1.0, q=5.0),
        "dissimilarity": Errors(hessians, same + rng.standard_normal((vehicles, n))),
        "pruning": Errors(hessians, same, delta=(0.05, 0.7)),
    }


def settle(problem: Errors, share: float, copies: int = 16) -> float:
    """Train several copies from the optimum on and return the mean squared norm of the masked gradient once settled.

    share  both learning rates, of the largest that the bound's first condition allows
    """
    vehicles, n = problem.centres.shape
    least, most = problem.curvatures
    rate = share / (4 * most * _KAPPA)
    slow = int(np.ceil(1 / (rate * _KAPPA * least)))  # rounds
    rng = stream(0, "floor training")
    w = np.tile(problem.optimum, (copies, 1))
    total = 0.0
    for t in range((_SETTLING + _MEASURED) * slow):
        masks = _masks(w, rng.uniform(*problem.delta, (vehicles, copies)))
        if t >= _SETTLING * slow:
            total += float(np.sum(np.mean(_gradients(problem, w) * masks, axis=0) ** 2)) / copies
        local = w * masks
        for _ in range(_KAPPA):
            step = _gradients(problem, local)
            if problem.noise:
                step = step + rng.standard_normal(step.shape) * (problem.noise / n) ** 0.5
            local = local - rate * masks * step
        uploads = (w * masks - local) / rate
        if problem.q:
            sent = rng.random((vehicles, copies, 1)) < 1 / (1 + problem.q)
            uploads = uploads * sent * (1 + problem.q)
        w = w - rate * uploads.mean(axis=0)
    return total / (_MEASURED * slow)


def _gradients(problem: Errors, w: Floats) -> Floats:
    """(U, copies, n) gradients of the local losses; w is (copies, n) or (U, copies, n)."""
    return np.asarray(np.matmul(w - problem.centres[:, None], problem.hessians))


def _masks(w: Floats, delta: Floats) -> Floats:
    """Drop the round(delta n) smallest magnitudes; delta is (U, copies), the masks are (U, copies, n)."""
    n = w.shape[1]
    ranks: Ints = np.argsort(np.argsort(np.abs(w), axis=1), axis=1)
    return np.asarray(ranks >= np.round(delta * n)[..., None], float)
