"""A model of one's own for the run `own-model`: it has batch norm, and it tosses coins (dropout)."""

from torch import nn


def build(classes: int, side: int) -> nn.Module:
    """Return a small convolutional model for pictures of this side."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(min(4, side)),
        nn.Flatten(),
        nn.Linear(8 * min(4, side) ** 2, classes),
    )
