"""Problems on which everything in the theorem is known exactly: quadratic losses, Gaussian noise, a known quantiser.

Expectations are computed, not sampled: means and covariances of linear steps. The quantiser sends (1 + q) d with
probability 1 / (1 + q) and nothing otherwise, so that its variance is q ||d||^2 exactly.

    python -m reproduce.quadratics      how often each form of the bound is violated on 1,000 random problems
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skyfed.theory.bound import FORMS, Form, Round, bound, largest_rate
from skyfed.types import Bools, Floats


@dataclass(frozen=True)
class Quadratics:
    """f_u^t(w) = (w - c_u^t)' H_u (w - c_u^t) / 2 for U vehicles in n dimensions.

    hessians  (U, n, n)     before, now, after  (U, n) centres in rounds t-1, t, t+1
    masks     (U, n)        w                   (n,) where the round starts
    noise     (U,) variance of a gradient, the same in every direction
    """

    hessians: Floats
    before: Floats
    now: Floats
    after: Floats
    masks: Bools
    w: Floats
    alpha: Floats
    noise: Floats
    q: Floats
    raw: Floats
    kappa: int
    eta: float
    eta_local: float
    rho1: float

    def loss(self, w: Floats, centres: Floats) -> float:
        """f(w | D) for the centres of a round."""
        apart = w - centres
        return float(0.5 * self.alpha @ np.einsum("ui,uij,uj->u", apart, self.hessians, apart))

    def gradients(self, w: Floats, centres: Floats) -> Floats:
        """(U, n) gradients of the local losses."""
        return np.asarray(np.einsum("uij,uj->ui", self.hessians, w - centres))

    def realised(self) -> float:
        """Return the squared norm of the masked gradient at w^t on D^t."""
        masked = self.alpha @ (self.gradients(self.w, self.now) * self.masks)
        return float(masked @ masked)

    def next_moments(self) -> tuple[Floats, Floats]:
        """Return mean and covariance of w^{t+1}."""
        n = len(self.w)
        mean, covariance = self.w.copy(), np.zeros((n, n))
        for u, mask in enumerate(self.masks):
            keep = np.diag(mask.astype(float))
            step = np.eye(n) - self.eta_local * keep @ self.hessians[u]
            # (position, sum of gradients) as one linear system with additive noise
            centre, spread = self.w * mask, np.zeros((2 * n, 2 * n))
            total = np.zeros(n)
            move = np.block([[step, np.zeros((n, n))], [keep @ self.hessians[u], np.eye(n)]])
            shock = np.vstack([-self.eta_local * keep, keep])
            for _ in range(self.kappa):
                total = total + mask * (self.hessians[u] @ (centre - self.now[u]))
                centre = centre - self.eta_local * mask * (self.hessians[u] @ (centre - self.now[u]))
                spread = move @ spread @ move.T + shock @ shock.T * (self.noise[u] / n)
            inside = spread[n:, n:]
            more = (1 - self.raw[u]) * self.q[u] * (inside + np.outer(total, total))
            mean -= self.eta * self.alpha[u] * total
            covariance += (self.eta * self.alpha[u]) ** 2 * (inside + more)
        return mean, covariance

    def expected_loss(self, centres: Floats) -> float:
        """E f(w^{t+1} | D)."""
        mean, covariance = self.next_moments()
        average = np.einsum("u,uij->ij", self.alpha, self.hessians)
        return self.loss(mean, centres) + 0.5 * float(np.sum(average * covariance))

    def constants(self) -> Round:
        """Return everything the bound needs; all of it exact."""
        own = self.gradients(self.w, self.now)
        masked = own * self.masks
        some = self.masks.any(axis=0)
        apart = (self.alpha @ (own * ~self.masks)) * some
        beta = float(max(np.abs(np.linalg.eigvalsh(one)).max() for one in self.hessians))
        epsilon = np.maximum(0, np.sum(masked**2, axis=1) - self.rho1 * self.realised())
        shift = np.einsum("uij,uj->ui", self.hessians, self.now - self.before)
        pruned = np.sum((self.w * ~self.masks) ** 2, axis=1)
        norm2 = float(self.w @ self.w)
        return Round(
            kappa=self.kappa, eta=self.eta, eta_local=self.eta_local, beta=beta, rho1=self.rho1, rho2=1.0,
            alpha=self.alpha, sigma2=self.noise, q=self.q, raw=self.raw, phi=np.sum(shift**2, axis=1), epsilon=epsilon,
            delta=pruned / norm2 if norm2 else np.zeros(len(pruned)), norm2=norm2, pruned=pruned,
            mismatch=float(apart @ apart), now=self.loss(self.w, self.now),
            after=self.expected_loss(self.after), kept=self.expected_loss(self.now),
        )  # fmt: skip


def random_problem(rng: np.random.Generator, stationary: bool = False) -> Quadratics:
    """Draw a problem of few vehicles and dimensions that fulfils the conditions of all forms.

    Losses may be concave in some directions, masks may have nothing in common or keep nothing.
    """
    vehicles, n, kappa = int(rng.integers(1, 5)), int(rng.integers(1, 7)), int(rng.choice([1, 2, 3, 5, 10, 20]))
    least = rng.choice([0.0, -1.0])
    hessians = np.empty((vehicles, n, n))
    for u in range(vehicles):
        turn, _ = np.linalg.qr(rng.standard_normal((n, n)))
        hessians[u] = turn @ np.diag(rng.uniform(least, 2, n)) @ turn.T
    centre = rng.standard_normal(n) * rng.choice([0.0, 1.0, 3.0])
    now = centre + rng.standard_normal((vehicles, n)) * rng.choice([0.0, 0.1, 1.0])
    shift = 0.0 if stationary else rng.choice([0.0, 0.1, 1.0])
    before, after = (now + shift * rng.standard_normal((vehicles, n)) for _ in range(2))
    w = centre + rng.standard_normal(n) * rng.choice([0.0, 0.1, 1.0, 5.0])
    share = rng.choice([0.0, 0.0, 0.3, 0.6, 1.0])
    order = np.argsort(np.argsort(np.abs(w + 0.3 * rng.standard_normal((vehicles, n))), axis=1), axis=1)
    masks = order >= np.floor(share * n * rng.uniform(0, 1, (vehicles, 1)).round(1))
    if rng.random() < 0.5:
        masks = rng.random((vehicles, n)) >= share * rng.random()
    drawn = Quadratics(
        hessians, before, now, after, masks, w, rng.dirichlet(np.ones(vehicles)),
        rng.uniform(0, 2, vehicles) * rng.choice([0.0, 1.0]),
        rng.uniform(0, 5, vehicles) * rng.choice([0.0, 1.0, 100.0]),
        rng.uniform(0, 1, vehicles), kappa, 1.0, 1.0, rng.uniform(1, 2),
    )  # fmt: skip
    one = drawn.constants()
    if one.beta <= 1e-9:
        return random_problem(rng, stationary)
    most = min(largest_rate(one, "corrected"), largest_rate(one, "printed"))
    eta, local = most * rng.uniform(0.05, 0.999, 2)
    return replace(drawn, eta=float(eta), eta_local=float(local))


def violations(problems: Sequence[Quadratics], form: Form) -> list[int]:
    """Return which problems' realised gradient exceeds a form of the bound, beyond rounding."""
    found = []
    for number, problem in enumerate(problems):
        one = problem.constants()
        total = bound(one, form).total
        scale = abs(one.now) + abs(one.after) + abs(one.kept)
        if problem.realised() > total + 1e-9 * (1 + scale / (one.eta * one.kappa)):
            found.append(number)
    return found


if __name__ == "__main__":
    coins = np.random.default_rng(0)
    many = [random_problem(coins) for _ in range(1000)]
    for name in FORMS:
        wrong = violations(many, name)
        alone = sum(len(many[k].alpha) == 1 for k in wrong)
        still = sum(np.array_equal(many[k].now, many[k].after) for k in wrong)
        print(f"{name}: violated on {len(wrong)} of 1000, {alone} with one vehicle, {still} where data does not shift")
    ratios = [bound(one.constants()).total / one.realised() for one in many if one.realised() > 1e-6]
    print(f"corrected: median {np.median(ratios):.2f} times the true value, least {min(ratios):.2f}")
