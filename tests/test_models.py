"""The models and their flat vectors: sizes, seeds, a user's own module, and views that really are views."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from skyfed.errors import BadInputError
from skyfed.learning.flat import FlatModel
from skyfed.learning.models import build_model
from skyfed.learning.settings import ModelSettings

SMALL = [
    ModelSettings(name="resnet18", width=4),
    ModelSettings(name="resnet18", width=4, stem="cifar"),
    ModelSettings(name="resnet18", width=8, norm="group"),
    ModelSettings(name="cnn", width=4),
    ModelSettings(name="cnn", width=4, norm="group"),
    ModelSettings(name="mlp", width=6),
]


def named(settings: ModelSettings) -> str:
    return f"{settings.name}-{settings.stem}-{settings.norm}-{settings.width}"


def build(settings: ModelSettings, classes: int = 10, side: int = 32, seed: int = 0) -> nn.Module:
    return build_model(settings, classes, (3, side, side), seed)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# sizes


@pytest.mark.parametrize(("stem", "expected"), [("imagenet", 11_181_642), ("cifar", 11_173_962)])
def test_resnet18_has_as_many_weights_as_the_paper_says(stem, expected):
    model = FlatModel(build(ModelSettings(name="resnet18", stem=stem)))
    assert model.layout.size == len(model.weights) == expected
    assert model.layout.buffers == 2 * 4800  # a mean and a variance for each of the 4,800 normalised channels


def test_resnet18_of_another_width_by_hand():
    """Every kernel but the stem's grows with the square of the width, the stem's and the head's with the width."""
    kernels = (11_181_642 - 9_408 - 5_130 - 9_600) / 64**2
    for width in (4, 16):
        expected = kernels * width**2 + 147 * width + (80 * width + 10) + 150 * width
        assert count(build(ModelSettings(name="resnet18", width=width))) == expected


def test_group_norm_has_the_weights_of_batch_norm_and_no_buffers():
    batch, group = (FlatModel(build(ModelSettings(name="resnet18", width=8, norm=n))) for n in ("batch", "group"))
    assert batch.layout.size == group.layout.size
    assert batch.layout.buffers > 0
    assert group.layout.buffers == 0


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 7, 12, 33, 64])
def test_group_norm_takes_any_width(width):
    module = build(ModelSettings(name="cnn", width=width, norm="group"))
    assert module(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_cnn_and_mlp_by_hand():
    # conv 3*9*4+4, norm 8, conv 4*9*8+8, norm 16, linear 128*10+10
    assert count(build(ModelSettings(name="cnn", width=4))) == 112 + 8 + 296 + 16 + 1290
    assert count(build(ModelSettings(name="mlp", width=6))) == 3072 * 6 + 6 + 6 * 10 + 10


@pytest.mark.parametrize("settings", SMALL, ids=named)
@pytest.mark.parametrize(("classes", "side"), [(10, 32), (3, 16), (100, 64)])
def test_every_model_takes_every_size_of_picture_and_number_of_classes(settings, classes, side):
    module = build(settings, classes, side)
    assert module(torch.zeros(2, 3, side, side)).shape == (2, classes)


def test_the_imagenet_stem_leaves_dead_weights_on_small_pictures():
    """On 32 x 32 pictures the last stage works on 1 x 1 maps: 62 % of the weights only ever multiply padding."""
    model = FlatModel(build(ModelSettings(name="resnet18")))
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    functional.cross_entropy(model.module(images), torch.arange(4)).backward()
    dead = np.zeros(model.layout.size, bool)
    for start, name, shape in zip(model.layout.starts, model.layout.names, model.layout.shapes, strict=False):
        if len(shape) == 4 and shape[0] == 512 and shape[-1] == 3:
            taps = np.ones(shape, bool)
            live = (1, 1) if shape[1] == 512 else (slice(1, None), slice(1, None))  # a stride-2 step from 2 x 2 maps
            taps[(slice(None), slice(None), *np.atleast_1d(live))] = False
            assert "conv" in name
            dead[start : start + taps.size] = taps.reshape(-1)
    assert dead.sum() == 6_946_816
    assert not model.gradient[torch.from_numpy(dead)].any()
    assert model.gradient[torch.from_numpy(~dead)].count_nonzero() > 0.5 * (~dead).sum()


# seeds


@pytest.mark.parametrize("settings", SMALL, ids=named)
def test_initial_weights_follow_from_the_seed_alone(settings):
    torch.manual_seed(1)
    one = FlatModel(build(settings, seed=3)).weights.clone()
    torch.manual_seed(2)
    torch.rand(100)
    assert torch.equal(FlatModel(build(settings, seed=3)).weights, one)
    assert not torch.equal(FlatModel(build(settings, seed=4)).weights, one)


def test_torch_s_own_generator_is_left_as_it_was():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    build(ModelSettings(name="resnet18", width=4), seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(BadInputError):
        build(ModelSettings(name=f"{__name__}:not_there"))
    assert torch.equal(torch.get_rng_state(), before)


# a user's own


class Own(nn.Module):
    """A module with everything a flat vector must cope with: frozen and shared weights, integer and float buffers."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.inner = nn.Linear(4, 4)
        self.again = self.inner
        self.scale = nn.Parameter(torch.ones(()))
        self.fixed = nn.Parameter(torch.full((4,), 2.0), requires_grad=False)
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("floor", torch.full((), 0.25))
        self.head = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm(self.convolution(x))).mean(dim=(2, 3)) * self.fixed
        return self.head(self.again(self.inner(y)) * self.scale + self.floor)


def not_a_module(classes: int, side: int) -> str:
    return "nonsense"


def too_few() -> nn.Module:
    return nn.Identity()


def failing(classes: int, side: int) -> nn.Module:
    raise ValueError("pictures of this size are not supported")


def too_many_classes(classes: int, side: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, classes + 3))


def two_answers(classes: int, side: int) -> nn.Module:
    return nn.LSTM(side, classes)


def wrong_inside(classes: int, side: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))


def test_ones_own_module_is_named_by_its_import_path():
    module = build(ModelSettings(name=f"{__name__}:Own"), classes=7, side=9)
    assert isinstance(module, Own)
    assert module(torch.zeros(2, 3, 9, 9)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no_such_package:f", "No module named 'no_such_package'"),
        ("skyfed.nowhere:f", "No module named 'skyfed.nowhere'"),
        ("skyfed.rng:nothing", "no 'nothing' there; it defines stream"),
        ("skyfed.wire.codec:VERSION", "not callable"),
        (f"{__name__}:not_a_module", "gave str; allowed: a torch.nn.Module"),
        (f"{__name__}:too_few", "positional arguments"),
        (f"{__name__}:failing", "pictures of this size are not supported"),
        (f"{__name__}:too_many_classes", "gave (2, 13) for two pictures; allowed: (2, 10), one number per output"),
        (f"{__name__}:wrong_inside", "fails on pictures (2, 3, 32, 32): RuntimeError: "),
        (f"{__name__}:two_answers", "fails on pictures"),
    ],
)
def test_a_bad_path_is_refused_in_one_line(name, expected):
    with pytest.raises(BadInputError) as caught:
        build(ModelSettings(name=name))
    message = str(caught.value)
    assert "\n" not in message
    assert f"model.name = {name!r}: " in message
    assert expected in message


@pytest.mark.parametrize("name", ["resnet19", "package.module", "a:b.c", "", ":f", "skyfed.rng:", ".relative:f"])
def test_a_name_that_cannot_be_a_path_is_refused_by_the_settings(name):
    with pytest.raises(ValueError, match="allowed: resnet18, cnn, mlp"):
        ModelSettings(name=name)


# flat vectors


@pytest.mark.parametrize("settings", SMALL, ids=named)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_flat_vectors_are_what_the_module_computes_with(settings, dtype):
    plain = build(settings).to(dtype)
    model = FlatModel(build(settings), dtype)
    images = torch.randn(4, 3, 32, 32, dtype=dtype, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.module.eval()(images), plain.eval()(images))
    assert torch.equal(model.weights, torch.cat([p.detach().reshape(-1) for p in plain.parameters()]))
    for vector in (model.weights, model.gradient, model.buffers):
        assert vector.dtype == dtype


def test_changing_the_flat_vector_changes_the_module():
    model = FlatModel(build(ModelSettings(name="cnn", width=4)))
    model.weights.copy_(torch.arange(len(model.weights)))
    start = 0
    for parameter in model.module.parameters():
        assert torch.equal(parameter.reshape(-1), torch.arange(start, start + parameter.numel()).float())
        start += parameter.numel()
    model.buffers.fill_(3.0)
    for name, buffer in model.module.named_buffers():
        if buffer.is_floating_point():
            assert (buffer == 3).all(), name


def test_changing_the_module_changes_the_flat_vector():
    model = FlatModel(build(ModelSettings(name="cnn", width=4)))
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.fill_(7.0)
    assert (model.weights == 7).all()
    model.module.train()
    before = model.buffers.clone()
    model.module(torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert (model.buffers != before).any()
    running = torch.cat([b.reshape(-1) for b in model.module.buffers() if b.is_floating_point()])
    assert torch.equal(running, model.buffers)


@pytest.mark.parametrize("settings", SMALL, ids=named)
def test_gradients_land_in_the_flat_vector(settings):
    plain, model = build(settings), FlatModel(build(settings))
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # a second pass must land there too
        model.gradient.zero_()
        plain.zero_grad()
        for module in (plain, model.module):
            functional.cross_entropy(module.train()(images), torch.arange(4)).backward()
        expected = torch.cat([parameter.grad.reshape(-1) for parameter in plain.parameters()])
        assert torch.equal(model.gradient, expected)


def test_loading_copies_and_keeps_nothing():
    model = FlatModel(build(ModelSettings(name="cnn", width=4)))
    weights, buffers = (np.full(len(part), k, np.float32) for k, part in ((1, model.weights), (0, model.buffers)))
    model.load(weights, buffers)
    model.weights.add_(1)
    model.buffers.add_(1)
    assert (weights == 1).all()
    assert (buffers == 0).all()


def test_frozen_shared_and_integer_parts_of_a_module():
    model = FlatModel(Own(5, 9))
    layout = model.layout
    assert layout.names == (
        "scale", "convolution.weight", "convolution.bias", "norm.weight", "norm.bias", "inner.weight", "inner.bias",
        "head.weight", "head.bias",
    )  # fmt: skip
    sizes = [1, 108, 4, 4, 4, 16, 4, 20, 5]
    assert layout.starts.tolist() == np.concatenate([[0], np.cumsum(sizes)]).tolist()
    assert [int(np.prod(shape)) for shape in layout.shapes] == sizes
    assert layout.size == len(model.weights) == len(model.gradient) == 166
    assert layout.buffers == len(model.buffers) == 9
    model.weights.zero_()
    assert (model.module.fixed == 2).all()
    assert model.module.again.weight.data_ptr() == model.module.inner.weight.data_ptr()


def test_kernels_are_the_weights_of_convolutions_and_linear_layers():
    layout = FlatModel(Own(5, 9)).layout
    flags = [bool(layout.kernels[start]) for start in layout.starts[:-1]]
    assert flags == [False, True, False, False, False, True, False, True, False]
    assert layout.kernels.sum() == 108 + 16 + 20
    assert layout.kernels.dtype == bool
    whole = FlatModel(build(ModelSettings(name="resnet18"))).layout
    assert whole.kernels.sum() == 11_181_642 - 9_600 - 10  # all but the norm layers' and the head's bias


def test_a_module_without_buffers_has_an_empty_vector_of_them():
    model = FlatModel(build(ModelSettings(name="mlp", width=3)), torch.float64)
    assert model.buffers.shape == (0,)
    assert model.buffers.dtype == torch.float64
    assert model.layout.buffers == 0
