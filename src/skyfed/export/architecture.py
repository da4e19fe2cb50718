"""The source of a plain PyTorch file that builds a model, for who loads its state dict without skyfed."""

from textwrap import indent

from torch import Tensor, nn

from skyfed.learning.models import BasicBlock

_BLOCK = '''

class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, conv1, norm1, conv2, norm2, shortcut):
        super().__init__()
        self.conv1, self.norm1, self.conv2, self.norm2, self.shortcut = conv1, norm1, conv2, norm2, shortcut

    def forward(self, x):
        y = self.norm1(self.conv1(x)).relu()
        return (self.norm2(self.conv2(y)) + self.shortcut(x)).relu()
'''
_PREPARE = '''

def prepare(inputs):
    """Return bytes as the model takes them: with zero mean and unit deviation per channel."""
    mean = torch.tensor({mean}).view({shape})
    scale = torch.tensor({scale}).view({shape})
    return (inputs.float() - mean) * scale
'''
_AS_THEY_ARE = '''

def prepare(inputs):
    """Return samples as the model takes them."""
    return inputs.float()
'''


def architecture(module: nn.Module, moments: tuple[Tensor, Tensor] | None) -> str:
    """Return a file with `build()`, which makes a built-in model, and `prepare(inputs)`, which normalises inputs."""
    blocks = any(isinstance(layer, BasicBlock) for layer in module.modules())
    prepare = _AS_THEY_ARE
    if moments is not None:
        mean, scale = (each.flatten().tolist() for each in moments)
        prepare = _PREPARE.format(mean=mean, scale=scale, shape=", ".join(map(str, moments[0].shape)))
    network = indent(_source(module), "    ").strip()
    return (
        '"""The network whose weights are in model.safetensors; it needs PyTorch alone."""\n\n'
        f"import torch\nfrom torch import nn\n{_BLOCK if blocks else ''}{prepare}\n\n"
        f'def build():\n    """Return the network with random weights."""\n    return {network}\n'
    )


def _source(module: nn.Module) -> str:
    """Return the expression that builds a module; torch shows its own layers as they are called."""
    if isinstance(module, BasicBlock):
        parts = [_source(getattr(module, name)) for name in ("conv1", "norm1", "conv2", "norm2", "shortcut")]
        return _call("BasicBlock", parts)
    if isinstance(module, nn.Sequential):
        return _call("nn.Sequential", [_source(layer) for layer in module])
    # newer torch shows a norm's bias, which older torch does not take as an argument
    return f"nn.{module!r}".replace(", affine=True, bias=True", ", affine=True")


def _call(name: str, arguments: list[str]) -> str:
    inside = "".join(f"{argument},\n" for argument in arguments)
    return f"{name}(\n{indent(inside, '    ')})"
