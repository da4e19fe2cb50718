"""Where data is (Gaussian mixtures) and when (psi)."""

from skyfed.field.build import Field, build_field
from skyfed.field.mixture import FITS, EstimationError, Mixture, draw_mixture, estimation_error, fit_gmm, fit_moments
from skyfed.field.psi import BASES, basis_curves, class_distribution
from skyfed.field.settings import FieldSettings

__all__ = [
    "BASES",
    "FITS",
    "EstimationError",
    "Field",
    "FieldSettings",
    "Mixture",
    "basis_curves",
    "build_field",
    "class_distribution",
    "draw_mixture",
    "estimation_error",
    "fit_gmm",
    "fit_moments",
]
