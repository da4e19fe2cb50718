"""A model of one's own: any torch.nn.Module that takes pictures (N, 3, side, side) and gives logits (N, classes).

Train it from this folder:

    skyfed run smoke --set model.name=own_model:build --set 'algorithms=["2ceoafl"]' --out own-model

`python own_model.py` says how large it is.
"""

from torch import Tensor, nn


class Separable(nn.Module):
    """Depthwise and pointwise convolutions: few weights, so short uploads."""

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.depth = nn.Conv2d(width, width, 3, 2, 1, groups=width)
        self.point = nn.Conv2d(width, 2 * width, 1)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.head = nn.Linear(2 * width * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.point(self.depth(self.stem(x).relu())).relu()
        x = nn.functional.adaptive_avg_pool2d(self.norm(x), 4)
        return self.head(x.flatten(1))


def build(classes: int, side: int) -> nn.Module:
    """Build it; what `model.name` names. Initial weights follow from the config's seed."""
    return Separable(classes)


if __name__ == "__main__":
    print(f"{sum(p.numel() for p in build(10, 32).parameters()):,} weights")
