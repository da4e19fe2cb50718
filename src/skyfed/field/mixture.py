"""Where data is: one Gaussian mixture per vehicle, one component per class (Eq. 1), and its estimate from samples."""

import warnings
from dataclasses import dataclass

import numpy as np

from skyfed.field.settings import FieldSettings
from skyfed.types import Floats, Ints

_PLACING_TRIES = 2000  # draws of one centre before overlap is accepted


@dataclass(frozen=True)
class Mixture:
    """Isotropic Gaussian mixture over the region.

    centres     (C, 2) metres      mu_{u,c}
    deviations  (C,) metres        lambda_{u,c}, the covariance is lambda^2 times the identity
    weights     (C,) sums to 1     Pi_c
    """

    centres: Floats
    deviations: Floats
    weights: Floats

    def sample(self, counts: Ints, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Draw counts[c] positions of each class; returns positions (n, 2) and labels (n,)."""
        labels = np.repeat(np.arange(len(counts)), counts)
        noise = rng.standard_normal((len(labels), 2))
        return self.centres[labels] + noise * self.deviations[labels, None], labels


def draw_mixture(settings: FieldSettings, weights: Floats, rng: np.random.Generator) -> Mixture:
    """Draw centres uniformly in the region, discs inside it and apart from each other while there is room."""
    deviations = rng.uniform(*settings.radii, size=settings.classes)
    discs = settings.zeta * deviations
    half = np.asarray(settings.region) / 2
    centres = np.empty((settings.classes, 2))
    for c in range(settings.classes):
        reach = np.maximum(half - discs[c], 0.0)
        for _ in range(_PLACING_TRIES):
            centres[c] = rng.uniform(-reach, reach)
            apart = np.hypot(*(centres[:c] - centres[c]).T) >= discs[:c] + discs[c]
            if apart.all():
                break
    return Mixture(centres, deviations, weights / weights.sum())


def fit_moments(positions: Floats, labels: Ints, classes: int) -> Mixture:
    """Fit by each class's own mean and variance: the maximum-likelihood mixture when labels are known.

    EM exists to guess labels; with labels given its E-step is exact and one M-step is the answer. The variance is
    pooled over both axes (the model is isotropic) with n - 1 in the denominator. A class with a single sample
    takes the deviation of the others.
    """
    counts = np.bincount(labels, minlength=classes)
    if (counts == 0).any():
        raise ValueError(f"class {int(np.flatnonzero(counts == 0)[0])} has no sample to estimate its place from")
    centres = np.stack([np.bincount(labels, positions[:, k], classes) / counts for k in (0, 1)], axis=1)
    squared = ((positions - centres[labels]) ** 2).sum(axis=1)
    spread = np.bincount(labels, squared, classes)
    several = counts > 1
    pooled = spread[several].sum() / max(1, 2 * (counts[several] - 1).sum())
    variance = np.where(several, spread / np.maximum(1, 2 * (counts - 1)), pooled)
    return Mixture(centres, np.sqrt(variance), counts / counts.sum())


def fit_gmm(positions: Floats, labels: Ints, classes: int) -> Mixture:
    """Fit by EM (scikit-learn) started from the class means; for field data whose labels are doubtful."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    start = fit_moments(positions, labels, classes)
    if len(positions) <= classes:
        return start
    model = GaussianMixture(
        classes, covariance_type="spherical", means_init=start.centres, weights_init=start.weights,
        precisions_init=1 / np.maximum(start.deviations, 1e-3) ** 2, random_state=0, max_iter=200,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(positions)
    return Mixture(model.means_, np.sqrt(model.covariances_), model.weights_)


FITS = {"moments": fit_moments, "gmm": fit_gmm}


def estimation_error(estimate: Mixture, truth: Mixture) -> Floats:
    """Return how far the centres of an estimate are from the true ones, metres; (C,)."""
    return np.asarray(np.hypot(*(estimate.centres - truth.centres).T))
