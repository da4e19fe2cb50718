"""Weights that can never have a gradient: found from shapes, as autograd finds them; they neither move nor travel."""

import copy
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from learning_cases import onboard_of
from run_cases import fleet_plan, pictures, tiny_config
from skyfed.algorithms import KNOWN as ALGORITHMS
from skyfed.algorithms.twoceoafl import TwoCEOAFL
from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.jobs import Job
from skyfed.learning.flat import FlatModel, Layout, _dead_taps
from skyfed.learning.local import Trained, seeded
from skyfed.learning.models import build_model
from skyfed.learning.settings import ModelSettings
from skyfed.learning.shapes import conv_inputs, live_taps
from skyfed.onboard import Onboard
from skyfed.rng import stream
from skyfed.runs.start import world_of
from skyfed.simulate import central_round, federated_round
from skyfed.station import Station
from skyfed.types import Arrays, Model, Raw
from skyfed.wire import Expected, decode

KNOWN = pictures(train=20, side=32).task()
PLAN = fleet_plan()


def layout_of(module: nn.Module, side: int, probe: bool = False) -> Layout:
    return FlatModel(copy.deepcopy(module), torch.float64, inputs=(3, side, side), probe=probe).layout


def flags(layout: Layout) -> np.ndarray:
    """Which entries of the flat vector are live."""
    found = np.zeros(layout.size, bool)
    for run in layout.live or (slice(None),):
        found[run] = True
    return found


def live_weights(module: nn.Module, side: int, probe: bool = False) -> np.ndarray:
    """Which entries of the parameters, one after the other in their own order, are live."""
    layout = layout_of(module, side, probe)
    found = np.empty(layout.size, bool)
    found[layout.plain_places()] = flags(layout)
    return found


def with_gradient(module: nn.Module, side: int, batches: int = 3) -> np.ndarray:
    """Which entries of the flat weights have a gradient on some random batch with some random weights, in float64."""
    coins = torch.Generator().manual_seed(0)
    module = module.double().train()
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    found = np.zeros(sum(parameter.numel() for parameter in parameters), bool)
    for _ in range(batches):
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
            with torch.no_grad():
                parameter.normal_(0, 0.3, generator=coins)
        images = torch.randn(4, 3, side, side, generator=coins, dtype=torch.float64)
        module(images).square().sum().backward()
        found |= torch.cat([parameter.grad.reshape(-1) for parameter in parameters]).numpy() != 0
    return found


class Reshaped(nn.Module):
    """Hands pictures to a convolution of one or three dimensions."""

    def __init__(self, layer: nn.Module, *shape: int) -> None:
        super().__init__()
        self.layer, self.shape = layer, shape

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.reshape(len(x), *self.shape))


class Twice(nn.Module):
    """Calls one convolution on pictures of two sizes."""

    def __init__(self, sizes: tuple[int, int]) -> None:
        super().__init__()
        self.layer, self.sizes = nn.Conv2d(3, 3, 5, padding=2), sizes

    def forward(self, x: Tensor) -> Tensor:
        return sum(self.layer(functional.adaptive_avg_pool2d(x, size)).sum(dim=(2, 3)) for size in self.sizes)


class Shared(nn.Module):
    """Two convolutions with one weight, on large and on small pictures."""

    def __init__(self, large_first: bool) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.other.weight = self.one.weight
        self.large_first = large_first

    def forward(self, x: Tensor) -> Tensor:
        large, small = (self.one, self.other) if self.large_first else (self.other, self.one)
        return large(x).sum(dim=(2, 3)) + small(functional.adaptive_avg_pool2d(x, 1)).sum(dim=(2, 3))


class Padding(nn.Conv2d):
    """A convolution that pads by itself, whatever its own padding says."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(functional.pad(x, (1, 1, 1, 1)), self.weight, self.bias)


class Training(nn.Module):
    """Has a second branch in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        small = self.layer(functional.adaptive_avg_pool2d(x, 1)).sum(dim=(2, 3))
        return small + self.layer(x).sum(dim=(2, 3)) if self.training else small


class Borrowed(nn.Module):
    """Uses the weight of a convolution outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        small = self.layer(functional.adaptive_avg_pool2d(x, 1)).sum(dim=(2, 3))
        return small + functional.conv2d(x, self.layer.weight).sum(dim=(2, 3))


class Picky(nn.Module):
    """Refuses pictures of zeros."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(4, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        if not x.any():
            raise RuntimeError("nothing to see")
        return self.layers(x)


class Counting(nn.Module):
    """Counts its calls in a buffer and in an attribute, and keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Conv2d(3, 4, 5, padding=2), nn.BatchNorm2d(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(x)
        return self.layers(x)


def small(size: int, layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(size), layer)


# by hand


def test_resnet18_with_the_imagenet_stem_has_6946816_dead_weights_on_32x32_pictures():
    """Layer 4 works on 1x1 maps: 8 of 9 taps of three 512x512 kernels are dead, 5 of 9 of the 256x512 one."""
    live = live_weights(build_model(ModelSettings(), 10, (3, 32, 32), 0), 32)
    assert len(live) == 11_181_642
    assert (~live).sum() == 6_946_816 == 8 * 3 * 512 * 512 + 5 * 256 * 512


def test_resnet18_with_the_cifar_stem_has_none():
    module = build_model(ModelSettings(stem="cifar"), 10, (3, 32, 32), 0)
    assert layout_of(module, 32).live is None
    assert live_weights(module, 32).all()


def test_on_larger_pictures_the_imagenet_stem_has_none_either():
    module = build_model(ModelSettings(width=4), 4, (3, 32, 32), 0)
    assert layout_of(module, 64).live is None
    assert layout_of(module, 33).live is None
    assert layout_of(module, 32).live_size == 44_904 - 8 * 3 * 32 * 32 - 5 * 16 * 32


@pytest.mark.parametrize(
    ("size", "layer", "alive"),
    [
        (1, nn.Conv2d(3, 2, 3, padding=1), ["...", ".x.", "..."]),
        (2, nn.Conv2d(3, 2, 3, 2, 1), ["...", ".xx", ".xx"]),
        (2, nn.Conv2d(3, 2, 5, padding=2), [".....", ".xxx.", ".xxx.", ".xxx.", "....."]),
        (2, nn.Conv2d(3, 2, (3, 5), (1, 2), (1, 2)), ["..xx.", "..xx.", "..xx."]),
        (2, nn.Conv2d(3, 2, 3, padding=3, dilation=3), ["...", ".x.", "..."]),
        (4, nn.Conv2d(3, 2, 3, padding=3, dilation=3), ["xxx", "xxx", "xxx"]),
        (3, nn.Conv2d(3, 2, 3, 4, 1), ["...", ".xx", ".xx"]),
        (1, nn.Conv2d(3, 2, 3, padding="same"), ["...", ".x.", "..."]),
        (3, nn.Conv2d(3, 2, 3, padding="valid"), ["xxx", "xxx", "xxx"]),
        (1, nn.Conv2d(3, 2, 3, padding=(0, 1)), None),
    ],
)
def test_taps_by_hand(size, layer, alive):
    if alive is None:  # no place for the kernel: torch refuses, and nothing is said
        assert layout_of(small(size, layer), 8).live is None
        return
    expected = np.array([[letter == "x" for letter in row] for row in alive])
    live = live_weights(small(size, layer), 8)
    kernels, bias = live[: layer.weight.numel()].reshape(layer.weight.shape), live[layer.weight.numel() :]
    assert (kernels == expected).all()
    assert bias.all()
    assert np.array_equal(live_taps(layer, [(size, size)]), expected)


def test_shapes_are_those_of_every_call():
    module = nn.Sequential(Twice((1, 2)), nn.Unflatten(1, (3, 1, 1)), nn.Conv2d(3, 4, 1))
    assert conv_inputs(module, (3, 8, 8)) == {"0.layer": [(1, 1), (2, 2)], "2": [(1, 1)]}
    assert conv_inputs(Reshaped(nn.Conv1d(48, 4, 9, 3, 4), 48, 4), (3, 8, 8)) == {"layer": [(4,)]}
    assert conv_inputs(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), (3, 8, 8)) == {}


def test_taps_live_for_some_shape_are_live():
    layer = nn.Conv2d(3, 2, 5, padding=2)
    assert live_taps(layer, [(1, 1)]).sum() == 1
    assert live_taps(layer, [(1, 1), (2, 2)]).sum() == 9
    assert live_taps(layer, [(1, 3), (3, 1)]).sum() == 9  # a cross
    assert live_taps(layer, []).all()  # what is not called is not known


# as autograd finds them


MODULES: dict[str, tuple[Callable[[], nn.Module], bool]] = {  # and whether some of its weights are dead
    "3x3 on 1x1": (lambda: small(1, nn.Conv2d(3, 4, 3, padding=1)), True),
    "7x7 in steps of 2": (lambda: small(3, nn.Conv2d(3, 4, 7, 2, 3, bias=False)), True),
    "3x5 with everything": (lambda: small(2, nn.Conv2d(3, 4, (3, 5), (1, 2), (2, 2), (2, 1))), True),
    "same": (lambda: small(2, nn.Conv2d(3, 4, 5, padding="same")), True),
    "same, dilated, on 3x3": (lambda: small(3, nn.Conv2d(3, 4, 3, padding="same", dilation=2)), False),
    "same, dilated, on 2x2": (lambda: small(2, nn.Conv2d(3, 4, 3, padding="same", dilation=2)), True),
    "valid": (lambda: small(5, nn.Conv2d(3, 4, 3, padding="valid", dilation=2)), False),
    "a group a channel": (lambda: small(2, nn.Conv2d(3, 6, 5, padding=2, groups=3)), True),
    "circular": (lambda: small(2, nn.Conv2d(3, 4, 5, padding=2, padding_mode="circular")), False),
    "reflect": (lambda: small(3, nn.Conv2d(3, 4, 5, padding=2, padding_mode="reflect")), False),
    "replicate": (lambda: small(1, nn.Conv2d(3, 4, 5, padding=2, padding_mode="replicate")), False),
    "one dimension": (lambda: Reshaped(nn.Conv1d(48, 4, 9, 3, 4), 48, 4), True),
    "one long dimension": (lambda: Reshaped(nn.Conv1d(3, 4, 9, padding=4), 3, 64), False),
    "three dimensions": (lambda: Reshaped(nn.Conv3d(3, 4, 5, (1, 2, 1), 2), 3, 2, 4, 8), True),
    "three dimensions, same": (lambda: Reshaped(nn.Conv3d(3, 4, (1, 3, 5), padding="same"), 3, 1, 1, 64), True),
    "five in a row": (lambda: nn.Sequential(*(nn.Conv2d(3, 3, 3, 2, 1) for _ in range(5))), True),
    "a linear layer": (lambda: nn.Sequential(nn.Conv2d(3, 3, 3, 2, 1), nn.Flatten(), nn.Linear(48, 2)), False),
    "weight norm": (lambda: small(2, nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 5, padding=2))), False),
    "on 1x1, then 2x2": (lambda: Twice((1, 2)), True),
    "on 2x2, then 1x1": (lambda: Twice((2, 1)), True),
    "on 1x1, then 4x4": (lambda: Twice((1, 4)), False),
    "shared, small last": (lambda: Shared(large_first=True), False),
    "shared, large last": (lambda: Shared(large_first=False), False),
    "no tap at all": (lambda: small(1, nn.Conv2d(3, 4, 1, 3, 1)), True),
    "the small CNN": (lambda: build_model(ModelSettings(name="cnn", width=4, norm="group"), 4, (3, 8, 8), 0), False),
}


@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize(("build", "some_dead"), list(MODULES.values()), ids=list(MODULES))
def test_live_weights_are_those_with_a_gradient(build, some_dead, probe):
    module = build()
    live = live_weights(module, 8, probe)
    assert np.array_equal(live, with_gradient(module, 8))
    assert some_dead == (not live.all())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kernel", [2, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_live_weights_are_those_with_a_gradient_for_even_kernels_too(kernel, size):
    module = small(size, nn.Conv2d(3, 2, kernel, padding="same"))
    assert np.array_equal(live_weights(module, 8), with_gradient(module, 8))


@settings(max_examples=120, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_live_weights_of_any_convolution_are_those_with_a_gradient(data, dimensions):
    several = st.tuples(*[st.integers(1, 4)] * dimensions)
    shape, kernel, stride, dilation = (data.draw(several) for _ in range(4))
    padding = data.draw(st.tuples(*[st.integers(0, 4)] * dimensions))
    axes = zip(shape, kernel, dilation, padding, strict=True)
    assume(all(n + 2 * around > apart * (k - 1) for n, k, apart, around in axes))
    layer = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dimensions](
        2, 2, kernel, stride, padding, dilation, groups=data.draw(st.sampled_from([1, 2]))
    )
    module = Sized(layer, shape)
    assert np.array_equal(live_weights(module, 8), with_gradient(module, 8, 2))


class Sized(nn.Module):
    """Cuts pictures to a shape of two channels."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.shape = layer, shape

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.reshape(len(x), -1)[:, : 2 * int(np.prod(self.shape))].reshape(len(x), 2, *self.shape))


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_live_weights_of_a_small_resnet18_are_those_with_a_gradient(norm):
    """Over many batches, so that no relu is shut in all of them."""
    module = build_model(ModelSettings(width=4, norm=norm), 4, (3, 32, 32), 0)
    live = live_weights(module, 32)
    assert np.array_equal(live_weights(module, 32, probe=True), live)
    assert np.array_equal(live, with_gradient(module, 32, 30))


def test_weights_that_are_not_trained_are_not_counted():
    module = small(1, nn.Conv2d(3, 4, 3, padding=1))
    module[1].weight.requires_grad_(False)
    assert live_weights(module, 8).tolist() == [True] * 4


# modules that say less than they do


@pytest.mark.parametrize("build", [Training, Borrowed], ids=["a branch in training alone", "a weight used elsewhere"])
def test_a_module_of_the_user_s_own_is_tried_before_anything_is_left_out(build):
    module = build()
    assert layout_of(module, 8, probe=False).live is not None  # shapes alone say too little
    assert layout_of(module, 8, probe=True).live is None
    assert with_gradient(module, 8).all()


def test_a_convolution_with_a_forward_of_its_own_counts_as_live():
    """Its taps may meet what no padding of the base class explains."""
    for probe in (False, True):
        assert layout_of(small(1, Padding(3, 4, 3)), 8, probe).live is None
        assert layout_of(small(1, Padding(3, 4, 3, padding=1)), 8, probe).live is None


class Moody(nn.Module):
    """Goes wrong in training, on noise alone."""

    def __init__(self, mood: str) -> None:
        super().__init__()
        self.layers, self.mood = small(1, nn.Conv2d(3, 4, 3, padding=1)), mood

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if not self.training or not x.any():
            return self.layers(x)
        if self.mood == "raises":
            raise RuntimeError("too noisy")
        return (self.layers(x), x) if self.mood == "gives two" else self.layers(x).detach()


@pytest.mark.parametrize("mood", ["raises", "gives two", "detaches"])
def test_nothing_is_left_out_of_a_module_that_cannot_be_tried(mood):
    assert layout_of(Moody(mood), 8).live is not None
    assert layout_of(Moody(mood), 8, probe=True).live is None


def chain(channels: int, bias: bool) -> nn.Module:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(2), nn.Conv2d(3, channels, 3, 1, 1, bias=bias), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, 2, 1, bias=bias), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, 1, 1, bias=bias), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Flatten(), nn.Linear(channels, 4),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "bias"),
    [
        (8, False),
        (8, True),
        (64, False),
        (64, True),
    ],
)  # fmt: skip
def test_a_plain_chain_of_the_user_s_own_keeps_what_was_found(channels, bias):
    """In float32, as vehicles train: what is left of a gradient that should be 0 differs with and without taps."""
    module = chain(channels, bias)
    probed, bare = (FlatModel(copy.deepcopy(module), inputs=(3, 8, 8), probe=probe).layout for probe in (True, False))
    assert bare.live is not None
    assert probed.live == bare.live


@pytest.mark.parametrize("probe", [False, True])
def test_nothing_is_said_of_a_module_that_fails_on_zeros(probe):
    module = Picky(4, 8)
    assert conv_inputs(module, (3, 8, 8)) == {}
    assert layout_of(module, 8, probe).live is None
    assert not module.layers[1]._forward_hooks
    assert module.training


@pytest.mark.parametrize("probe", [False, True])
def test_a_module_is_left_as_it_was(probe):
    module = Counting()
    module.layers[2].eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    coins = torch.get_rng_state()
    assert conv_inputs(module, (3, 8, 8)) == {"layers.1": [(2, 2)]}
    assert all(parameter.grad is None for parameter in module.parameters())
    model = FlatModel(module, inputs=(3, 8, 8), probe=probe)
    assert model.layout.live_size < model.layout.size
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert module.calls == 0
    assert module.seen == []
    assert module.training
    assert not module.layers[2].training
    assert not any(parameter.grad.any() for parameter in module.parameters())
    assert not any(layer._forward_hooks for layer in module.modules())
    assert torch.equal(torch.get_rng_state(), coins)


def test_weights_that_are_views_of_one_vector_stay_so():
    bare = small(1, nn.Conv2d(3, 4, 3, padding=1))
    alone = live_weights(bare, 8)
    model = FlatModel(bare)
    before = model.weights.clone()
    assert np.array_equal(live_weights(model.module, 8), alone)
    assert torch.equal(model.weights, before)
    assert bare[1].weight.data_ptr() == model.weights.data_ptr()
    assert bare[1].weight.grad.data_ptr() == model.gradient.data_ptr()


# the layout


def test_the_layout_of_live_entries_by_hand():
    names, shapes, starts, orders = ("a", "b", "c"), ((4,), (2,), (3,)), np.array([0, 4, 6, 9]), ((0,), (0,), (0,))
    layout = Layout(names, shapes, starts, orders, (True, True, False), 0)
    assert (layout.size, layout.live_size) == (9, 9)
    assert layout.live_starts.tolist() == [0, 4, 6, 9]
    runs = (slice(1, 2), slice(3, 4), slice(6, 9))
    part = Layout(names, shapes, starts, orders, layout.matrices, 0, runs)
    assert (part.size, part.live_size) == (9, 5)
    assert part.live_starts.tolist() == [0, 2, 2, 5]
    assert part.of_live(np.arange(9) * 10).tolist() == [10, 30, 60, 70, 80]
    assert part.kernels.tolist() == [True] * 6 + [False] * 3
    assert part.live_kernels.tolist() == [True] * 2 + [False] * 3
    assert layout.of_live(part.kernels) is part.kernels
    assert part.plain_places().tolist() == list(range(9))


def test_kernels_with_dead_taps_lie_tap_by_tap():
    """A 2x1x1x3 kernel on maps of one column: the middle tap alone is live, its two entries lie side by side."""
    module = nn.Sequential(nn.Conv2d(3, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(1, 2, (1, 3), padding=(0, 1)))
    layout = layout_of(module, 8)
    assert layout.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert layout.orders == ((0, 1, 2, 3), (0,), (2, 3, 0, 1), (0,))
    assert layout.plain_places().tolist() == [0, 1, 2, 3, 4, 7, 5, 8, 6, 9, 10, 11]
    assert layout.live == (slice(0, 4), slice(6, 8), slice(10, 12))
    assert layout.live_starts.tolist() == [0, 3, 4, 6, 8]


@pytest.mark.parametrize("wide", [False, True])
def test_flat_places_and_plain_places_hold_the_same_weights(wide):
    module = build_model(ModelSettings(width=4), 4, (3, 32, 32), 0)
    plain = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy().copy()
    model = FlatModel(module, inputs=(3, 32, 32), wide=wide)
    places = model.layout.plain_places()
    assert np.array_equal(np.sort(places), np.arange(model.layout.size))
    assert np.array_equal(model.weights.numpy(), plain[places])
    assert np.array_equal(live_weights(module, 32)[places], flags(model.layout))
    assert all(one.stop < other.start for one, other in pairwise(model.layout.live))


# whole rounds


def resnet(*overrides: str) -> Config:
    return tiny_config("model.name=resnet18", "model.width=4", "train.kappa=1", *overrides)


class Round:
    """Round 0 of one algorithm: the state before and after it, and what was sent."""

    def __init__(self, config: Config, algorithm: str) -> None:
        config = config.model_copy(update={"algorithms": [algorithm]})
        self.onboard, self.world = Onboard(config, KNOWN), world_of(config, KNOWN, PLAN)
        self.engine, self.layout = self.onboard.engine, self.onboard.engine.layout
        self.algorithm = self.onboard.algorithms[algorithm]
        self.start = self.algorithm.start(self.engine.initial())
        station = Station(algorithm, self.onboard, self.world, self.onboard)
        self.updates = []
        if self.algorithm.central:
            self.after: Arrays = central_round(station, 0, self.start)[0]
            return
        self.after, report = federated_round(station, 0, self.start)
        assert not report.dropped
        reference = self.onboard.reference_of(algorithm, self.start)
        self.updates = [decode(upload.data, Expected(0, upload.vehicle, reference)) for upload in report.uploads]

    def trained(self, vehicle: int) -> tuple[Trained, float]:
        """Train a vehicle once more; returns what it trained, and its pruning ratio."""
        data = {"samples": self.world.observe(vehicle, 0)}
        words = {"share": 1.0, "flown": 0.0, "ground": 0.0, "altitude": 0.0}
        (label,) = self.onboard.algorithms
        kit = self.onboard.kit(Job("local", self.start, label, 0, vehicle, data, {}, words))
        assert isinstance(self.algorithm, TwoCEOAFL)
        with seeded(self.onboard.config.seed, 0, vehicle):
            delta, _ = self.algorithm.choice(kit, self.start)
            ticket = kit.winning_ticket(self.start, delta) if self.algorithm.prunes(delta) else None
            return kit.descend(self.start, ticket, delta=delta), delta


CASES: list[tuple[str, tuple[str, ...]]] = [
    ("sgd", ()),
    ("afl", ()),
    ("afl-prune", ()),
    ("afl-prune", ("prune.scope=all", "prune.delta=0.7")),
    ("afl-quant", ()),
    ("afl-quant", ("quantise.bucket=tensor",)),
    ("afl-quant", ("quantise.bucket=0",)),
    ("afl-quant", ("quantise.scheme=dither",)),
    ("afl-quant", ("quantise.scheme=eden", "quantise.s=1")),
    ("2ceoafl", ("quantise.scheme=eden", "quantise.s=1", "quantise.variance=1", "quantise.raw_probability=0.0")),
    ("2ceoafl", ()),
]


@pytest.mark.parametrize(("algorithm", "overrides"), CASES, ids=[" ".join([a, *o]) for a, o in CASES])
def test_dead_weights_neither_move_nor_travel(algorithm, overrides):
    played = Round(resnet(*overrides), algorithm)
    layout, engine = played.layout, played.engine
    before, after = (engine.whole(state["weights"]) for state in (played.start, played.after))
    dead = ~flags(layout)
    assert dead.sum() == 8 * 3 * 32 * 32 + 5 * 16 * 32
    assert len(played.after["weights"]) == layout.live_size
    assert after[dead].tobytes() == before[dead].tobytes()
    assert (after != before)[~dead].mean() > 0.01
    assert len(played.updates) == (0 if ALGORITHMS[algorithm].central else 3)
    for update in played.updates:
        assert update.size == layout.live_size == layout.size - dead.sum()
        assert update.mask is None or update.mask.shape == (update.size,)
        if isinstance(update.body, Raw):
            assert len(update.body.values) == update.kept


def test_the_saved_model_has_the_dead_weights_as_they_were_built():
    engine = Round(resnet(), "afl").engine
    config = resnet()
    module = build_model(config.model, KNOWN.outputs, KNOWN.shape, config.seed)
    plain = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy()
    assert np.array_equal(engine.whole(engine.initial().weights), plain[engine.layout.plain_places()])


def test_what_travels_is_all_there_is_of_the_gradient():
    played = Round(resnet("train.kappa=3"), "afl")
    for update in played.updates:
        local, _ = played.trained(update.vehicle)
        assert np.array_equal(update.body.values, local.gradient)
        assert np.array_equal(update.body.trained, local.trained)
        assert local.kept == played.layout.size
        assert np.count_nonzero(update.body.values) > 0.5 * update.size


def test_the_mask_that_travels_is_that_of_the_live_entries():
    played = Round(resnet(), "afl-prune")
    for update in played.updates:
        local, delta = played.trained(update.vehicle)
        assert np.array_equal(update.mask, local.mask)
        assert np.array_equal(update.body.values, local.gradient[update.mask])
        assert not local.gradient[~local.mask].any()
        assert played.layout.size - local.kept == round(delta * played.layout.kernels.sum())  # dead ones count too


@pytest.mark.parametrize("model", ["resnet18", "cnn", f"{__name__}:Picky"])
def test_afl_s_step_is_the_mean_of_the_raw_gradients(model: str):
    """With one mini-batch d is its gradient, found here with a module of torch's own and no flat vector."""
    config = resnet(f"model.name={model}")
    played = Round(config, "afl")
    before, after = (played.engine.whole(state["weights"]) for state in (played.start, played.after))
    moved = (before.astype(np.float64) - after) / config.train.eta_at(0)
    total = np.zeros(played.layout.size)
    for u in range(config.vehicles):
        module = build_model(config.model, KNOWN.outputs, KNOWN.shape, config.seed).train()
        samples = played.world.observe(u, 0)
        rng = stream(config.seed, "batches", 0, u)
        images, labels = next(played.engine.batches.draw(samples, config.train.batch_size, 1, rng))
        functional.cross_entropy(module(images), labels).backward()
        total += torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()]).numpy()
    total = total[played.layout.plain_places()]
    assert np.abs(moved - total / config.vehicles).max() <= 1e-5 * max(1.0, float(np.abs(before).max()))
    assert np.abs(moved).max() > 1e-3
    assert {update.size for update in played.updates} == {played.layout.live_size}
    assert (played.layout.live is None) == (model != "resnet18")


def test_a_model_that_fails_on_zeros_is_sent_whole():
    played = Round(resnet(f"model.name={__name__}:Picky"), "afl-quant")
    whole = sum(parameter.numel() for parameter in Picky(4, 32).parameters())
    assert {update.size for update in played.updates} == {whole}


# what is looked up by identity


def test_the_taps_of_parametrised_layers_are_not_those_of_others(monkeypatch):
    """Their weights are computed at every look, so that one's identity may be the next one's."""
    known = {nn.Parameter: id}
    monkeypatch.setattr("skyfed.learning.flat.id", lambda it: known.get(type(it), lambda _: 0)(it), raising=False)
    layers = [nn.Conv2d(3, 3, size, padding=size // 2) for size in (3, 5)]
    model = nn.Sequential(*map(nn.utils.parametrizations.weight_norm, layers))
    assert _dead_taps(model, conv_inputs(model, (3, 1, 1))) == {}


def test_a_model_without_a_live_weight_is_refused():
    """A 1x1 kernel on a 1x1 map with padding and a stride of 2 meets only padding."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1, stride=2, padding=1, bias=False), nn.Flatten())
    with pytest.raises(BadInputError, match="no weight of the module can have a gradient"):
        FlatModel(model, inputs=(3, 1, 1))


def test_models_that_share_weights_and_differ_in_buffers_are_scored_apart():
    engine = onboard_of(tiny_config()).engine
    model = engine.initial()
    other = Model(model.weights, model.buffers + np.float32(3))
    loss = engine.score(model, 0, 8).loss
    assert not np.array_equal(engine.score(other, 0, 8).loss, loss)
    assert np.array_equal(engine.score(model, 0, 8).loss, loss)
