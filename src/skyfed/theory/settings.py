"""Settings of the diagnostics; apart from the code that uses them, so that reading a config does not load torch."""

from pydantic import Field, field_validator

from skyfed.settings import StrictSettings


class TheorySettings(StrictSettings):
    """When and how carefully the constants of Theorem 1 are estimated."""

    every: int = Field(0, ge=0, description="rounds between two estimates, the first in round 0; 0: never")
    batches: int = Field(
        0, ge=0, description="mini-batches of each vehicle's data that gradients are taken over; 0: all"
    )
    beta_batches: int = Field(1, ge=1, description="mini-batches of each vehicle that the curvature is taken over")
    beta_steps: int = Field(6, ge=1, description="steps of the power iteration for the curvature")
    beta: float = Field(10.0, gt=0, description='prune.delta = "bound": smoothness assumed; measured by `bound`')
    sigma2: float = Field(1.0, ge=0, description='prune.delta = "bound": variance of a mini-batch gradient assumed')
    gradient2: float = Field(0.5, ge=0, description='prune.delta = "bound": squared norm of a local gradient assumed')
    payload: float | None = Field(
        None,
        gt=0,
        description="prune.delta = \"bound\": mean bits of an upload, as a share of AFL's by the paper's formula",
    )
    work: float | None = Field(None, gt=0, description='prune.delta = "bound": most dense local rounds of a vehicle')
    joules: float | None = Field(
        None, gt=0, description='prune.delta = "bound": joules of training and sending a round (device)'
    )

    @field_validator("batches")
    @classmethod
    def _several(cls, batches: int) -> int:
        if batches == 1:
            raise ValueError("allowed: 0 for all, or 2 and more: the spread of one is not known")
        return batches

    def due(self, t: int) -> bool:
        """Tell whether round t is measured."""
        return self.every > 0 and t % self.every == 0
