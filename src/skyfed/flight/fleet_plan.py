"""The flights of a whole fleet: what plan.npz holds."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skyfed.arrays import pack_npz, read_npz
from skyfed.errors import BadInputError
from skyfed.types import Bools, Floats, Ints

_SHARED = (
    "dmin",
    "vmax",
    "epsilon",
    "region",
    "windows",
    "method",
    "constraints",
    "allowed",
    "zones",
)  # of all vehicles
_LATER = ("constraints", "allowed", "zones", "above")  # not in format 0.1.0


@dataclass(frozen=True)
class FleetPlan:
    """Every vehicle's plan with the problem it solves; lengths in metres, station at (0, 0).

    positions (U,T,2), association (U,T) with -1 for none; centres (U,C,2) and radii (U,C) the planner used,
    true_centres and true_radii what they really are; psi (U,C,T); imax (U,C,W); objective, bound, seconds (U,)
    in nats, nats and measured CPU seconds; note (U,) is empty or says what happened instead;
    history (U,J) is the objective after each iteration of an iterative planner, NaN past its end;
    constraints (n,) are the user's own that all flights were planned under, each as JSON; allowed (n,n) says which
    points of the region they allow, south to north and west to east, (0,0) where nothing restricts points;
    zones (n,) are no-fly polygons and geofences as JSON {inside, corners}; above (U,) is how many metres above the
    sensor's altitude each vehicle flies, (0,) where all fly at it.
    """

    positions: Floats
    association: Ints
    centres: Floats
    radii: Floats
    true_centres: Floats
    true_radii: Floats
    psi: Floats
    imax: Ints
    dmin: Floats
    vmax: Floats
    epsilon: Floats
    region: Floats
    windows: NDArray[np.str_]
    method: NDArray[np.str_]
    objective: Floats
    bound: Floats
    seconds: Floats
    note: NDArray[np.str_]
    history: Floats = field(default_factory=lambda: np.empty((0, 0)))
    constraints: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, np.str_))
    allowed: Bools = field(default_factory=lambda: np.empty((0, 0), bool))
    zones: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, np.str_))
    above: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def vehicles(self) -> int:
        """U."""
        return int(self.association.shape[0])

    @property
    def rounds(self) -> int:
        """T."""
        return int(self.association.shape[1])

    @property
    def classes(self) -> int:
        """C."""
        return int(self.radii.shape[1])

    @property
    def gap(self) -> Floats:
        """Distance to the proven bound for each vehicle, nats."""
        return np.maximum(0.0, self.bound - self.objective)

    @property
    def loss(self) -> Floats:
        """Geometric-mean loss per class against the bound, 0..1."""
        return np.asarray(-np.expm1(-self.gap / self.classes))

    def only(self, vehicle: int) -> "FleetPlan":
        """Return the same with this vehicle's flight in everybody's place: what it carries tells of nobody else.

        Constraints and what they allow are left out: they name files of whoever planned, and a vehicle does not plan.
        """
        each = [f.name for f in fields(self) if f.name not in _SHARED]
        own = {name: np.repeat(getattr(self, name)[vehicle : vehicle + 1], self.vehicles, 0) for name in each}
        nothing = np.empty(0, np.str_)
        return replace(self, **own, constraints=nothing, allowed=np.empty((0, 0), bool), zones=nothing)

    def to_bytes(self) -> bytes:
        """Pack as an NPZ archive without objects; without constraints it has the bytes of format 0.1.0."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in _LATER:
            if not arrays[name].size:
                del arrays[name]
        return pack_npz(arrays)


def load_fleet_plan(path: Path | str) -> FleetPlan:
    """Read plan.npz; raises BadInputError when it is not one."""
    try:
        arrays = read_npz(Path(path).read_bytes())
        names = [f.name for f in fields(FleetPlan) if f.name not in _LATER or f.name in arrays]
        return FleetPlan(**{name: arrays[name] for name in names})
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror or 'not a plan'}") from None
    except Exception:  # a damaged archive fails in zipfile, zlib or numpy, whose advice is about pickles
        raise BadInputError(f"{path}: damaged, or not a plan; remove it, and the run plans again") from None


def age_of_information(association: Ints, classes: int) -> Ints:
    """Rounds since each class was last visited, counted from the start before the first visit; (C, T)."""
    rounds = np.arange(len(association))
    visited = np.where(association == np.arange(classes)[:, None], rounds, -1)
    return np.asarray(rounds - np.maximum.accumulate(visited, axis=1))
