"""A class's place from what cameras saw of it: squares cut its Gaussian off, which plain moments would mistake."""

from collections.abc import Sequence

import numpy as np

from skyfed.types import Floats

_STEPS = 30
_LEAST = 1e-3  # of a class inside a square: below it the square tells nothing
_NARROWEST = 1.0  # m

View = tuple[Floats, Floats]  # a square's middle (2,), and the places that it showed (n, 2)


def fit_in_squares(
    centre: Floats, deviation: float, known: int, views: Sequence[View], side: float
) -> tuple[Floats, float]:
    """Return centre and deviation after views of one class, by EM for truncated data.

    centre, deviation  as estimated from `known` places that nothing cut off
    A square that shows n places of a class with a share Z inside hides about n (1 - Z) / Z others. Their moments follow
    from the present estimate, so one step is plain moments over all of them.
    """
    from scipy.stats import norm

    views = [view for view in views if len(view[1])]
    if not views:
        return centre, deviation
    middles, counts = np.stack([view[0] for view in views]), np.array([len(view[1]) for view in views])
    sums = np.stack([view[1].sum(axis=0) for view in views])
    squares = np.stack([(view[1] ** 2).sum(axis=0) for view in views])
    first, second = known * centre, known * (centre**2 + deviation**2)
    mean, spread = centre, deviation
    for _ in range(_STEPS):
        low, high = ((middles + way * side / 2 - mean) / spread for way in (-1, 1))  # (n, 2)
        mass = np.maximum(norm.cdf(high) - norm.cdf(low), np.sqrt(_LEAST))
        tilt = (norm.pdf(low) - norm.pdf(high)) / mass
        bend = (low * norm.pdf(low) - high * norm.pdf(high)) / mass
        inside_first = mean + spread * tilt
        inside_second = mean**2 + 2 * mean * spread * tilt + spread**2 * (1 + bend)
        share = mass.prod(axis=1, keepdims=True)
        total = counts[:, None] / share
        hidden_first = total * (mean - share * inside_first)
        hidden_second = total * (mean**2 + spread**2 - share * inside_second)
        number = known + float(total.sum())
        mean = (first + (sums + hidden_first).sum(axis=0)) / number
        variance = (second + (squares + hidden_second).sum(axis=0)) / number - mean**2
        spread = float(np.sqrt(max(variance.mean(), _NARROWEST)))
    return np.asarray(mean), spread
