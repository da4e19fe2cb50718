"""Where data is: one Gaussian mixture per vehicle, one component per class (Eq. 1)."""

from dataclasses import dataclass

import numpy as np

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


def draw_mixture(
    classes: int,
    region: tuple[float, float],
    radii: tuple[float, float],
    zeta: float,
    weights: Floats,
    rng: np.random.Generator,
) -> Mixture:
    """Draw centres uniformly in the region, discs inside it and apart from each other while there is room."""
    deviations = rng.uniform(*radii, size=classes)
    discs = zeta * deviations
    half = np.asarray(region) / 2
    centres = np.empty((classes, 2))
    for c in range(classes):
        reach = np.maximum(half - discs[c], 0.0)
        for _ in range(_PLACING_TRIES):
            centres[c] = rng.uniform(-reach, reach)
            apart = np.hypot(*(centres[:c] - centres[c]).T) >= discs[:c] + discs[c]
            if apart.all():
                break
    return Mixture(centres, deviations, weights / weights.sum())
