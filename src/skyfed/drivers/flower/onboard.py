"""A vehicle's own side: its data, its flights and its memory; an order and a model in, an upload out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from skyfed.algorithms.base import Algorithm
from skyfed.arrays import pack_arrays, view_arrays
from skyfed.drivers.flower.messages import BRIEF, NO_BASE, Order, ReplyError
from skyfed.drivers.flower.policy import Answered, Policy
from skyfed.errors import one_line
from skyfed.files import write_whole
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.jobs import Job, Upload
from skyfed.onboard import Onboard, start_of, upload_of
from skyfed.runs.folder import RunFolder, run_identity
from skyfed.runs.start import world_of
from skyfed.types import Arrays
from skyfed.wire import DecodeError, decode_changes, decode_content, digest_of, has_raw, is_changes
from skyfed.world import World

_EXTRA = 64  # what is sent down may have so many times the model's entries


class Vehicle:
    """One vehicle, resident: data and model are loaded once and stay."""

    def __init__(self, onboard: Onboard, world: Callable[[], World], vehicle: int, place: Path | None = None) -> None:
        """Keep memory, and what was answered, in the vehicle's folder; without one, in this process alone.

        world  makes a world before its first round
        """
        self.vehicle, self._run = vehicle, run_identity(onboard.config)
        self._onboard, self._new_world = onboard, world
        self._worlds: dict[str, tuple[World, bytes]] = {}  # by row, with the times it was told
        self._memories = MemoryFolder(place / "memory", self._run) if place else None
        self._policy = Policy.read(place) if place else Policy()
        self._answered = Answered(place / "answered.json" if place else None)
        self._last: tuple[Order, str, Upload] | None = None
        self._held: list[Arrays] = []  # the last two: who is asked twice in a round needs the one before
        self._at: dict[tuple[str, int], Arrays] = {}  # the same by the row and round in which they were received

    @classmethod
    def load(cls, place: Path, vehicle: int) -> "Vehicle":
        """Load what a vehicle's folder says: config.toml and plan.npz."""
        config = RunFolder.config_of(place)
        task = config.load_task()
        make = partial(world_of, config, task, load_fleet_plan(place / "plan.npz"))
        make()  # what is wrong with it shows now
        return cls(Onboard(config, task), make, vehicle, place)

    def train(self, order: Order, content: bytes) -> tuple[Upload, str]:
        """Do what was asked, or raise ReplyError with why not; returns the upload and a remark for the station."""
        if order.run != self._run:
            raise ReplyError(f"prepared for run {self._run}, asked by run {one_line(order.run)}")
        if order.vehicle != self.vehicle:
            raise ReplyError(f"this is vehicle {self.vehicle}, not {order.vehicle}")
        exchanges = {label: algorithm.exchanges for label, algorithm in self._onboard.algorithms.items()}
        self._policy.check_order(order, self._onboard.config, exchanges)
        sent = self._receive(order, content)
        self._policy.check_model(sent)
        digest = self._answered.check(order, sent, self._policy.models)
        if self._last is not None and self._last[:2] == (order, digest):
            return self._last[2], ""  # the reply was lost on its way
        upload, remark = self._train(order, sent, exchanges[order.algorithm])
        sizes = self._onboard.algorithms[order.algorithm].parts()
        if upload.data and not self._policy.raw and has_raw(upload.data, sizes):
            raise ReplyError("its policy is to send nothing that is not quantised")
        self._answered.note(order, digest)
        self._last = (order, digest, upload)
        return upload, remark

    def _train(self, order: Order, sent: Arrays, exchanges: int) -> tuple[Upload, str]:
        t, at = order.round, order.round * exchanges + order.exchange
        memory, remark = self._memories.before(order.algorithm, at) if self._memories else ({}, "")
        words = {"share": order.share, "exchange": order.exchange, **dict(zip(BRIEF, order.brief, strict=False))}
        data = self._world_of(order).data(self.vehicle, t)
        reply = self._onboard.do(Job("local", sent, order.algorithm, t, self.vehicle, data, memory, words))
        if self._memories:
            kept = (self._onboard.config.checkpoint_every + 1) * exchanges
            self._memories.keep(order.algorithm, at, memory if reply.memory is None else reply.memory, kept)
        return upload_of(reply), remark

    def _world_of(self, order: Order) -> World:
        """Return this vehicle's world along the times that an order tells; rows of a run have different clocks."""
        world, told = self._worlds.get(order.algorithm, (None, b""))
        if world is None or not order.arrive.startswith(told):  # the station went back in time
            world = self._new_world()
        world.flights.tell(self.vehicle, np.frombuffer(order.arrive, "<f8"))
        self._worlds[order.algorithm] = (world, order.arrive)
        return world

    def _receive(self, order: Order, content: bytes) -> Arrays:
        t, layout = order.round, self._onboard.engine.layout
        if is_changes(content):
            return self._followed(order, content)
        sizes = (layout.live_size, layout.buffers)
        problem = NO_BASE
        for base in (None, *self._held):
            try:
                sent = decode_content(content, t, sizes, _EXTRA * (sum(sizes) + 1024), base)
                break
            except DecodeError as error:
                problem = NO_BASE if "another model" in str(error) else str(error)
        else:
            raise ReplyError(problem)
        self._hold(order, sent)
        return sent

    def _followed(self, order: Order, content: bytes) -> Arrays:
        """Return what changes make of the content that they start from; raises ReplyError where it is not here."""
        algorithm = self._onboard.algorithms[order.algorithm]
        if type(algorithm).follow is Algorithm.follow:
            raise ReplyError(f"changes, but {order.algorithm!r} is sent whole or as a difference")
        try:
            since, changes, digest = decode_changes(content, order.round)
            sent = self._at.get((order.algorithm, since))
            if since == 0:  # the first model follows from the seed
                sent = algorithm.send(start_of(self._onboard, order.algorithm), self.vehicle, 0)
            if sent is None or len(content) >= sum(array.nbytes for array in sent.values()):
                raise ReplyError(NO_BASE)  # of changes that long, the whole is shorter
            for change in changes:
                sent = algorithm.follow(sent, change)
        except DecodeError as error:
            raise ReplyError(str(error)) from None
        if digest_of(sent) != digest:
            raise ReplyError(NO_BASE)
        self._hold(order, sent)
        return sent

    def _hold(self, order: Order, sent: Arrays) -> None:
        """Keep what was received, and what was before it."""
        digest = digest_of(sent)
        self._held = [sent, *[held for held in self._held if digest_of(held) != digest][:1]]
        self._at = {at: arrays for at, arrays in self._at.items() if any(arrays is held for held in self._held)}
        self._at[order.algorithm, order.round] = sent


class MemoryFolder:
    """A vehicle's memory on its own disk, after each of the last exchanges: one may be asked for again."""

    def __init__(self, place: Path, run: str) -> None:
        self._place, self._run = place, run

    def before(self, label: str, at: int) -> tuple[Arrays, str]:
        """Return the memory that an exchange starts from, and a remark if it was lost."""
        for path in [path for number, path in reversed(self._files(label)) if number < at]:
            try:
                memory, about = view_arrays(path.read_bytes())
                if about.get("run") == self._run:
                    return {name: array.copy() for name, array in memory.items()}, ""
            except (OSError, ValueError, KeyError, TypeError):
                continue
        lost = (self._place / f"{label}.used").exists()
        return {}, "its memory is lost; it starts from nothing" if lost else ""

    def keep(self, label: str, at: int, memory: Arrays, kept: int) -> None:
        """Keep the memory after an exchange, and that of so many before it; the station may go back to these."""
        files = self._files(label)
        for path in [path for number, path in files if number >= at]:
            path.unlink()
        first = all(number >= at for number, _ in files)
        if first and not memory:
            return
        self._place.mkdir(parents=True, exist_ok=True)
        if first:
            (self._place / f"{label}.used").touch()
        write_whole(self._place / f"{label}-{at:07d}.safetensors", pack_arrays(memory, {"run": self._run}))
        for _, path in self._files(label)[: -max(2, kept)]:
            path.unlink()

    def _files(self, label: str) -> list[tuple[int, Path]]:
        """Return the files of an algorithm with the numbers of their exchanges, the oldest first."""
        named = [(path.stem.rpartition("-"), path) for path in self._place.glob("*.safetensors")]
        return sorted((int(number), path) for (owner, _, number), path in named if owner == label)
