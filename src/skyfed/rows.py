"""The rows of a run, ready to work: one engine that trains and tests, and an algorithm per row."""

import numpy as np
import torch

from skyfed.algorithms import find_class
from skyfed.algorithms.base import Algorithm, Fleet
from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.learning.engine import Engine
from skyfed.tasks import Task
from skyfed.types import Arrays, Model
from skyfed.wire import MODEL, Reference, check_sizes


class Rows:
    """The engine and every row's algorithm, built from a config and its data."""

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
            self.algorithms[row.name] = algorithm = find_class(row)(settings, fleet)
            own_title = vars(type(algorithm)).get("title", "")  # a class made from another has its own name
            config.show(row.name, own_title, algorithm.central)
            where, sizes = f"algorithms, row {row.name!r}", algorithm.parts()
            try:
                check_sizes(sizes)
            except ValueError as error:
                raise BadInputError(f"{where}: {error}") from None
            if settings.theory.every and not algorithm.central and MODEL not in sizes.values():
                raise BadInputError(f"{where}: theory.every needs an upload over the model's weights; allowed here: 0")

    def reference_of(self, label: str, sent: Arrays) -> Reference:
        """Return what both sides know of what was sent down to a row's vehicles."""
        nothing = np.empty(0, np.float32)
        model = Model(sent.get("weights", nothing), sent.get("buffers", nothing))
        return self.engine.reference(model, self.algorithms[label].settings.prune)
