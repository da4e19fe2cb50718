"""How many samples a vehicle starts with and how many a round brings (Eq. 6)."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from skyfed.records import Floats, Ints


class SensingSettings(BaseModel):
    """Sizes of the data sets and how sensing fades with distance."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    initial: int = Field(512, ge=1, description="samples a vehicle starts with, shared out by its mean psi")
    decay_length: float = Field(50.0, gt=0, allow_inf_nan=False, description="m; 1 is the paper's exp(-metres)")


def initial_counts(psi: Floats, initial: int) -> Ints:
    """Samples of each class in the initial set: ceil(E_t[psi] * initial); psi (C, T) -> (C,)."""
    return np.asarray(np.ceil(psi.mean(axis=1) * initial - 1e-9), np.int64)
