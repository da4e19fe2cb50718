"""3x3 convolutions on small maps with fewer multiplications, for testing: Winograd's minimal filtering and its kin.

Along one axis the outputs are OUT [(KERNEL g) * (INTO d)]; both axes together take the square of the products. What
meets padding is left out. Results differ from a plain convolution by rounding (some 1e-5 of the largest). Maps lie
pixel by pixel, (pixel, picture, channel), so that every transform is a matrix product over what lies together.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from skyfed.types import Floats

LEAST = 32  # channels from which on it is worth it
_TAPS = 3
_WEIGHTS = 1 << 24  # bytes that transformed kernels may take; larger ones are slower to read than to do without
_TOGETHER = 1 << 22  # bytes of products that are made at a time, so that they stay in cache

Scratch = dict[tuple[int, ...], Tensor]  # memory that is written anew at every use; fresh memory is slow


@dataclass(frozen=True)
class Scheme:
    """What is multiplied along one axis of a map with `side` pixels: into (products, side), kernel, out."""

    into: Floats
    kernel: Floats
    out: Floats


def _by_points(side: int, *pairs: float) -> Scheme:
    """Return side + 2 products instead of 3 a pixel: polynomials by their values at 0, +-pairs and infinity.

    The transpose of Toom's and Cook's product of two polynomials (Winograd 1980); the points were chosen for small
    rounding errors.
    """
    points = [0.0, *(sign * point for point in pairs for sign in (1, -1))]

    def values(size: int) -> Floats:
        return np.array([[point**k for k in range(size)] for point in points] + [[0.0] * (size - 1) + [1.0]])

    into, out = np.linalg.inv(values(side + _TAPS - 1)).T, values(side).T
    even = np.sqrt(np.abs(out).max(axis=0) / np.abs(into).max(axis=1))  # both of a size, for small errors
    return Scheme((into * even[:, None])[:, 1:-1], values(_TAPS), out / even)  # what is cut off meets padding


SCHEMES = {  # by side of the map
    8: _by_points(8, 0.5, 0.8, 1.25, 2.0),
    4: _by_points(4, 2 / 3, 3 / 2),
    2: Scheme(  # a Toeplitz matrix times two numbers: 3 products instead of 4
        np.array([[1.0, 1], [0, 1], [1, 0]]),
        np.array([[0.0, 1, 0], [0, -1, 1], [1, -1, 0]]),
        np.array([[1.0, 1, 0], [1, 0, 1]]),
    ),
}


def fits(weight: Tensor, side: int) -> bool:
    """Tell whether there is a scheme, and it is worth it, for this kernel (out, in, 3, 3)."""
    if side not in SCHEMES:
        return False
    products = len(SCHEMES[side].into) ** 2
    return min(weight.shape[:2]) >= LEAST and 4 * products * weight[..., 0, 0].numel() <= _WEIGHTS


class WinogradConv:
    """A 3x3 convolution with padding 1 and stride 1 on a square map of a known side, with a bias."""

    def __init__(self, weight: Tensor, bias: Tensor, side: int, scratch: Scratch) -> None:
        """Take a kernel (out, in, 3, 3) and what is added to each output channel."""
        scheme = SCHEMES[side]
        self._into, self._out = (torch.from_numpy(part).to(weight.dtype) for part in (scheme.into, scheme.out))
        left = torch.from_numpy(scheme.kernel)
        whole = torch.einsum("ik,ockl,jl->ijco", left, weight.double(), left).flatten(0, 1)
        self._kernel = whole.to(weight.dtype).contiguous()
        self._bias, self._scratch, self.count = bias, scratch, side**2
        self._most = max(1, _TOGETHER // (4 * len(scheme.into) ** 2 * max(weight.shape[:2])))

    def __call__(self, x: Tensor, relu: bool = False, add: Tensor | None = None) -> Tensor:
        """Convolve, add, and cut off below 0; a few pictures at a time. Returns (pixel, picture, channel).

        Writes over an `add` that lies pixel by pixel, or else to memory that the next call writes to again.
        """
        x, side = pixels_of(x, self.count).contiguous(), self._into.shape[1]
        out = self._kernel.shape[-1]
        y = self._room(0, *x.shape[:2], out) if add is None else pixels_of(add, self.count).contiguous()
        together = math.ceil(x.shape[1] / math.ceil(x.shape[1] / self._most))
        ins, into = (whole.view(side, side, *whole.shape[1:]).transpose(0, 1) for whole in (x, y))  # column, row
        for first in range(0, x.shape[1], together):
            some = slice(first, first + together)
            part = y[:, some]
            self._few(ins[:, :, some].flatten(2), into[:, :, some].flatten(2), 0 if add is None else 1)
            part += self._bias
            if relu:
                part.relu_()
        return y

    def _few(self, x: Tensor, y: Tensor, keep: int) -> None:
        """Write keep * y + the convolution of x to y."""
        products, side = self._into.shape
        ins, outs = self._kernel.shape[1:]
        pictures = x.shape[2] // ins
        half = torch.matmul(self._into, x, out=self._room(1, side, products, pictures * ins))
        whole = torch.matmul(self._into, half.transpose(0, 1), out=self._room(2, products, products, pictures * ins))
        multiplied = self._room(3, products**2, pictures, outs)
        torch.bmm(whole.view(products**2, pictures, ins), self._kernel, out=multiplied)
        back = self._room(4, products, side, pictures * outs)
        torch.matmul(self._out, multiplied.view(products, products, -1), out=back)
        y.baddbmm_(self._out.expand(side, -1, -1), back.transpose(0, 1), beta=keep)

    def _room(self, use: int, *shape: int) -> Tensor:
        key = (use, *shape)
        if key not in self._scratch:
            self._scratch[key] = self._kernel.new_empty(shape)
        return self._scratch[key]


def pixels_of(x: Tensor, count: int) -> Tensor:
    """Return pictures in any of the three orders as (pixel, picture, channel); each has `count` pixels."""
    if x.dim() == 3:
        return x
    if x.dim() == 2:
        return x.view(len(x), count, -1).transpose(0, 1).contiguous()
    return x.permute(2, 3, 0, 1).reshape(count, len(x), -1)
