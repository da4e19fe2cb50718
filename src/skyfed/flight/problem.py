"""The flight problem of one vehicle: its data and its constraints C1-C6 (Eq. 4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, field_validator, model_validator

from skyfed.errors import BadInputError
from skyfed.flight.constraints.base import Constraint, ConstraintSpec
from skyfed.flight.pictures import Pictures
from skyfed.imports import OWN, check_path
from skyfed.settings import StrictSettings
from skyfed.types import IDLE, Bools, Floats, Ints

Windows = Literal["paper", "rolling"]
Method = Literal["exact", "sca", "greedy", "random", "hover", "scip"]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
_FARTHEST = 1e9  # metres; squares and products of what is farther no longer fit a number


class ScaSettings(StrictSettings):
    """How Algorithm 1 is run."""

    iterations: int = Field(10, ge=1, description="J, most iterations")
    precision: float = Field(1e-3, gt=0, description="varpi: stop when the objective changes by less, nats")
    start: Literal["random", "circle", "greedy"] = Field("random", description="initial points q^{t,0}")
    sides: int = Field(8, ge=3, le=64, description="sides of the polygon inscribed in a disc (open solvers)")
    solver: Literal["auto", "highs", "mosek"] = Field("auto", description="auto: MOSEK with a licence, else HiGHS")
    seconds: float = Field(60.0, gt=0, allow_inf_nan=True, description="most seconds for one iteration's solver call")
    placement: Literal["own", "sensing"] = Field(
        "own", description="the positions it ends with, or its visits placed anew for most samples"
    )


class FlightSettings(StrictSettings):
    """The flight problem and the planner."""

    method: Method | str = Field("exact", description=f"the planner; your own: a function (problem, options), as {OWN}")
    dmin: float = Field(5.0, ge=0, description="least distance between two rounds' positions, m (C6)")
    imax: Count | list[Count] | list[list[Count]] | list[list[list[Count]]] = Field(
        2, description="most visits of a class in a window (C5); an array broadcasts to (vehicles, classes, windows)"
    )
    vmax: Annotated[float, Field(gt=0)] | Literal["speed", "unlimited"] = Field(
        "speed",
        description="longest leg, metres per round: a number, vehicle.speed times world.flight_time, or unlimited",
    )
    constraints: list[ConstraintSpec] = Field(
        [],
        description='constraints of your own: "package.module:Name", "path/to/file.py:Name", or a table with that as '
        "`use` and the constraint's settings beside it (docs/constraint.md)",
    )
    objective: Literal["paper", "pictures"] = Field(
        "paper",
        description="what flights maximise: paper: Eq. 4; pictures: sum over classes of value * log(held + "
        "samples that the sensing model is expected to bring)",
    )
    occurring: float = Field(
        500.0,
        gt=0,
        description="objective pictures with footprint: samples of each class that are expected to occur in "
        "a vehicle's field during the mission",
    )
    replan: int = Field(
        0,
        ge=0,
        description="rounds between two times that vehicles plan again in flight, from what they know; 0: never",
    )
    windows: Windows = Field("paper", description="C5's windows: as printed, or every C consecutive rounds")
    epsilon: float = Field(1e-6, gt=0, le=1, description="epsilon_tol inside the logarithm (Eq. 4)")
    field: Literal["estimated", "true"] = Field("estimated", description="the discs that are planned on")
    placement: Literal["sensing", "anywhere"] = Field(
        "sensing",
        description="where inside a disc: for most samples, or anywhere at random (exact, greedy, random, hover)",
    )
    hold: float = Field(10.0, ge=0, description="seconds of holding at each waypoint (exported plans)")
    sca: ScaSettings = ScaSettings()

    @field_validator("constraints", mode="before")
    @classmethod
    def _a_list(cls, given: Any) -> Any:
        if isinstance(given, str | dict):
            raise ValueError('allowed: a list, as in [{use = "file.py:Name", height = 120}]')
        return given

    @model_validator(mode="after")
    def _replans_for_pictures(self) -> "FlightSettings":
        if self.replan and self.objective != "pictures":
            raise ValueError('replan: allowed with it: objective = "pictures"')
        return self

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        try:
            return method if method in get_args(Method) else check_path(method)
        except ValueError:
            raise ValueError(f"allowed: {', '.join(get_args(Method))}, {OWN}") from None


@dataclass(frozen=True)
class Options:
    """What a planner may be told besides the problem; every method reads the parts it knows.

    seed, vehicle  key of the random streams (starts of `sca`, draws of `random`, positions "anywhere")
    placement      where inside a disc a vehicle flies: for most samples, or anywhere
    effort         share of the usual work that `exact` spends under a speed limit; less in flight
    seconds        a safety limit on one solver call, wall seconds; a plan that hits it says so in its note
    """

    seed: int = 0
    vehicle: int = 0
    placement: Literal["sensing", "anywhere"] = "sensing"
    seconds: float = 300.0
    effort: float = 1.0
    sca: ScaSettings = field(default_factory=ScaSettings)


@dataclass(frozen=True, eq=False)  # equal only to itself: so planners can remember what they worked out for one
class Problem:
    """One vehicle's flight problem; arrays may be given as nested lists.

    centres       (C, 2) m            mu_{u,c}
    radii         (C,) m              zeta * lambda_{u,c}
    psi           (C, T)              psi_{u,c}^t; with pictures: samples that a visit brings from the centre
    imax          (C, W) whole        I_max, one column per window
    dmin, vmax    m                   least and most distance between two rounds; vmax is infinite where not limited
    windows       "paper" | "rolling" which rounds a window of C5 holds
    epsilon                           epsilon_tol
    region        (width, height) m   idle vehicles stay inside where they can; not a constraint of the paper
    decay_length  m                   how fast sensing fades with distance; used only to choose positions inside discs
    constraints                       constraints of the user's own, besides the paper's
    pictures                          what the objective "pictures" needs besides; None: the paper's objective
    start         (2,) m              where the vehicle is one round before the first; None: it may begin anywhere
    flown         rounds              of the same mission that lie before these: where C5's windows are
    """

    centres: Floats
    radii: Floats
    psi: Floats
    imax: Ints
    dmin: float = 5.0
    vmax: float = np.inf
    windows: Windows = "paper"
    epsilon: float = 1e-6
    region: tuple[float, float] = (1000.0, 1000.0)
    decay_length: float = 50.0
    constraints: Sequence[Constraint] = ()
    pictures: Pictures | None = None
    start: Floats | None = None
    flown: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("centres", np.float64), ("radii", np.float64), ("psi", np.float64), ("imax", None)):
            try:
                array = np.asarray(getattr(self, name), kind)
            except (TypeError, ValueError):
                raise BadInputError(f"flight problem: {name} is not an array of numbers") from None
            object.__setattr__(self, name, array)
        if self.start is not None:
            object.__setattr__(self, "start", np.asarray(self.start, np.float64))
        if self.psi.ndim != 2:
            raise BadInputError(f"flight problem: psi has shape {self.psi.shape}; allowed: (classes, rounds)")
        C, T = self.psi.shape
        known = all(isinstance(constraint, Constraint) for constraint in self.constraints)
        whole = np.issubdtype(self.imax.dtype, np.integer) and bool((self.imax >= 0).all())
        checks = [
            (self.windows in ("paper", "rolling"), f"windows = {self.windows!r}; allowed: 'paper', 'rolling'"),
            (whole, "imax must be whole numbers from 0 on"),
            (0 < self.decay_length < np.inf, "decay_length must be above 0 and finite"),
            (T >= 1 and C >= 1, "psi needs at least one class and one round"),
            (self.centres.shape == (C, 2), f"centres have shape {self.centres.shape}; allowed: {(C, 2)}"),
            (self.radii.shape == (C,), f"radii have shape {self.radii.shape}; allowed: {(C,)}"),
            (bool(np.isfinite(self.centres).all()), "centres must be finite"),
            (bool((np.isfinite(self.radii) & (self.radii > 0)).all()), "radii must be above 0 and finite"),
            (bool((np.isfinite(self.psi) & (self.psi >= 0)).all()), "psi must be 0 or more and finite"),
            (0 <= self.dmin <= _FARTHEST and self.vmax > 0, f"dmin must be 0 to {_FARTHEST:g} m, vmax above 0"),
            (self.vmax >= self.dmin, f"vmax = {self.vmax} is below dmin = {self.dmin}: the vehicle could not move"),
            (0 < self.epsilon < np.inf, "epsilon must be above 0 and finite"),
            (
                self.start is None or (self.start.shape == (2,) and bool(np.isfinite(self.start).all())),
                "start: 2 numbers",
            ),
            (self.flown >= 0, "flown must be 0 or more"),
            *((False, line) for line in (self.pictures.problems(C, T) if self.pictures else [])),
            (known, "constraints must be objects of subclasses of skyfed.flight.Constraint"),
        ]
        for holds, message in checks:
            if not holds:
                raise BadInputError(f"flight problem: {message}")
        shape = (C, len(self.spans))
        if self.imax.shape != shape:
            raise BadInputError(
                f"flight problem: imax has shape {self.imax.shape}; allowed: {shape} (classes, windows)"
            )

    @property
    def classes(self) -> int:
        """C."""
        return int(self.psi.shape[0])

    @property
    def rounds(self) -> int:
        """T."""
        return int(self.psi.shape[1])

    @property
    def spans(self) -> Ints:
        """First round and one past the last of every window; (W, 2)."""
        spans = window_spans(self.classes, self.flown + self.rounds, self.windows) - self.flown
        return np.maximum(0, spans[spans[:, 1] > 0]) if self.flown else spans

    @cached_property
    def window_rounds(self) -> Bools:
        """Which rounds each window holds; (W, T)."""
        rounds = np.arange(self.rounds)
        return np.asarray((rounds >= self.spans[:, :1]) & (rounds < self.spans[:, 1:]))

    @property
    def paper_only(self) -> "Problem":
        """The problem without the user's constraints: a relaxation, so its bounds hold for the whole problem too."""
        return replace(self, constraints=()) if self.constraints else self

    @cached_property
    def base(self) -> Floats:
        """What stands inside the logarithm beside what is collected; (C,)."""
        return np.full(self.classes, self.epsilon) if self.pictures is None else self.pictures.held

    @cached_property
    def value(self) -> Floats:
        """Worth of each class's logarithm; (C,)."""
        return np.ones(self.classes) if self.pictures is None else self.pictures.value

    @cached_property
    def most(self) -> Floats:
        """The most that any flight collects of each class; (C,)."""
        total = self.psi.sum(axis=1)
        if self.pictures is None or not self.pictures.ends.size:
            return np.asarray(total)
        ends = self.pictures.ends
        return np.asarray(np.minimum(total, ends[:, -1] - (ends - self.psi).min(axis=1)))  # all that is ever in view

    @cached_property
    def closed(self) -> Bools:
        """Which classes the way from the start keeps out of reach in which rounds; (C, T)."""
        if self.start is None:
            return np.zeros(self.psi.shape, bool)
        far = np.hypot(*(self.centres - self.start).T) - self.radii
        return np.asarray(far[:, None] > (np.arange(self.rounds) + 1) * self.vmax + 1e-9)

    def share(self, points: Floats, label: Ints) -> Floats:
        """Which part of its samples each point (n, 2) over a disc shows, 1 at the centre; the paper's counts all."""
        if self.pictures is None:
            return np.ones(len(points))
        return self.pictures.share(points - self.centres[label], label, self.decay_length)

    def fresh(self, t: int, last: Ints) -> Floats | None:
        """The most that visits in round t bring after those of rounds `last` (n, C), IDLE for none; None: no limit."""
        if self.pictures is None or not self.pictures.ends.size:
            return None
        ends = self.pictures.ends
        before = ends[np.arange(self.classes), np.maximum(last, 0)]
        return np.where(last == IDLE, np.inf, ends[:, t] - before)

    def amounts(self, association: Ints, positions: Floats | None = None) -> Floats:
        """What each round collects, (T,); without positions as if all visits were at the centres."""
        rounds = np.flatnonzero(association != IDLE)
        labels = association[rounds]
        amount = np.zeros(self.rounds)
        amount[rounds] = self.psi[labels, rounds]
        if self.pictures is None:
            return amount
        if self.pictures.ends.size:
            for c in np.unique(labels):
                own = rounds[labels == c]
                new = np.diff(self.pictures.ends[c, own], prepend=-np.inf)
                amount[own] = np.minimum(amount[own], new)
        if positions is not None:
            amount[rounds] *= self.share(positions[rounds], labels)
        return amount

    def collected(self, association: Ints, positions: Floats | None = None) -> Floats:
        """Sum over time of what is collected of each class, of I * psi in the paper; (C,)."""
        rounds = np.flatnonzero(association != IDLE)
        labels, amount = association[rounds], self.amounts(association, positions)
        return np.asarray(np.bincount(labels, amount[rounds], self.classes), np.float64)

    def objective(self, association: Ints, positions: Floats | None = None) -> float:
        """Objective of an association, nats (Eq. 4); pictures need the positions, without them it is never less."""
        return float((self.value * np.log(self.collected(association, positions) + self.base)).sum())


def labels_of(indicators: Floats) -> Ints:
    """Return the association of indicators (C, T): in each round the class above 1/2, IDLE without one; (T,)."""
    return np.where(indicators.max(axis=0) > 0.5, indicators.argmax(axis=0), IDLE)


def window_spans(classes: int, rounds: int, windows: Windows) -> Ints:
    """Rounds of C5's windows as [first, stop); (W, 2).

    paper    t1 with (t1 + 1) mod C = 0, rounds t1..t1+C: C+1 rounds, neighbours share one, the first C-1 are free
    rolling  every C consecutive rounds
    """
    if windows == "paper":
        first, length = np.arange(classes - 1, rounds, classes), classes + 1
    else:
        first, length = np.arange(max(1, rounds - classes + 1)), classes
    return np.stack([first, np.minimum(first + length, rounds)], axis=1).astype(np.int64)


def spread_imax(imax: Any, vehicles: int, classes: int, windows: int) -> Ints:
    """Broadcast a number or nested list to (vehicles, classes, windows) by numpy's rule."""
    shape = (vehicles, classes, windows)
    given: Any = "uneven rows"
    try:
        array = np.asarray(imax, np.int64)
        given = array.shape
        return np.array(np.broadcast_to(array, shape))
    except ValueError:
        raise BadInputError(
            f"flight.imax: {given} does not broadcast to {shape}; allowed: a number, or an array that broadcasts to "
            "(vehicles, classes, windows)"
        ) from None
