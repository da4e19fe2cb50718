"""What the objective "pictures" counts: samples that visits bring by the sensing model, beside those already held."""

from dataclasses import dataclass, field

import numpy as np

from skyfed.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Pictures:
    """The part of a flight problem that only the objective sum_c value_c log(held_c + samples_c) has.

    held   (C,) samples that the vehicle holds of each class, above 0
    value  (C,) worth of a class, above 0
    side   m, of the square in view; 0: samples fade with the distance from the centre (Eq. 6)
    spread (C,) m, deviation of each class's places
    ends   (C, T) samples that have begun by the end of each round, or (0, 0): what one visit takes another has not

    A visit of class c in round t brings psi[c, t] from the centre if all in view is new, and share() of it elsewhere.
    With `ends`, a visit after one in round s brings at most ends[c, t] - ends[c, s]: what was in view then is taken.
    A visit counts for its own class alone, though a camera may show some of a neighbour's.
    """

    held: Floats
    value: Floats
    spread: Floats
    side: float = 0.0
    ends: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def problems(self, classes: int, rounds: int) -> list[str]:
        """Say what is wrong with it, one line each."""
        wrong = []
        for name in ("held", "value", "spread"):
            array = getattr(self, name)
            if array.shape != (classes,) or not ((array > 0) & np.isfinite(array)).all():
                wrong.append(f"pictures: {name} must be {classes} numbers above 0")
        if self.ends.size and (self.ends.shape != (classes, rounds) or not (np.diff(self.ends, axis=1) >= 0).all()):
            wrong.append(f"pictures: ends must never fall and have shape {(classes, rounds)}")
        if not 0 <= self.side < np.inf:
            wrong.append("pictures: side must be 0 or more and finite")
        return wrong

    def share(self, off: Floats, label: Ints, decay_length: float) -> Floats:
        """Return which part of its samples a class shows at these distances (n, 2) from its centre; 1 at the centre."""
        if not self.side:
            return np.asarray(np.exp(-np.hypot(*off.T) / decay_length))
        from scipy.special import ndtr  # a slow import that Eq. 6 does not need

        spread, half = self.spread[label][:, None], self.side / 2
        inside = ndtr((off + half) / spread) - ndtr((off - half) / spread)
        return np.asarray((inside / (2 * ndtr(half / spread) - 1)).prod(axis=1))

    def scaled(self, scale: float) -> "Pictures":
        """Return it in units of `scale` samples."""
        return Pictures(self.held / scale, self.value, self.spread, self.side, self.ends / scale)
