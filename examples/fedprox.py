"""FedProx as one file: `skyfed run smoke --set 'algorithms=["2ceoafl", "examples/fedprox.py:FedProx"]'`.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020. A vehicle
minimises its own loss plus (mu / 2) ||w - w^t||^2, which holds it near the model that it was sent. The station takes
the weighted mean of all vehicles, as in AFL; that is what the base class does.
"""

import torch
from pydantic import Field
from torch import Tensor

from skyfed import Algorithm


class FedProx(Algorithm):
    """AFL with a proximal term in every vehicle's loss."""

    title = "FedProx"

    class Settings(Algorithm.Settings):
        """Set in a row of the config: {use = "examples/fedprox.py:FedProx", mu = 0.1}."""

        mu: float = Field(0.1, ge=0, description="weight of the proximal term")

    def local(self, kit, received, memory):
        """Train on board; the gradient of the proximal term is mu (w - w^t)."""
        start = torch.from_numpy(received["weights"])

        def towards_start(weights: Tensor, gradient: Tensor) -> Tensor:
            return gradient + self.settings.mu * (weights - start.to(weights))

        trained = kit.descend(received, adjust=towards_start)
        return {"update": kit.raw(trained)}, memory
