"""When data is: the class distribution over time (Eq. 2)."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from skyfed.errors import BadInputError
from skyfed.records import Floats

# A basis maps the phase t/T in [0, 1) and its own numbers to a curve.
BASES: dict[str, Callable[..., Any]] = {
    "sin": lambda phase, cycles=1.0: np.sin(2 * np.pi * cycles * phase),
    "cos": lambda phase, cycles=1.0: np.cos(2 * np.pi * cycles * phase),
    "const": lambda phase, level=1.0: np.full_like(phase, level),
    "ramp": lambda phase, slope=1.0: slope * phase,
    "step": lambda phase, at=0.5: (phase >= at).astype(np.float64),
    "bump": lambda phase, at=0.5, width=0.1: np.exp(-0.5 * ((phase - at) / width) ** 2),
}


def check_basis(basis: str) -> Callable[[Floats], Floats]:
    """Return the curve that "kind", "kind:number:…" or "package.module:function" names, or raise ValueError."""
    kind, *rest = basis.split(":")
    if kind in BASES:
        try:
            numbers = [float(x) for x in rest]
        except ValueError:
            raise ValueError(f"{basis!r}: {rest} must be numbers, as in 'sin:2.5'") from None
        curve = BASES[kind]
        try:
            if not np.isfinite(curve(np.zeros(1), *numbers)).all():
                raise ValueError(f"{basis!r} is not finite")
        except TypeError:
            raise ValueError(f"{basis!r} has too many numbers") from None
        return lambda phase: np.asarray(curve(phase, *numbers), np.float64)
    if "." in kind and len(rest) == 1:
        try:
            own = getattr(importlib.import_module(kind), rest[0])
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{basis!r}: {error}") from None
        return lambda phase: np.asarray(own(phase), np.float64)
    raise ValueError(
        f"{basis!r} is not known; allowed: {', '.join(BASES)}, each as kind:number, or package.module:function"
    )


def basis_curves(bases: Sequence[str], rounds: int) -> Floats:
    """Evaluate z(t) at t/T for t = 0..T-1; (K, T) (Eq. 2)."""
    phase = np.arange(rounds) / rounds
    curves = np.stack([check_basis(basis)(phase) for basis in bases])
    if curves.shape != (len(bases), rounds) or not np.isfinite(curves).all():
        raise BadInputError(f"field.bases: every basis must give {rounds} finite numbers")
    return curves


def class_distribution(projection: Floats, curves: Floats) -> Floats:
    """Softmax over classes of M z(t); projection (C, K), curves (K, T) -> psi (C, T), columns sum to 1 (Eq. 2)."""
    score = projection @ curves
    score -= score.max(axis=0)
    share = np.exp(score)
    return np.asarray(share / share.sum(axis=0))
