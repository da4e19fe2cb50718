"""3x3 convolutions on small maps with fewer multiplications, for testing: Winograd's minimal filtering and its kin.

Along one axis the outputs are OUT [(KERNEL g) * (INTO d)]; both axes together take the square of the products. What
meets padding is left out. Results differ from a plain convolution by rounding (some 1e-5 of the largest). Maps lie
pixel by pixel, (pixel, picture, channel), so that every transform is a matrix product over what lies together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LEAST = 32  # channels from which on it is worth it
_WEIGHTS = 1 << 24  # bytes that transformed kernels may take; larger ones are slower to read than to do without
_TOGETHER = 1 << 21  # bytes of products that are made at a time, so that they stay in cache

Rows = list[list[float]]
Scratch = dict[tuple[int, ...], Tensor]  # memory that is written anew at every use; fresh memory is slow


@dataclass(frozen=True)
class Scheme:
    """What is multiplied along one axis: `tiles` copies of a scheme beside each other, `step` pixels apart."""

    into: Rows
    kernel: Rows
    out: Rows
    tiles: int = 1
    step: int = 0


# Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2016): F(4, 3), 6 products instead of 12
_INTO: Rows = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
               [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]  # fmt: skip
_KERNEL: Rows = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
                 [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]  # fmt: skip
_OUT: Rows = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]

SCHEMES = {  # by side of the map
    8: Scheme(_INTO, _KERNEL, _OUT, 2, 4),
    4: Scheme(_INTO, _KERNEL, _OUT),
    2: Scheme(  # a Toeplitz matrix times two numbers: 3 products instead of 4
        [[0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0]],
        [[0, 1, 0], [0, -1, 1], [1, -1, 0]],
        [[1, 1, 0], [1, 0, 1]],
    ),
}


def fits(weight: Tensor, side: int) -> bool:
    """Tell whether there is a scheme, and it is worth it, for this kernel (out, in, 3, 3)."""
    if side not in SCHEMES:
        return False
    products = len(SCHEMES[side].into) ** 2
    return min(weight.shape[:2]) >= LEAST and 4 * products * weight[..., 0, 0].numel() <= _WEIGHTS


class Minimal:
    """A 3x3 convolution with padding 1 and stride 1 on a square map of a known side, with a bias."""

    def __init__(self, weight: Tensor, bias: Tensor, side: int, scratch: Scratch) -> None:
        """Take a kernel (out, in, 3, 3) and what is added to each output channel."""
        scheme = SCHEMES[side]
        into, left, out = (weight.new_tensor(rows) for rows in (scheme.into, scheme.kernel, scheme.out))
        self._tiles, self._products = scheme.tiles, len(into)
        self._outs = scheme.tiles * len(out)
        before = weight.new_zeros(scheme.tiles, len(into), side + 2)
        after = weight.new_zeros(scheme.tiles * len(out), scheme.tiles, len(into))
        for k in range(scheme.tiles):
            before[k, :, scheme.step * k : scheme.step * k + into.shape[1]] = into
            after[k * len(out) : (k + 1) * len(out), k] = out
        before = before[..., 1:-1]  # the rest meets padding
        # down the rows tile by tile, along the columns product by product: then pictures of a product lie together
        self._down, self._along = before.flatten(0, 1).contiguous(), before.transpose(0, 1).flatten(0, 1).contiguous()
        self._up, self._back = after.flatten(1).contiguous(), after.transpose(1, 2).flatten(1).contiguous()
        self._kernel = torch.einsum("ik,ockl,jl->ijco", left, weight, left).flatten(0, 1).contiguous()
        self._bias, self._scratch = bias, scratch
        each = 4 * (scheme.tiles * len(into)) ** 2 * max(weight.shape[:2])
        self._together = max(1, _TOGETHER // each)

    def __call__(self, x: Tensor, relu: bool = False, add: Tensor | None = None) -> Tensor:
        """Convolve (pixel, picture, channel), add, and cut off below 0; a few pictures at a time."""
        y = x.new_empty(self._outs**2, x.shape[1], self._kernel.shape[-1])
        for first in range(0, x.shape[1], self._together):
            some = slice(first, first + self._together)
            part = torch.add(self._few(x[:, some]), self._bias, out=y[:, some])
            if add is not None:
                part += add[:, some]
            if relu:
                part.relu_()
        return y

    def _few(self, x: Tensor) -> Tensor:
        tiles, products, outs, side = self._tiles, self._products, self._outs, self._down.shape[1]
        (_, pictures, ins), depth = x.shape, self._kernel.shape[-1]
        rows = tiles * products
        half = torch.mm(self._down, x.reshape(side, -1), out=self._room(0, rows, side * pictures * ins))
        whole = torch.matmul(self._along, half.view(rows, side, -1), out=self._room(1, rows, rows, pictures * ins))
        tiled = whole.view(tiles, products**2, tiles * pictures, ins)
        found = self._room(2, tiles, products**2, tiles * pictures, depth)
        for k in range(tiles):
            torch.bmm(tiled[k], self._kernel, out=found[k])
        back = torch.matmul(self._back, found.view(rows, rows, -1), out=self._room(3, rows, outs, pictures * depth))
        done = torch.mm(self._up, back.view(rows, -1), out=self._room(4, outs, outs * pictures * depth))
        return done.view(outs * outs, pictures, depth)

    def _room(self, use: int, *shape: int) -> Tensor:
        key = (use, *shape)
        if key not in self._scratch:
            self._scratch[key] = self._kernel.new_empty(shape)
        return self._scratch[key]
