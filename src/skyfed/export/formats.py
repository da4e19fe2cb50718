"""A module as bytes of a file: a state dict, a torch.export program, TorchScript or ONNX.

All but the state dict take samples as the task holds them, in batches of any size, and are tried on two batches of
other sizes than the one they were recorded with.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from skyfed.errors import BadInputError, SkyfedError

FILES = {
    "safetensors": "model.safetensors", "pt2": "model.pt2", "torchscript": "model.ts", "onnx": "model.onnx"
}  # fmt: skip
DEFAULT = ("safetensors", "pt2", "onnx")
INPUT, OUTPUT = "inputs", "scores"
_EXTRA = ("onnx", "onnxscript", "onnxruntime")
_BATCHES = (2, 1, 5)  # samples in the batch that is recorded, and in those that are tried
_CLOSE = 1e-3  # largest difference between outputs, relative to the largest output

Run = Callable[[Tensor], Tensor]


class FormatError(SkyfedError):
    """A model cannot be written in a format; the message says which and why."""


def missing_extra() -> str:
    """Say in one line what to install for ONNX; empty where it is there."""
    absent = [name for name in _EXTRA if find_spec(name) is None]
    return f"onnx needs {', '.join(absent)}; install with: pip install 'skyfed[export]'" if absent else ""


def check_formats(names: str | None) -> tuple[str, ...]:
    """Return the formats that a list separated by commas names; the usual ones where nothing is given."""
    if names is None:
        return DEFAULT
    formats = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    unknown = [name for name in formats if name not in FILES]
    if unknown:
        raise BadInputError(f"--formats {names!r}: {unknown[0]!r} is not known; allowed: {', '.join(FILES)}")
    if "onnx" in formats and (line := missing_extra()):
        raise BadInputError(f"--formats {names!r}: {line}")
    return formats


def pack_state(module: nn.Module) -> bytes:
    """Return a module's state dict as safetensors, under the module's own names; tied tensors are there twice."""
    from safetensors.torch import save

    return save({name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()})


def pack(name: str, module: nn.Module, samples: Tensor) -> bytes:
    """Return a module that takes raw samples in a format; raises FormatError if that cannot be done, or differs."""
    writers = {"pt2": _pt2, "torchscript": _torchscript, "onnx": _onnx}
    with _quiet(), torch.no_grad():
        try:
            data, run = writers[name](module, _batch(samples, _BATCHES[0]))
        except Exception as error:  # torch raises errors of many kinds for a module of one's own
            reason = " ".join(str(error).split())[:200]
            raise FormatError(f"{name}: torch cannot write this model ({type(error).__name__}: {reason})") from error
        for size in _BATCHES[1:]:
            _compare(name, module, run, _batch(samples, size))
    return data


def _pt2(module: nn.Module, example: Tensor) -> tuple[bytes, Run]:
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    program, sink = torch.export.export(module, (example,), dynamic_shapes=shapes), io.BytesIO()
    torch.export.save(program, sink)
    return sink.getvalue(), program.module()


def _torchscript(module: nn.Module, example: Tensor) -> tuple[bytes, Run]:
    traced, sink = torch.jit.trace(module, example), io.BytesIO()  # type: ignore[no-untyped-call]
    torch.jit.save(traced, sink)
    return sink.getvalue(), traced


def _onnx(module: nn.Module, example: Tensor) -> tuple[bytes, Run]:
    import onnxruntime

    program = torch.onnx.export(
        module, (example,), dynamo=True, verbose=False, input_names=[INPUT], output_names=[OUTPUT],
        dynamic_shapes=({0: "batch"},),
    )  # fmt: skip
    assert program is not None
    data = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return data, lambda inputs: torch.from_numpy(session.run(None, {INPUT: inputs.numpy()})[0])


def _compare(name: str, module: nn.Module, run: Run, inputs: Tensor) -> None:
    """Raise FormatError unless what was written gives what the module gives."""
    expected = module(inputs)
    try:
        given = run(inputs)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{name}: works for one batch size only ({type(error).__name__}: {reason})") from error
    apart = (given - expected).abs().max() if given.shape == expected.shape else torch.tensor(torch.inf)
    if not apart <= _CLOSE * expected.abs().max().clamp(min=1.0):
        raise FormatError(f"{name}: gives other outputs than the model, whose forward pass torch cannot record")


def _batch(samples: Tensor, size: int) -> Tensor:
    """Return a batch of so many samples; a small test set is used several times."""
    return samples[torch.arange(size) % len(samples)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's warnings and logs from the user: of TorchScript's age, and of packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
