"""Settings of learning; apart from the code that uses them, so that reading a config does not load torch."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from skyfed.imports import check_path
from skyfed.rng import stream
from skyfed.settings import StrictSettings


class ModelSettings(StrictSettings):
    """Which model is trained."""

    name: str = Field(
        "resnet18",
        description="resnet18, cnn, mlp, or your own: package.module:callable or file.py:callable, called with "
        "(classes, side) for pictures and (outputs, shape) for other samples",
    )
    stem: Literal["imagenet", "cifar"] = Field("imagenet", description="resnet18: 7x7/2 and max-pool, or 3x3")
    width: int = Field(64, ge=1, le=1024, description="channels of the first stage")
    norm: Literal["batch", "group"] = Field("batch", description="normalisation layers")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name in ("resnet18", "cnn", "mlp"):
            return name
        try:
            return check_path(name)
        except ValueError:
            raise ValueError("allowed: resnet18, cnn, mlp, package.module:callable, file.py:callable") from None


class TrainSettings(StrictSettings):
    """Local and global training."""

    kappa: int = Field(5, ge=1, description="local rounds of a vehicle (Eq. 10)")
    batches_per_round: int = Field(1, ge=1, description="mini-batches in one local round")
    rho: int = Field(1, ge=0, description="dense local rounds before pruning (Eq. 8)")
    batch_size: int = Field(64, ge=1, description="pictures in a mini-batch")
    eta: float = Field(0.1, gt=0, description="global learning rate (Eq. 13)")
    eta_drop: float = Field(0.9, gt=0, le=1, description="factor on eta ...")
    eta_drop_every: int = Field(20, ge=1, description="... every so many rounds")
    eta_local: float = Field(0.1, gt=0, description="local learning rate (Eq. 10)")
    eta_local_drop: float = Field(0.9, gt=0, le=1, description="factor on eta_local ...")
    eta_local_drop_every: int = Field(50, ge=1, description="... every so many rounds")
    central_steps: Literal["fleet", "vehicle"] | Annotated[int, Field(ge=1)] = Field(
        "fleet",
        description="mini-batches per round of the central baseline: those of the fleet, of one vehicle, or a number",
    )

    def eta_at(self, t: int) -> float:
        """Global learning rate of round t."""
        return float(self.eta * self.eta_drop ** (t // self.eta_drop_every))

    def eta_local_at(self, t: int) -> float:
        """Local learning rate of round t."""
        return float(self.eta_local * self.eta_local_drop ** (t // self.eta_local_drop_every))

    def central_batches(self, vehicles: int) -> int:
        """Mini-batches of the central baseline per round: what the fleet takes, what one vehicle takes, or a number."""
        own = self.kappa * self.batches_per_round  # of one vehicle
        return {"fleet": vehicles * own, "vehicle": own}.get(str(self.central_steps)) or int(self.central_steps)


Ratio = Annotated[float, Field(ge=0, lt=1)]


class PruneSettings(StrictSettings):
    """How much is pruned, and where."""

    delta: Literal["bound"] | Ratio | list[Ratio] = Field(
        [0.05, 0.7],
        description='pruning ratio: a number, [low, high] drawn a vehicle and round, one for each vehicle, or "bound": '
        "chosen, with the probability of a raw upload, for small errors in Theorem 1 within theory.payload|work|joules",
    )
    granularity: Literal["weight", "channel"] = Field(
        "weight", description="prune single weights, or whole channels, which makes the model smaller and faster"
    )
    budget: Literal["weights", "flops"] = Field(
        "weights", description="channel: what delta is a share of, weights or multiplications"
    )
    scope: Literal["kernels", "all"] = Field(
        "kernels", description="prune convolution and linear weights, or all entries of w"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "PruneSettings":
        if isinstance(self.delta, list) and (
            not self.delta or (len(self.delta) == 2 and self.delta[0] > self.delta[1])
        ):
            raise ValueError("delta: allowed: a number, [low, high] with low <= high, or one number a vehicle")
        return self

    def draw(self, seed: int, round: int, vehicle: int) -> float:
        """Return the pruning ratio of a vehicle in a round; the same for every algorithm that prunes."""
        if isinstance(self.delta, str):
            raise ValueError("delta is chosen, not drawn")
        if not isinstance(self.delta, list):
            return self.delta
        if len(self.delta) == 2:
            return float(stream(seed, "delta", round, vehicle).uniform(self.delta[0], self.delta[1]))
        return self.delta[vehicle % len(self.delta)]

    @property
    def least(self) -> float:
        """The smallest pruning ratio that any vehicle may have in any round."""
        if isinstance(self.delta, str):
            return 0.0
        return min(self.delta) if isinstance(self.delta, list) else self.delta
