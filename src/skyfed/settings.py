"""What all tables of settings share: unknown keys are refused, values do not change, numbers are finite."""

from pydantic import BaseModel


class StrictSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Base of a table of settings."""
