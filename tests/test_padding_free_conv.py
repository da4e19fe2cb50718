"""Convolutions as products over live taps: torch's own results, in double precision, wherever they are used."""

import copy
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from skyfed.learning import padding_free_conv
from skyfed.learning.flat import FlatModel
from skyfed.learning.local import descend
from skyfed.learning.models import build_model
from skyfed.learning.padding_free_conv import TapConv2d, TapPlan, plan_taps, use_taps
from skyfed.learning.settings import ModelSettings
from skyfed.learning.shapes import conv_inputs, dense_multiplications, multiplications
from skyfed.tasks.task import cross_entropy

WIDE = torch.float64


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taps for every convolution that they can do, not only where it is worth it."""
    monkeypatch.setattr(padding_free_conv, "_CHANNELS", 1)
    monkeypatch.setattr(padding_free_conv, "_WORTH", 1.0)


pytestmark = pytest.mark.usefixtures("one_thread")


def tapped(module: nn.Module) -> list[str]:
    return [name for name, layer in module.named_modules() if isinstance(layer, TapConv2d)]


def near(found: Tensor, expected: Tensor, share: float = 1e-12) -> bool:
    return bool((found - expected).abs().max() <= share * expected.abs().max())


def plain_order(model: FlatModel, flat: Tensor) -> Tensor:
    return torch.cat([view.reshape(-1) for view in model.views(flat)])


def plain_weights(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def plain_gradient(module: nn.Module) -> Tensor:
    return torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])


def images(count: int, side: int, seed: int = 0, last: bool = False) -> Tensor:
    found = torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed), dtype=WIDE)
    return found.contiguous(memory_format=torch.channels_last) if last else found


def labels(count: int) -> Tensor:
    return torch.arange(count) % 4


# against nn.Conv2d


class Little(nn.Module):
    """A convolution on a small map, with norms and relus before and after."""

    def __init__(self, layer: nn.Conv2d, height: int, width: int) -> None:
        super().__init__()
        self.before = nn.Sequential(
            nn.Conv2d(3, layer.in_channels, 1), nn.BatchNorm2d(layer.in_channels), nn.ReLU(),
            nn.AdaptiveAvgPool2d((height, width)),
        )  # fmt: skip
        self.layer = layer
        self.after = nn.Sequential(nn.GroupNorm(1, layer.out_channels), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.layer(self.before(x)))


def compare(module: nn.Module, side: int, batch: int, last: bool) -> None:
    """Forward, the input's gradient and all weights' gradients, with taps and without."""
    plain = copy.deepcopy(module).to(WIDE)
    model = FlatModel(module, WIDE, inputs=(3, side, side), wide=last)
    assert "layer" in tapped(module)
    found = []
    for each in (plain, module):
        x = images(batch, side, last=last).requires_grad_()
        y = each.train()(x)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=WIDE)
        (y * weights).sum().backward()
        found.append((y.detach(), x.grad))
    assert near(found[1][0], found[0][0])
    assert near(found[1][1], found[0][1])
    assert near(module.layer.weight.grad, plain.layer.weight.grad)
    assert near(plain_order(model, model.gradient), plain_gradient(plain))


def variants(side: int, kernel: int) -> Iterator[tuple[int, int | str, int]]:
    """Strides, paddings and dilations for which the kernel fits."""
    for stride, padding, dilation in product((1, 2, 3), (0, 1, 2, "same"), (1, 2)):
        if padding == "same":
            if stride == 1:
                yield stride, padding, dilation
        elif side + 2 * int(padding) > dilation * (kernel - 1):
            yield stride, padding, dilation


@pytest.mark.parametrize("side", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.usefixtures("anywhere")
def test_taps_give_what_the_library_gives(side, kernel):
    for variant in variants(side, kernel):
        for bias, batch, last in ((False, 1, False), (False, 5, True), (True, 1, True), (True, 5, False)):
            compare(Little(nn.Conv2d(3, 5, kernel, *variant, bias=bias), side, side), 5, batch, last)


@pytest.mark.parametrize(
    ("height", "width", "arguments"),
    [
        (1, 4, ((3, 3), 1, 1)),
        (4, 1, ((3, 5), (2, 1), (1, 2))),
        (2, 3, ((5, 3), (1, 2), (4, 1), (2, 1))),
        (3, 2, ((3, 1), (3, 1), (2, 0))),
        (1, 3, ((1, 3), 1, "same")),
        (3, 4, ((3, 3), 1, "valid")),
        (1, 1, ((1, 1), 3, 1)),  # no tap meets a pixel
    ],
)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.usefixtures("anywhere")
def test_oblong_maps_and_kernels_too(height, width, arguments, last):
    compare(Little(nn.Conv2d(4, 3, *arguments), height, width), 6, 3, last)


@pytest.mark.usefixtures("anywhere")
def test_a_first_layer_whose_input_needs_no_gradient():
    module = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(20, 4))
    plain = copy.deepcopy(module).to(WIDE)
    model = FlatModel(module, WIDE, inputs=(3, 2, 2))
    assert tapped(module) == ["0"]
    for each in (plain, module):
        functional.cross_entropy(each(images(3, 2)), labels(3)).backward()
    assert near(plain_order(model, model.gradient), plain_gradient(plain))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.usefixtures("anywhere")
def test_the_memory_format_that_comes_in_goes_out(last):
    module = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1))
    FlatModel(module, WIDE, inputs=(3, 3, 3), wide=last)
    y = module(images(2, 3, last=last))
    assert y.is_contiguous(memory_format=torch.channels_last) == last
    assert y.is_contiguous() != last


@pytest.mark.usefixtures("anywhere")
def test_single_precision_is_as_good_as_the_library_s():
    module = Little(nn.Conv2d(16, 16, 3, 2, 1), 2, 2)
    exact, plain = copy.deepcopy(module).double(), copy.deepcopy(module)
    model = FlatModel(module, inputs=(3, 5, 5))
    for each, x in ((exact, images(6, 5)), (plain, images(6, 5).float()), (module, images(6, 5).float())):
        each.train()(x).square().sum().backward()
    truth = plain_gradient(exact)
    own = (plain_order(model, model.gradient) - truth).norm()
    assert model.gradient.dtype == torch.float32
    assert own <= 3 * (plain_gradient(plain) - truth).norm() + 1e-6 * truth.norm()


# plans


def by_definition(layer: nn.Conv2d, shape: tuple[int, int]) -> tuple[list[tuple[int, int, int]], tuple[int, int]]:
    """All (tap, pixel of the input, pixel of the output), by moving a kernel over a padded map of pixel numbers."""
    before, after = [], []
    for axis in (0, 1):
        reach = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
        both = {"same": reach, "valid": 0}.get(layer.padding) if isinstance(layer.padding, str) else None
        before.append(layer.padding[axis] if both is None else both // 2)
        after.append(layer.padding[axis] if both is None else both - both // 2)
    numbers = np.pad(np.arange(shape[0] * shape[1]).reshape(shape), list(zip(before, after, strict=True)),
                     constant_values=-1)  # fmt: skip
    found, rows = [], []
    for top in range(0, numbers.shape[0] - layer.dilation[0] * (layer.kernel_size[0] - 1), layer.stride[0]):
        row = range(0, numbers.shape[1] - layer.dilation[1] * (layer.kernel_size[1] - 1), layer.stride[1])
        rows.append(len(row))
        for left in row:
            window = numbers[top :: layer.dilation[0], left :: layer.dilation[1]]
            window = window[: layer.kernel_size[0], : layer.kernel_size[1]]
            out = sum(rows[:-1]) + left // layer.stride[1]
            found += [(tap, int(pixel), out) for tap, pixel in enumerate(window.reshape(-1)) if pixel >= 0]
    return sorted(found), (len(rows), rows[0])


def pairs(plan: TapPlan) -> list[tuple[int, int, int]]:
    return sorted((each.tap, *pair) for each in plan.products for pair in zip(each.ins, each.outs, strict=True))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kernel", [(1, 1), (2, 2), (3, 3), (5, 5), (4, 1), (3, 5)])
def test_a_plan_has_every_pair_of_pixels_exactly_once(kernel):
    planned = 0
    for shape in product((1, 2, 3, 4, 7), (1, 2, 3, 5)):
        for stride, padding, dilation in product(((1, 1), (2, 2), (3, 1)), (0, 1, 2, (1, 2), "same"), ((1, 1), (2, 1))):
            if padding == "same" and stride != (1, 1):
                continue
            layer = nn.Conv2d(2, 3, kernel, stride, padding, dilation)
            sizes = [0, 0] if padding == "same" else layer.padding
            reach = [apart * (k - 1) for apart, k in zip(dilation, kernel, strict=True)]
            if padding != "same" and any(n + 2 * p <= r for n, p, r in zip(shape, sizes, reach, strict=True)):
                continue
            plan = plan_taps(layer, shape)
            expected, out = by_definition(layer, shape)
            assert pairs(plan) == expected
            assert (plan.shape, plan.out) == (shape, out)
            assert multiplications(layer, shape) == len(expected) * 2 * 3
            assert dense_multiplications(layer, shape) == out[0] * out[1] * kernel[0] * kernel[1] * 2 * 3
            check_flags(plan)
            planned += 1
    assert planned > 100


def check_flags(plan: TapPlan) -> None:
    """What is written is written once and before anything is added; where something is only added there are zeros."""
    outs, ins, seen = set(), set(), set()
    for each in plan.products:
        assert each.opens == outs.isdisjoint(each.outs)
        assert each.begins == ins.isdisjoint(each.ins)
        assert each.starts == (each.tap not in seen)
        assert each.opens or not plan.fills or outs >= set(each.outs)
        assert each.begins or not plan.drains or ins >= set(each.ins)
        outs.update(each.outs)
        ins.update(each.ins)
        seen.add(each.tap)
    assert not plan.fills or len(outs) == plan.out[0] * plan.out[1]
    assert not plan.drains or len(ins) == plan.shape[0] * plan.shape[1]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(4, 6, 5, 2, 2, groups=2), (3,)),
        (nn.Conv2d(4, 4, 3, 2, 1, groups=4), (3, 4)),
        (nn.Conv3d(2, 3, (1, 3, 5), 1, (0, 1, 2), (1, 1, 2)), (2, 1, 5)),
        (nn.Conv2d(4, 8, 3, padding="same", dilation=3), (4, 2)),
    ],
)
def test_multiplications_are_what_ones_convolved_with_ones_add_up_to(layer, shape):
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.bias.zero_()
        assert layer(torch.ones(1, layer.in_channels, *shape)).sum() == multiplications(layer, shape)


def test_multiplications_by_hand():
    """3x3 on 1x1 with padding: one tap of nine; on 2x2: four of nine for each of four places."""
    layer = nn.Conv2d(64, 32, 3, padding=1)
    assert (multiplications(layer, (1, 1)), dense_multiplications(layer, (1, 1))) == (64 * 32, 9 * 64 * 32)
    assert (multiplications(layer, (2, 2)), dense_multiplications(layer, (2, 2))) == (16 * 64 * 32, 36 * 64 * 32)


# where taps are used


class Shared(nn.Module):
    """Two convolutions with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 64, 1))
        self.one, self.other = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.one(self.stem(x)))


class Repeated(nn.Module):
    """One convolution, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 64, 1))
        self.layer = nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(self.stem(x)))


class Own(nn.Conv2d):
    """A convolution of the user's own."""


def on_small_map(layer: nn.Module, size: int = 1) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(size), nn.Conv2d(3, 64, 1), layer)


def frozen(layer: nn.Conv2d) -> nn.Conv2d:
    layer.weight.requires_grad_(False)
    return layer


LEFT_ALONE = {
    "shared": Shared,
    "called twice": Repeated,
    "in groups": lambda: on_small_map(nn.Conv2d(64, 128, 3, padding=1, groups=2)),
    "circular": lambda: on_small_map(nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular")),
    "of a class of its own": lambda: on_small_map(Own(64, 64, 3, padding=1)),
    "frozen": lambda: on_small_map(frozen(nn.Conv2d(64, 64, 3, padding=1))),
    "few channels": lambda: on_small_map(nn.Conv2d(64, 63, 3, padding=1)),
    "a large map": lambda: on_small_map(nn.Conv2d(64, 64, 3, padding=1), 5),
    "all taps alive": lambda: on_small_map(nn.Conv2d(64, 64, 1)),
}


@pytest.mark.parametrize("build", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_layers_that_taps_do_not_suit_are_left_alone(build):
    module = build()
    plain = copy.deepcopy(module).to(WIDE)
    model = FlatModel(module, WIDE, inputs=(3, 8, 8))
    assert tapped(module) == []
    for each in (plain, module):
        each(images(2, 8)).square().sum().backward()
    found = torch.cat([view.reshape(-1) for view in model.views(model.gradient)])
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters() if p.requires_grad])
    assert near(found, expected)


def test_taps_are_used_for_large_layers_on_small_maps():
    module = build_model(ModelSettings(), 10, (3, 32, 32), 0)
    FlatModel(module, inputs=(3, 32, 32))
    assert tapped(module) == ["8.conv2", "9.conv1", "9.conv2", "10.conv1", "10.conv2", "11.conv1", "11.conv2"]
    other = build_model(ModelSettings(stem="cifar", width=4), 10, (3, 32, 32), 0)
    FlatModel(other, inputs=(3, 32, 32))
    assert tapped(other) == []
    FlatModel(module)  # nothing is known of the pictures
    assert tapped(module) == []


def test_taps_are_taken_back_before_they_are_planned_anew():
    module = on_small_map(nn.Conv2d(64, 64, 3, padding=1))
    seen = conv_inputs(module, (3, 8, 8))
    use_taps(module, seen)
    assert tapped(module) == ["2"]
    use_taps(module, seen)
    assert tapped(module) == ["2"]
    use_taps(module, {})
    assert tapped(module) == []
    assert type(module[2]) is nn.Conv2d


# other inputs


class Pooling(nn.Module):
    """Makes maps of 1x1 of pictures of 8x8, and larger ones of larger pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer = nn.Conv2d(3, 64, 1), nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(functional.avg_pool2d(self.stem(x), 8)).mean(dim=(2, 3))


def pooling() -> tuple[nn.Module, FlatModel, nn.Module]:
    module = Pooling()
    plain = copy.deepcopy(module).to(WIDE)
    model = FlatModel(module, WIDE, inputs=(3, 8, 8))
    assert tapped(module) == ["layer"]
    return module, model, plain


def backward(module: nn.Module, x: Tensor) -> Tensor:
    y = module(x)
    y.square().sum().backward()
    return y.detach()


def test_inputs_of_another_shape_go_the_library_s_way():
    module, model, plain = pooling()
    y, expected = backward(module, images(3, 16)), backward(plain, images(3, 16))
    assert near(y, expected)
    assert near(plain_order(model, model.gradient), plain_gradient(plain))
    with torch.inference_mode():
        for side in (24, 8, 32):
            assert near(module(images(1, side)), plain(images(1, side)))


def test_inputs_of_another_shape_after_planned_ones_have_their_own_gradient():
    module, model, plain = pooling()
    for side in (8, 16, 8, 16):
        model.clear_gradient()
        plain.zero_grad()
        backward(module, images(3, side, side))
        backward(plain, images(3, side, side))
        assert near(plain_order(model, model.gradient), plain_gradient(plain))


# whole models


def gradients(settings: ModelSettings, side: int, batch: int, wide: bool) -> tuple[list[str], Tensor, Tensor]:
    module = build_model(settings, 4, (3, side, side), 0)
    plain = copy.deepcopy(module).to(WIDE)
    model = FlatModel(module, WIDE, inputs=(3, side, side), wide=wide)
    for each in (plain, module):
        x = images(batch, side, last=wide)
        functional.cross_entropy(each.train()(x), labels(batch)).backward()
    for one, other in zip(module.buffers(), plain.buffers(), strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)
    return tapped(module), plain_order(model, model.gradient), plain_gradient(plain)


@pytest.mark.parametrize(
    ("settings", "batch", "wide", "count"),
    [
        (ModelSettings(), 4, True, 7),
        (ModelSettings(width=8), 6, True, 3),
        (ModelSettings(width=8, norm="group"), 5, False, 3),
        (ModelSettings(width=8, stem="cifar"), 3, True, 0),
    ],
    ids=["width 64", "width 8", "width 8, group norm", "width 8, cifar"],
)
def test_the_gradient_of_resnet18_is_the_same_with_taps(settings, batch, wide, count):
    found, ours, plain = gradients(settings, 32, batch, wide)
    assert len(found) == count
    assert near(ours, plain, 1e-9)  # norms over few values amplify what is rounded


def reference_descent(module: nn.Module, batches: list[tuple[Tensor, Tensor]], rate: float) -> float:
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    module.train()
    losses = []
    for x, y in batches:
        optimiser.zero_grad()
        loss = functional.cross_entropy(module(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses))


@pytest.mark.parametrize("wide", [False, True])
def test_several_steps_are_those_of_plain_sgd(wide):
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    plain = copy.deepcopy(module).to(WIDE)
    model = FlatModel(module, WIDE, inputs=(3, 32, 32), wide=wide)
    start = model.weights.clone()
    batches = [(images(8, 32, k, last=wide), labels(8)) for k in range(6)]
    loss = descend(model, iter(batches), 0.01, cross_entropy)
    assert loss == pytest.approx(reference_descent(plain, batches, 0.01), rel=1e-8)
    assert len(tapped(module)) == 3
    moved, expected = plain_weights(module), plain_weights(plain)
    assert near(moved, expected, 1e-9)
    assert (model.weights - start).abs().max() > 1e-3


def test_masked_entries_and_dead_ones_stay_as_they_are_in_a_step():
    model = FlatModel(build_model(ModelSettings(width=8), 4, (3, 32, 32), 0), WIDE, inputs=(3, 32, 32))
    start, buffers, layout = model.weights.clone(), model.buffers.clone(), model.layout
    mask = torch.rand(layout.live_size, generator=torch.Generator().manual_seed(0), dtype=WIDE).round()
    descend(model, iter([(images(8, 32, k), labels(8)) for k in range(3)]), 0.1, cross_entropy, mask)
    moved = (model.weights != start).numpy()
    assert not layout.of_live(moved)[mask == 0].any()
    assert layout.of_live(moved)[mask == 1].mean() > 0.9
    assert moved.sum() == layout.of_live(moved).sum()  # dead ones have not
    model.load(layout.of_live(start.numpy()), buffers.numpy())
    assert torch.equal(model.weights, start)
    assert torch.equal(model.buffers, buffers)
    model.mask(mask)
    assert np.array_equal(layout.of_live(model.weights.numpy()), layout.of_live(start.numpy()) * mask.numpy())


def test_what_is_loaded_twice_is_there_twice():
    model = FlatModel(build_model(ModelSettings(width=8), 4, (3, 32, 32), 0), WIDE, inputs=(3, 32, 32))
    start, buffers = model.weights.clone(), model.buffers.clone()
    dead = torch.ones(model.layout.size, dtype=torch.bool)
    for run in model.layout.runs:
        dead[run] = False
    assert dead.any()
    live = model.layout.of_live(start.numpy())
    for _ in range(3):
        model.load(live, buffers.numpy())
        assert torch.equal(model.weights, start)
        assert torch.equal(model.buffers, buffers)
        descend(model, iter([(images(8, 32, 1), labels(8))]), 0.1, cross_entropy)
        assert not torch.equal(model.weights, start)
    live += 1  # the same array with other entries
    model.load(live, buffers.numpy())
    assert torch.equal(model.weights, torch.where(dead, start, start + 1))
    model.load(2 * live, buffers.numpy())
    assert torch.equal(model.weights, torch.where(dead, start, 2 * (start + 1)))
    assert np.array_equal(model.live(), 2 * live)


def test_two_runs_give_the_same_bits():
    found = []
    for _ in range(2):
        model = FlatModel(build_model(ModelSettings(width=8), 4, (3, 32, 32), 0), inputs=(3, 32, 32), wide=True)
        batches = [(images(8, 32, k, last=True).float(), labels(8)) for k in range(4)]
        descend(model, iter(batches), 0.05, cross_entropy)
        found.append(model.weights.numpy().tobytes() + model.buffers.numpy().tobytes())
    assert found[0] == found[1]


# one step after the other


def test_gradients_do_not_leak_from_one_step_to_the_next():
    """Kernels of taps are written, all others are cleared and added to."""
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    model = FlatModel(module, WIDE, inputs=(3, 32, 32))
    found = {}
    for name, first in (("alone", None), ("after another", images(8, 32, 1))):
        model.gradient.zero_()
        for x in [x for x in (first, images(8, 32, 2)) if x is not None]:
            model.clear_gradient()
            backward(module, x)
        found[name] = model.gradient.clone()
    assert torch.equal(found["alone"], found["after another"])
    model.gradient[:] = float("nan")  # of whatever was there before nothing is left at live entries
    model.clear_gradient()
    backward(module, images(8, 32, 2))
    live = torch.cat([model.gradient[run] for run in model.layout.live])
    assert torch.equal(live, torch.cat([found["alone"][run] for run in model.layout.live]))


def test_dead_taps_have_a_gradient_of_zero():
    model = FlatModel(build_model(ModelSettings(width=8), 4, (3, 32, 32), 0), WIDE, inputs=(3, 32, 32))
    for k in range(2):
        model.clear_gradient()
        backward(model.module, images(4, 32, k))
    dead = np.ones(model.layout.size, bool)
    for run in model.layout.live:
        dead[run] = False
    assert not model.gradient[torch.from_numpy(dead)].any()


class Dropping(nn.Module):
    """Leaves a branch out in half of all training steps (stochastic depth)."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 64, 1))
        self.branch, self.head = nn.Conv2d(64, 64, 3, padding=1), nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if not self.training or torch.rand(()) < 0.5:
            x = x + self.branch(x)
        return self.head(x.flatten(1))


def test_a_branch_that_is_left_out_of_a_step_stays_as_it_is():
    module = Dropping(4, 8)
    plain = copy.deepcopy(module).to(WIDE)
    model = FlatModel(module, WIDE, inputs=(3, 8, 8), probe=True)
    batches = [(images(4, 8, k), labels(4)) for k in range(8)]
    torch.manual_seed(5)
    descend(model, iter(batches), 0.1, cross_entropy)
    torch.manual_seed(5)
    reference_descent(plain, batches, 0.1)
    assert near(plain_weights(module), plain_weights(plain), 1e-9)


# copies


def test_deep_copies_compute_the_same_and_share_nothing():
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    model = FlatModel(module, WIDE, inputs=(3, 32, 32))
    twin = copy.deepcopy(module)
    assert tapped(twin) == tapped(module)
    y = backward(module, images(4, 32))
    assert near(backward(twin, images(4, 32)), y, 1e-9)
    assert near(plain_gradient(twin), plain_order(model, model.gradient), 1e-9)
    before = model.weights.clone()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert torch.equal(model.weights, before)


def test_a_flat_model_of_a_deep_copy_is_like_the_first():
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    model = FlatModel(module, inputs=(3, 32, 32))
    twin = copy.deepcopy(module)
    found = FlatModel(twin, inputs=(3, 32, 32))
    assert torch.equal(plain_weights(twin), plain_weights(module))
    assert found.layout.live == model.layout.live
    assert tapped(twin) == tapped(module)


def test_a_deep_copy_can_be_trained_by_torch_s_own_optimiser():
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    plain = copy.deepcopy(module).to(WIDE)
    FlatModel(module, WIDE, inputs=(3, 32, 32))
    batches = [(images(8, 32, k), labels(8)) for k in range(3)]
    twin = copy.deepcopy(module)
    reference_descent(twin, batches, 0.01)
    reference_descent(plain, batches, 0.01)
    assert near(plain_weights(twin), plain_weights(plain), 1e-9)


def test_a_deep_copy_adds_up_the_gradients_of_several_batches():
    module, _, plain = pooling()
    twin = copy.deepcopy(module)
    for k in range(2):
        backward(twin, images(2, 8, k))
        backward(plain, images(2, 8, k))
    assert near(plain_gradient(twin), plain_gradient(plain))


# evaluation


@pytest.mark.parametrize("wide", [False, True])
def test_evaluation_gives_what_the_library_gives(wide):
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    plain = copy.deepcopy(module).to(WIDE).eval()
    model = FlatModel(module, WIDE, inputs=(3, 32, 32), wide=wide)
    assert tapped(module)
    module.eval()
    for count in (1, 7):
        with torch.inference_mode():
            assert near(module(images(count, 32, last=wide)), plain(images(count, 32, last=wide)), 1e-10)
    before = model.weights.clone()
    again = [(images(4, 32, last=wide), labels(4))]
    assert np.isfinite(descend(model, iter(again), 0.01, cross_entropy))  # training goes on
    assert not torch.equal(model.weights, before)


def test_evaluation_leaves_the_gradient_alone():
    module, model, _ = pooling()
    backward(module, images(2, 8))
    before = model.gradient.clone()
    module.eval()
    with torch.no_grad():
        one = module(images(2, 8, 1))
    with torch.inference_mode():
        other = module(images(2, 8, 1))
    assert torch.equal(one, other)
    assert torch.equal(model.gradient, before)


# flat vectors


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("side", [None, 32])
def test_flattening_changes_no_value(wide, side):
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    values, shapes = plain_weights(module), [parameter.shape for parameter in module.parameters()]
    model = FlatModel(module, inputs=side and (3, side, side), wide=wide)
    after = module.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert [parameter.shape for parameter in module.parameters()] == shapes
    assert torch.equal(plain_order(model, model.weights), values)
    assert torch.equal(model.weights, values[torch.from_numpy(model.layout.plain_places())])
    assert torch.equal(torch.cat([b.reshape(-1) for b in module.buffers() if b.is_floating_point()]), model.buffers)
    assert not model.gradient.any()


@pytest.mark.parametrize("wide", [False, True])
def test_what_is_loaded_is_what_was_there(wide):
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    model = FlatModel(module, WIDE, inputs=(3, 32, 32), wide=wide)
    weights, buffers = model.weights.clone(), model.buffers.clone()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    y = module.eval()(images(2, 32)).detach()
    descend(model, iter([(images(4, 32), labels(4))] * 2), 0.1, cross_entropy)
    assert not torch.equal(module.eval()(images(2, 32)), y)
    assert int(module[1].num_batches_tracked) == 2
    model.load(model.layout.of_live(weights.numpy()), buffers.numpy())
    assert torch.equal(module.eval()(images(2, 32)), y)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert torch.equal(model.weights, weights)
    assert np.array_equal(model.live(), model.layout.of_live(weights.numpy()))
    assert np.array_equal(model.moved(), buffers.numpy())


def test_a_state_dict_goes_from_a_plain_model_to_a_flat_one_and_back():
    plain = build_model(ModelSettings(width=8), 4, (3, 32, 32), 1).to(WIDE)
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    model = FlatModel(module, WIDE, inputs=(3, 32, 32), wide=True)
    module.load_state_dict(plain.state_dict())
    assert torch.equal(plain_order(model, model.weights), plain_weights(plain))
    descend(model, iter([(images(4, 32, last=True), labels(4))]), 0.1, cross_entropy)
    plain.load_state_dict(module.state_dict())
    assert torch.equal(plain_order(model, model.weights), plain_weights(plain))


def test_a_model_can_be_flattened_again():
    module = build_model(ModelSettings(width=8), 4, (3, 32, 32), 0)
    values = plain_weights(module)
    for side, wide in ((32, True), (None, False), (32, False)):
        model = FlatModel(module, inputs=side and (3, side, side), wide=wide)
        assert torch.equal(plain_order(model, model.weights), values)
        assert bool(tapped(module)) == (side is not None)
        with torch.no_grad():
            model.weights.add_(0.5)
            values = values + 0.5
        assert torch.equal(plain_weights(module), values)
