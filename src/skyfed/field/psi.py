"""When data is: the class distribution over time (Eq. 2)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from skyfed.errors import BadInputError, own_code
from skyfed.imports import check_path, import_path
from skyfed.types import Floats

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
    """Return the curve that "kind", "kind:number:…" or "package.module:function" names, or raise ValueError.

    A function of the user's own is imported when the curve is asked for, not before.
    """
    kind, *rest = basis.split(":")
    if kind in BASES:
        try:
            numbers = [float(x) for x in rest]
        except ValueError:
            raise ValueError(f"{basis!r}: {rest} must be numbers, as in 'sin:2.5'") from None
        curve = BASES[kind]
        try:
            with np.errstate(all="ignore"):
                values = curve(np.linspace(0, 1, 5), *numbers)
        except TypeError:
            raise ValueError(f"{basis!r} has too many numbers") from None
        if not np.isfinite([*values, *numbers]).all() or (kind == "bump" and numbers[1:] == [0.0]):
            raise ValueError(f"{basis!r} is not finite")
    elif "." in kind and len(rest) == 1:
        check_path(basis)
        return lambda phase: np.asarray(import_path(basis, "field.bases")(phase), np.float64)
    else:
        raise ValueError(
            f"{basis!r} is not known; allowed: {', '.join(BASES)}, each as kind:number, or package.module:function"
        )
    return lambda phase: np.asarray(curve(phase, *numbers), np.float64)


def basis_curves(bases: Sequence[str], rounds: int) -> Floats:
    """Evaluate z(t) at t/T for t = 0..T-1; (K, T) (Eq. 2)."""
    phase = np.arange(rounds) / rounds
    curves = np.empty((len(bases), rounds))
    for k, basis in enumerate(bases):
        with own_code(f"field.bases: {basis!r}", BadInputError), np.errstate(all="ignore"):
            curve = check_basis(basis)(phase)
        if curve.shape != (rounds,) or not np.isfinite(curve).all():
            raise BadInputError(f"field.bases: {basis!r} must give {rounds} finite numbers")
        curves[k] = curve
    return curves


def class_distribution(projection: Floats, curves: Floats) -> Floats:
    """Softmax over classes of M z(t); projection (C, K), curves (K, T) -> psi (C, T), columns sum to 1 (Eq. 2)."""
    with np.errstate(over="ignore", invalid="ignore"):
        score = projection @ curves
    if not np.isfinite(score).all():
        raise BadInputError("field.projection times field.bases is too large a number")
    score -= score.max(axis=0)
    share = np.exp(score)
    return np.asarray(share / share.sum(axis=0))
