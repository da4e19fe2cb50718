"""Convolutions with fewer multiplications, and testing by them, against plain ones."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from skyfed.learning import winograd
from skyfed.learning.flat import FlatModel
from skyfed.learning.infer import forward_of, operators_work
from skyfed.learning.models import build_model
from skyfed.learning.settings import ModelSettings
from skyfed.learning.winograd import SCHEMES, WinogradConv, fits


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pixels(x: torch.Tensor) -> torch.Tensor:
    return x.permute(2, 3, 0, 1).reshape(-1, len(x), x.shape[1])  # a view, not contiguous


@pytest.mark.parametrize("side", SCHEMES)
@pytest.mark.parametrize(("ins", "outs", "pictures"), [(3, 5, 1), (4, 4, 7), (32, 33, 2)])
def test_a_scheme_gives_what_a_convolution_gives(side, ins, outs, pictures):
    x, weight, bias = noise(pictures, ins, side, side), noise(outs, ins, 3, 3, seed=1), noise(outs, seed=2)
    found = WinogradConv(weight, bias, side, {})(pixels(x))
    torch.testing.assert_close(found, pixels(functional.conv2d(x, weight, bias, padding=1)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("side", SCHEMES)
def test_adding_cutting_off_and_a_few_pictures_at_a_time(side, monkeypatch):
    x, weight, bias = noise(11, 6, side, side), noise(6, 6, 3, 3, seed=1), noise(6, seed=2)
    monkeypatch.setattr(winograd, "_TOGETHER", 4 * 4 * 36 * 4 * 6)  # a picture or a few: 11 are no multiple
    scratch: winograd.Scratch = {}
    layer = WinogradConv(weight, bias, side, scratch)
    want = pixels((functional.conv2d(x, weight, bias, padding=1) + x).relu())
    for _ in range(2):  # with memory that was used before, too
        torch.testing.assert_close(layer(pixels(x), True, pixels(x)), want, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(layer(pixels(x), True, pixels(x).contiguous()), want, rtol=1e-10, atol=1e-10)


def test_what_is_worth_it():
    assert fits(noise(64, 64, 3, 3), 8)
    assert not fits(noise(64, 64, 3, 3), 16)
    assert not fits(noise(64, 16, 3, 3), 8)
    assert not fits(noise(1, 1, 3, 3).expand(1024, 1024, 3, 3), 4)


@pytest.mark.parametrize(
    ("side", "settings"),
    [
        (32, ModelSettings(name="resnet18", width=64)),
        (32, ModelSettings(name="resnet18", width=16)),
        (32, ModelSettings(name="resnet18", width=32, stem="cifar")),
        (24, ModelSettings(name="resnet18", width=32)),
        (16, ModelSettings(name="resnet18", width=32, stem="cifar")),
        (64, ModelSettings(name="resnet18", width=32)),
        (16, ModelSettings(name="resnet18", width=4)),
        (8, ModelSettings(name="resnet18", width=4, stem="cifar")),
        (48, ModelSettings(name="resnet18", width=8)),
    ],
)
def test_testing_a_resnet_gives_what_the_model_gives(side, settings):
    model = FlatModel(build_model(settings, 10, (3, side, side), 0), inputs=(3, side, side), wide=True)
    images = noise(67, 3, side, side).float().contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        model.module.train()(images)  # running means and variances of its own
        forward = forward_of(model)
        want = model.module.eval()(images)
        assert forward is not model.module
        torch.testing.assert_close(forward(images), want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))
        torch.testing.assert_close(forward(images[:3]), want[:3], rtol=1e-4, atol=1e-4 * float(want.abs().max()))


def fails(*_: object) -> torch.Tensor:
    raise RuntimeError("another set of arguments")


def zeros(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.zeros_like(x)


zeros.binary = zeros


@pytest.mark.parametrize(
    "operators",
    [
        {},
        {"_convolution_pointwise": torch.ops.mkldnn._convolution_pointwise},
        {"_convolution_pointwise": fails, "_linear_pointwise": fails},
        {"_convolution_pointwise": zeros, "_linear_pointwise": zeros},
    ],
    ids=["none", "one of two", "failing", "wrong"],
)
def test_without_private_operators_of_torch_scores_are_the_same(monkeypatch, operators):
    model = FlatModel(
        build_model(ModelSettings(name="resnet18", width=16), 10, (3, 32, 32), 0), inputs=(3, 32, 32), wide=True
    )
    images = noise(67, 3, 32, 32).float().contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        model.module.train()(images)
        assert operators_work()
        fast = forward_of(model)(images)
        operators_work.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(torch.ops, "mkldnn", SimpleNamespace(**operators))
            forward = forward_of(model)
            plain = forward(images)
        operators_work.cache_clear()
    assert forward is model.module
    torch.testing.assert_close(plain, fast, rtol=1e-4, atol=1e-4 * float(fast.abs().max()))
