"""Where data is (Gaussian mixtures) and when (psi)."""

from skyfed.field.build import Field, build_field
from skyfed.field.mixture import FITS, Mixture, estimation_error
from skyfed.field.settings import FieldSettings

__all__ = ["FITS", "Field", "FieldSettings", "Mixture", "build_field", "estimation_error"]
