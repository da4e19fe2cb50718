"""Modelled time and energy of local training, by the paper's law; measured seconds are recorded beside them."""

from pydantic import BaseModel, ConfigDict, Field

from skyfed.learning.settings import TrainSettings


class CostSettings(BaseModel):
    """The paper's abstract units."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    t_train: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="t_tr: seconds of one dense local round (modelled)"
    )
    e_train: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="e_tr: joules of one dense local round (modelled)"
    )


def local_rounds(train: TrainSettings, pruned: bool, delta: float) -> float:
    """Dense local rounds that a vehicle's work amounts to: kappa, or rho + kappa (1 - delta) with pruning."""
    return train.rho + train.kappa * (1 - delta) if pruned else float(train.kappa)
