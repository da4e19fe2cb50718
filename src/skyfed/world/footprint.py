"""Sensing by the camera's footprint: samples are events with a place and a time, and a visit photographs some of them.

An event of class c occurs at a point drawn from component c of the mixture (Eq. 1). It begins at a mission second drawn
with density proportional to psi_c (Eq. 2), which is constant within a planned round, and stays for a fixed time. Before
second 0 psi is that of round 0. Some events therefore are under way when the mission starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skyfed.field import Mixture
from skyfed.rng import stream
from skyfed.types import Bools, Floats, Ints

_VISIT = 5  # numbers of a recorded visit: x, y, side, arrive, leave


@dataclass(frozen=True)
class Events:
    """What happens in a world, one event per sample.

    samples  (n,) indices into the data set      places  (n, 2) metres, station at (0, 0)
    begin    (n,) mission seconds                end     (n,) mission seconds
    """

    samples: Ints
    places: Floats
    begin: Floats
    end: Floats

    def seen(self, position: Floats, side: float, arrive: float, leave: float) -> Bools:
        """Tell which events a camera photographs from `arrive` to `leave`, in a square around a position; (n,)."""
        if not arrive <= leave:
            raise ValueError(f"a visit from second {arrive:g} to second {leave:g}; allowed: arrive <= leave")
        (west, south), (east, north) = position - side / 2, position + side / 2
        order, x = self._by_x
        strip = order[np.searchsorted(x, west) : np.searchsorted(x, east, "right")]
        y = self.places[strip, 1]
        seen = np.zeros(len(self.samples), bool)
        seen[strip] = (y >= south) & (y <= north) & (self.begin[strip] <= leave) & (self.end[strip] >= arrive)
        return seen

    @cached_property
    def _by_x(self) -> tuple[Ints, Floats]:
        """Return the events' order from west to east, and their x in it: a visit then looks at a strip of them only."""
        order = np.argsort(self.places[:, 0], kind="stable")
        return order, self.places[order, 0]


def draw_events(
    pool: Sequence[Ints], mixture: Mixture, psi: Floats, round_seconds: float, stay: float, rng: np.random.Generator
) -> Events:
    """Give every sample of a pool (one array per class) its place and time; psi (C, T).

    A class whose psi is 0 throughout never occurs.
    """
    knots, mass = beginnings(psi, round_seconds, stay)
    pool = [own if mass[c, -1] > 0 else own[:0] for c, own in enumerate(pool)]
    places, labels = mixture.sample(np.array([len(own) for own in pool]), rng)
    part = rng.random(len(labels)) * mass[labels, -1]
    begin = np.empty(len(labels))
    for c in range(len(pool)):
        begin[labels == c] = np.interp(part[labels == c], mass[c], knots)  # inverse transform
    return Events(np.concatenate(pool), places, begin, begin + stay)


def expected_count(
    positions: Floats,
    side: float,
    arrive: float | Floats,
    leave: float | Floats,
    *,
    mixture: Mixture,
    psi: Floats,
    sizes: Ints,
    round_seconds: float,
    stay: float,
    since: float | Floats = -np.inf,
) -> Floats:
    """Return the expected pictures of each class that visits bring; positions (n, 2) -> (n, C).

    It is sizes (C,) x P(in time) x P(inside the square). Times are one number or (n,). Earlier visits do not count,
    unless `since` is given: the second until which the vehicle has watched the same square.
    """
    knots, mass = beginnings(psi, round_seconds, stay)
    first = np.maximum(np.subtract(arrive, stay), since)
    last = np.maximum(leave, first)
    in_time = np.stack([np.interp(last, knots, own) - np.interp(first, knots, own) for own in mass], axis=-1)
    share = np.divide(in_time, mass[:, -1], out=np.zeros_like(in_time), where=mass[:, -1] > 0)
    return np.asarray(sizes * share * in_square(positions, side, mixture.centres, mixture.deviations))


def in_square(positions: Floats, side: float, centres: Floats, deviations: Floats) -> Floats:
    """Return which part of each class's places lies in squares around positions (n, 2); (n, C)."""
    from scipy.special import ndtr  # a slow import that Eq. 6 does not need

    off, spread = positions[:, None] - centres, deviations[:, None]  # (n, C, 2), (C, 1)
    inside: Floats = (ndtr((off + side / 2) / spread) - ndtr((off - side / 2) / spread)).prod(axis=-1)
    return inside


def beginnings(psi: Floats, round_seconds: float, stay: float) -> tuple[Floats, Floats]:
    """Return seconds (K,) and the mass of beginnings up to each (C, K), linear in between."""
    knots = np.concatenate([[-stay], round_seconds * np.arange(psi.shape[1] + 1)])
    rates = np.concatenate([psi[:, :1], psi], axis=1)
    return knots, np.pad(np.cumsum(rates * np.diff(knots), axis=1), ((0, 0), (1, 0)))


class CameraGrowth:
    """One vehicle's growing set: samples in the order they were photographed; it reads as `sensing.Growth` does.

    samples  (n,) indices into the data set       size  (t,) how many of them are there in each round so far
    dry      (t,) initial samples that the pool did not have; 0 after round 0, as a visit wants no fixed number
    visits   (t, 5) x, y, side, arrive, leave of each round; NaN where nothing was sensed
    """

    def __init__(self, initial: Ints, events: Events, rng: np.random.Generator, dry: int = 0) -> None:
        """Start round 0 with the initial samples: old pictures that are no events."""
        self._events, self._rng = events, rng
        self._new = np.ones(len(events.samples), bool)
        self.samples = initial[rng.permutation(len(initial))]
        self.size, self.dry = np.array([len(initial)]), np.array([dry])
        self.visits = np.full((1, _VISIT), np.nan)

    def visit(self, position: Floats, side: float, arrive: float, leave: float) -> None:
        """Spend the next round over a position: photograph what is in view and was not photographed before."""
        taken = np.flatnonzero(self._events.seen(position, side, arrive, leave) & self._new)
        self._new[taken] = False
        self._close(self._events.samples[self._rng.permutation(taken)], [*position, side, arrive, leave])

    def skip(self) -> None:
        """Sense nothing in the next round."""
        self._close(self.samples[:0], [np.nan] * _VISIT)

    def replay(self, visits: Floats) -> None:
        """Repeat recorded rounds from where this set is; a new set then equals the one that was recorded."""
        for x, y, side, arrive, leave in visits[len(self.size) :]:
            if np.isnan(side):
                self.skip()
            else:
                self.visit(np.array([x, y]), side, arrive, leave)

    def at(self, t: int, keep_last: int = 0) -> Ints:
        """Return the samples held in round t: D_u^t (Eq. 7)."""
        held = self.samples[: self.size[t]]
        return held[-keep_last:] if keep_last else held

    def views(self, rounds: int) -> list[tuple[Floats, Floats, Ints]]:
        """Return of every visit in the first rounds: where it was, and places and samples of what it photographed."""
        order = np.argsort(self._events.samples)
        known = self._events.samples[order]
        views = []
        for t in range(1, rounds):
            taken = self.samples[self.size[t - 1] : self.size[t]]
            if len(taken):
                views.append((self.visits[t, :2], self._events.places[order[np.searchsorted(known, taken)]], taken))
        return views

    def _close(self, samples: Ints, visit: list[float]) -> None:
        self.samples = np.concatenate([self.samples, samples])
        self.size = np.append(self.size, len(self.samples))
        self.dry = np.append(self.dry, 0)
        self.visits = np.concatenate([self.visits, [visit]])


def build_cameras(
    pools: list[list[Ints]],
    mixtures: Sequence[Mixture],
    psi: Floats,
    initial: Ints,
    round_seconds: float,
    stay: float,
    seed: int,
    part: str,
) -> list[CameraGrowth]:
    """Return every vehicle's set with round 0 done; psi (U, C, T), initial (U, C) samples that each starts with.

    pools  one per vehicle (of its own world), or a single one: then all vehicles share the world of vehicle 0
    part   "train" or "test", for the random numbers

    Initial samples come first in a pool and are of one vehicle alone. In a shared world, a vehicle gets at most its
    equal part of a class. All other samples are events.
    """
    vehicles, groups = len(mixtures), len(pools)
    if groups not in (1, vehicles):
        raise ValueError(f"{groups} pools for {vehicles} vehicles; allowed: one, or one per vehicle")
    members = [range(vehicles)] if groups == 1 else [range(u, u + 1) for u in range(vehicles)]
    cameras = []
    for u, (pool, sharers) in enumerate(zip(pools, members, strict=True)):
        held = np.array([len(own) for own in pool])
        got = np.minimum(initial[sharers], held // len(sharers))  # (sharers, C)
        ends = np.cumsum(got, axis=0)
        rest = [own[end:] for own, end in zip(pool, ends[-1], strict=True)]
        rng = stream(seed, f"events {part}", vehicle=u)
        events = draw_events(rest, mixtures[u], psi[u], round_seconds, stay, rng)
        for v, vehicle in enumerate(sharers):
            first = [own[end - count : end] for own, end, count in zip(pool, ends[v], got[v], strict=True)]
            order, dry = stream(seed, f"pictures {part}", vehicle=vehicle), int((initial[vehicle] - got[v]).sum())
            cameras.append(CameraGrowth(np.concatenate(first), events, order, dry))
    return cameras
