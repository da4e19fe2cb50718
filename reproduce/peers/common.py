"""The job that all peers do: rounds of plain federated averaging with a small CNN. Needs torch and numpy only.

Files: `0.npz`, `1.npz`... in a folder, each with one vehicle's images (n, 3, 32, 32), already normalised, and labels.
Every vehicle takes some SGD steps a round.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


@lru_cache(100)
def load(folder: str, vehicle: int) -> tuple[Tensor, Tensor]:
    """Return a vehicle's pictures and labels."""
    with np.load(Path(folder) / f"{vehicle}.npz", allow_pickle=False) as archive:
        return torch.from_numpy(archive["images"]), torch.from_numpy(archive["labels"]).long()


def cnn(width: int = 16) -> nn.Module:
    """Return the small CNN of skyfed (model.name = "cnn")."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * width, 10),
    )  # fmt: skip


def train(model: nn.Module, images: Tensor, labels: Tensor, steps: int, batch: int, rate: float) -> None:
    """Take some SGD steps on one vehicle's data."""
    optimiser = torch.optim.SGD(model.parameters(), rate)
    model.train()
    for _ in range(steps):
        some = torch.randperm(len(labels))[:batch]
        optimiser.zero_grad()
        functional.cross_entropy(model(images[some]), labels[some]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
