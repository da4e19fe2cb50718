"""Settings of the data field: where data is and when."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from skyfed.field.psi import check_basis
from skyfed.settings import StrictSettings


class FieldSettings(StrictSettings):
    """Spatial and temporal distribution of the data (Eq. 1, Eq. 2)."""

    classes: int = Field(10, ge=1, le=10_000, description="C, number of classes and of spatial clusters")
    region: tuple[PositiveFloat, PositiveFloat] = Field(
        (1000.0, 1000.0), description="width and height in m, station in the middle"
    )
    radii: tuple[PositiveFloat, PositiveFloat] = Field(
        (30.0, 60.0), description="lambda: a cluster's standard deviation is drawn between these, m"
    )
    zeta: float = Field(1.0, gt=0, le=1, description="a disc's radius is zeta * lambda (Eq. 3)")
    weights: Literal["uniform"] | list[PositiveFloat] = Field("uniform", description="Pi_c, mixture weights (Eq. 1)")
    bases: list[str] = Field(
        ["sin:1", "cos:2.5", "sin:2.5", "cos:1"], min_length=1, description="z(t), the temporal bases (Eq. 2)"
    )
    projection: Literal["random"] | float | list[list[float]] | list[list[list[float]]] = Field(
        "random", description="M: 'random' (standard normal), a number that scales it, or a (C,K) or (U,C,K) array"
    )
    shared: bool = Field(
        False, description="whether all vehicles fly over one field; else each has its own, as in the paper"
    )
    file: str | list[str] | None = Field(None, description="CSV or NPZ with centres, samples or psi of one's own")
    estimate: Literal["moments", "gmm"] = Field("moments", description="how a vehicle fits its mixture")
    origin: tuple[Annotated[float, Field(ge=-85, le=85)], Annotated[float, Field(ge=-180, le=180)]] | None = Field(
        None, description="latitude and longitude of the station in degrees; plans are then exported for autopilots"
    )

    @field_validator("bases")
    @classmethod
    def _known_bases(cls, bases: list[str]) -> list[str]:
        for basis in bases:
            check_basis(basis)
        return bases

    @field_validator("file")
    @classmethod
    def _nameable(cls, file: str | list[str] | None) -> str | list[str] | None:
        if file is not None and any("\0" in name for name in ([file] if isinstance(file, str) else file)):
            raise ValueError("a file's name cannot hold a zero byte")
        return file

    @field_validator("radii")
    @classmethod
    def _ordered(cls, radii: tuple[float, float]) -> tuple[float, float]:
        if radii[0] > radii[1]:
            raise ValueError("allowed: [smallest, largest]")
        return radii

    @model_validator(mode="after")
    def _one_weight_a_class(self) -> "FieldSettings":
        if not isinstance(self.weights, str) and len(self.weights) != self.classes:
            raise ValueError(f"weights: {len(self.weights)} numbers for {self.classes} classes; allowed: one a class")
        return self
