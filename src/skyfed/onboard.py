"""Does jobs: a vehicle's round, central training, testing, probing. Each reply follows from its job and the config."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from skyfed.algorithms import find_class
from skyfed.algorithms.base import Algorithm, Fleet, Parts
from skyfed.config import Config
from skyfed.errors import BadInputError, own_code
from skyfed.faults import outgoing, spoil
from skyfed.jobs import Job, Jobs, Reply, Upload
from skyfed.kit import Kit, NotFiniteError
from skyfed.learning.engine import Engine
from skyfed.tasks import Task
from skyfed.theory.measure import probe_vehicle
from skyfed.types import Arrays, Model, Update, checked, same_arrays
from skyfed.wire import MODEL, Reference, check_sizes, encode_parts, read_header


class Onboard:
    """The engine and every row's algorithm, built from a config and its data; does jobs in this process."""

    def __init__(self, config: Config, task: Task, dtype: torch.dtype = torch.float32) -> None:
        """Build the model and the algorithms; bad settings show here."""
        if config.field.classes != len(task.places):
            raise BadInputError(
                f"field.classes = {config.field.classes}, but the data has {len(task.places)} places; "
                "allowed: the same number"
            )
        self.config, self.task = config, task
        self.engine = Engine(task, config.model, config.seed, config.device, dtype)
        fleet = Fleet(config.vehicles, config.rounds, config.seed, self.engine)
        self.algorithms: dict[str, Algorithm] = {}
        for row in config.rows:
            settings = config.settings_of(row)
            self.engine.pruner(settings.prune)
            where, kind = f"algorithms, row {row.name!r}", find_class(row)
            with own_code(f"{where}: __init__", BadInputError):
                self.algorithms[row.name] = algorithm = kind(settings, fleet)
            own_title = vars(kind).get("title", "")  # a class made from another has its own name
            config.show(row.name, own_title, algorithm.central)
            with own_code(f"{where}: parts", BadInputError):
                sizes = algorithm.parts()
            try:
                check_sizes(sizes)
            except ValueError as error:
                raise BadInputError(f"{where}: {error}") from None
            if settings.theory.every and task.appearance is not None:
                raise BadInputError(f"{where}: theory.every is for appearance that stays; allowed with data.drift: 0")
            if settings.theory.every and not algorithm.central and MODEL not in sizes.values():
                raise BadInputError(f"{where}: theory.every needs an upload over the model's weights; allowed here: 0")

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        """Do jobs one after the other and yield the replies: this process is a driver too."""
        return map(self.do, jobs)

    def do(self, job: Job) -> Reply:
        """Do one job."""
        return {"local": self._local, "central": self._central, "score": self._score, "probe": self._probe}[job.do](job)

    def kit(self, job: Job) -> Kit:
        """Return what a vehicle has on board for a job."""
        config, settings = self.config, self.algorithms[job.label].settings
        deadline = config.world.deadline if config.world.time == "mission" else None
        return Kit(self.engine, settings, config.seed, job, deadline, outgoing(config.faults, job.vehicle))

    def _local(self, job: Job) -> Reply:
        """Let one vehicle train in one round and encode its upload (Eqs. 8-12)."""
        begin, begin_cpu = time.perf_counter(), time.process_time()
        algorithm, kit = self.algorithms[job.label], self.kit(job)
        assert job.vehicle is not None
        data, memory, buffer_bytes = b"", job.memory, 0
        try:
            with own_code(f"{job.label}: local, round {job.round}, vehicle {job.vehicle}"):
                own = {name: array.copy() for name, array in job.memory.items()}  # which it may change in place
                with kit.seeded():
                    returned = algorithm.local(kit, job.sent, own)
                if not isinstance(returned, tuple) or len(returned) != 2:
                    raise TypeError("it returns two things: the vectors of its message, and its memory")
                parts, memory = returned[0], checked(returned[1], "its memory")
                strange = sorted(set(kit.facts) - {column.name for column in algorithm.columns})
                if strange:
                    raise ValueError(f"kit.note({strange[0]}=…): declare it in `columns`")
                data, buffer_bytes = self._encode(algorithm, parts, job)
        except NotFiniteError:
            pass  # its row says so: nothing was sent
        upload = Upload(
            job.vehicle, data, kit.facts, len(kit.samples), kit.work, kit.flops, kit.loss, buffer_bytes,
            time.perf_counter() - begin, time.process_time() - begin_cpu,
        )  # fmt: skip
        return Reply(report_of(upload), data, memory=None if same_arrays(memory, job.memory) else memory)

    def reference_of(self, label: str, sent: Arrays) -> Reference:
        """Return what both sides know of what was sent down to a row's vehicles."""
        nothing = np.empty(0, np.float32)
        model = Model(sent.get("weights", nothing), sent.get("buffers", nothing))
        return self.engine.reference(model, self.algorithms[label].settings.prune)

    def _encode(self, algorithm: Algorithm, parts: Parts, job: Job) -> tuple[bytes, int]:
        sizes, reference = algorithm.parts(), self.reference_of(job.label, job.sent)

        def encode(**changed: Update) -> bytes:
            return encode_parts(dict(parts) | changed, sizes, job.round, job.vehicle or 0, reference)

        data = encode()
        name, update = next(((name, part) for name, part in parts.items() if isinstance(part, Update)), ("", None))
        if update is None:
            return data, 0
        buffer_bytes = read_header(data).buffers_bytes if len(sizes) == 1 else 4 * len(update.buffers)
        faults, seed = self.config.faults, self.config.seed
        return spoil(faults, seed, update, data, lambda spoilt: encode(**{name: spoilt})), buffer_bytes

    def _central(self, job: Job) -> Reply:
        """Train centrally on the union of all data."""
        algorithm, kit = self.algorithms[job.label], self.kit(job)
        with own_code(f"{job.label}: train, round {job.round}"), kit.seeded():
            state = algorithm.train(kit, job.sent)
        return Reply({"loss": kit.loss}, arrays=state)

    def _score(self, job: Job) -> Reply:
        """Score some test samples."""
        model = Model(job.sent["weights"], job.sent["buffers"])
        scores = self.engine.score(model, int(job.words["start"]), int(job.words["stop"]), job.words.get("now"))
        further = {f"metric {name}": values for name, values in scores.metrics.items()}
        return Reply(arrays={"score": scores.score, "loss": scores.loss, **further})

    def _probe(self, job: Job) -> Reply:
        """Measure what Theorem 1 needs to know about a vehicle's loss around w^t and w^{t+1} (A1, A2, Eq. 18)."""
        settings = self.algorithms[job.label].settings
        with self.kit(job).seeded():
            return probe_vehicle(self.engine, settings.train, settings.theory, self.config.seed, job)


def start_of(onboard: Onboard, label: str) -> Arrays:
    """Return a row's state before round 0."""
    with own_code(f"{label}: start"):
        return checked(onboard.algorithms[label].start(onboard.engine.initial()), "its state")


def report_of(upload: Upload) -> dict[str, Any]:
    """Return what a vehicle reports about its upload, as plain values."""
    return {name: value for name, value in vars(upload).items() if name != "data"}


def upload_of(reply: Reply) -> Upload:
    """Return the upload of a reply."""
    return Upload(data=reply.data, **reply.words)
