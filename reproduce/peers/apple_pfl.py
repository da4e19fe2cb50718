"""The job in pfl: `python apple_pfl.py FOLDER VEHICLES ROUNDS STEPS BATCH`."""

import os
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import common  # type: ignore[import-not-found]
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

FOLDER = sys.argv[1]
VEHICLES, ROUNDS, STEPS, BATCH = map(int, sys.argv[2:6])


class Net(nn.Module):
    """The small CNN with the two methods that pfl asks for."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.inside = common.cnn()

    def forward(self, x: Tensor) -> Any:
        """Classify."""
        return self.inside(x)

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        """Return the loss to minimise."""
        self.eval() if eval else self.train()
        return functional.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor, eval: bool = False) -> dict[str, Any]:
        """Return nothing worth the time."""
        return {"count": Weighted(0.0, len(y))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    data = {str(u): Dataset(raw_data=list(common.load(FOLDER, u)), user_id=str(u)) for u in range(VEHICLES)}
    turn = iter(str(k % VEHICLES) for k in range(10**9))
    fleet = FederatedDataset(lambda user: data[user], lambda: next(turn))
    net = Net()
    model = PyTorchModel(
        model=net, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0)
    )
    rounds = NNAlgorithmParams(
        central_num_iterations=ROUNDS, evaluation_frequency=10**9, train_cohort_size=VEHICLES, val_cohort_size=0
    )
    steps = NNTrainHyperParams(
        local_num_epochs=None, local_num_steps=STEPS, local_learning_rate=0.1, local_batch_size=BATCH
    )
    FederatedAveraging().run(
        algorithm_params=rounds,
        backend=SimulatedBackend(training_data=fleet, val_data=fleet),
        model=model,
        model_train_params=steps,
        model_eval_params=NNEvalHyperParams(local_batch_size=BATCH),
        callbacks=[],
    )
