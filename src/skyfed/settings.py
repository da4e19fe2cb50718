"""What all settings share: unknown keys are refused, values do not change, and numbers may be declared finite."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """Base of a table of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)
