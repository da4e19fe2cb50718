"""Clustered models: `skyfed run smoke --set 'algorithms=["afl", "examples/clustered.py:Clustered"]'`.

Ghosh, Chung, Yin, Ramchandran: "An Efficient Framework for Clustered Federated Learning" (IFCA), NeurIPS 2020. The
station has several models and sends them all. Each vehicle trains the one with the least loss on its own data and says
which it was. Every model takes the mean of those who trained it, and serves them.
"""

import numpy as np
from pydantic import Field

from skyfed import MODEL, Algorithm, Model
from skyfed.blocks.aggregate import aggregate, moved
from skyfed.rng import stream


class Clustered(Algorithm):
    """Several models, each trained by the vehicles that it fits best."""

    title = "Clustered"

    class Settings(Algorithm.Settings):
        """Set in a row of the config: {use = "examples/clustered.py:Clustered", clusters = 3}."""

        clusters: int = Field(2, ge=1, le=8, description="number of models")
        apart: float = Field(0.1, ge=0, description="how far the first models are from each other, relative")
        tried: int = Field(200, ge=1, description="samples by which a vehicle chooses its model")

    def parts(self):
        """An upload has two vectors: the gradient, and the number of the model that was trained."""
        return {"update": MODEL, "cluster": 1}

    def start(self, model):
        """Start from models that differ a little; without that they would stay equal."""
        state = {"chosen": np.zeros(self.fleet.vehicles, np.int64)}
        for k in range(self.settings.clusters):
            noise = stream(self.fleet.seed, "cluster", round=k).standard_normal(len(model.weights)).astype(np.float32)
            size = np.float32(self.settings.apart * model.weights.std()) if k else np.float32(0)
            state |= {self.weights(k): model.weights + size * noise, self.buffers(k): model.buffers.copy()}
        return state

    def send(self, state, vehicle, t):
        """Send all models to everybody."""
        return {name: array for name, array in state.items() if name != "chosen"}

    def local(self, kit, received, memory):
        """Choose the model with the least loss, train it, and say which."""
        models = [
            {"weights": received[self.weights(k)], "buffers": received[self.buffers(k)]}
            for k in range(self.settings.clusters)
        ]
        best = int(np.argmin([kit.losses(model, self.settings.tried) for model in models]))
        trained = kit.descend(models[best])
        return {"update": kit.raw(trained), "cluster": np.array([best], np.float32)}, memory

    def step(self, state, messages, t):
        """Move every model by the mean of those who trained it."""
        state = {**state, "chosen": state["chosen"].copy()}
        groups = [[] for _ in range(self.settings.clusters)]
        for message in messages:
            k = int(np.clip(message.parts["cluster"][0], 0, self.settings.clusters - 1))
            groups[k].append(message)
            state["chosen"][message.vehicle] = k
        for k, group in enumerate(groups):
            found = aggregate(group, self.settings.server, self.fleet.vehicles, {})
            if found is not None:
                down = found.times(self.settings.train.eta_at(t))
                state |= {self.weights(k): moved(state[self.weights(k)], down), self.buffers(k): found.buffers}
        return state

    def deliver(self, state):
        """Evaluate and save every model."""
        return {
            f"cluster {k}": Model(state[self.weights(k)], state[self.buffers(k)]) for k in range(self.settings.clusters)
        }

    def serves(self, state, vehicle):
        """A vehicle uses the model that it trained last."""
        return f"cluster {state['chosen'][vehicle]}"

    def weights(self, k):
        """Name of a model's weights; the first model's are those that uploads refer to."""
        return f"weights {k}" if k else "weights"

    def buffers(self, k):
        """Name of a model's buffers."""
        return f"buffers {k}" if k else "buffers"
