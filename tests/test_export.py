"""Exported models: every file, loaded where skyfed cannot be imported, scores as `skyfed evaluate` says."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import skyfed
from in_process import program
from skyfed.cli import run_arguments
from skyfed.config import load_config
from skyfed.export.formats import FormatError, pack
from skyfed.learning.engine import Engine
from skyfed.learning.plain_model import plain_model
from skyfed.runs.folder import RunFolder
from skyfed.runs.models import saved_models
from skyfed.tasks import load_task
from waiting import LONG

HAS_ONNX = all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="needs skyfed[export]")

CHANNEL = {"granularity": "channel", "delta": 0.6}
CASES = {
    "cnn": {"model": {"name": "cnn", "width": 8}},
    "mlp": {"model": {"name": "mlp", "width": 32}},
    "resnet18": {"model": {"name": "resnet18", "width": 16}},  # preset quick's
    "resnet18 group norm": {"model": {"name": "resnet18", "width": 16, "norm": "group"}},
    "cnn channels": {"model": {"name": "cnn", "width": 16}, "prune": CHANNEL},
    "mlp channels": {"model": {"name": "mlp", "width": 64}, "prune": CHANNEL},
    "resnet18 channels": {"model": {"name": "resnet18", "width": 16}, "prune": CHANNEL},
}

# runs in the folder of an export: loads every file there is and scores the samples of a file
READER = """
import json, pathlib, sys

sys.modules["skyfed"] = None  # whoever imports it fails
import numpy, torch
from safetensors.torch import load_file

samples = numpy.load(sys.argv[1])
inputs, targets = torch.from_numpy(samples["inputs"]), torch.from_numpy(samples["targets"]).long()
models = {}
if pathlib.Path("architecture.py").exists():
    sys.path.insert(0, "")
    from architecture import build, prepare

    plain = build()
    plain.load_state_dict(load_file("model.safetensors"))
    plain.eval()
    models["safetensors"] = lambda batch: plain(prepare(batch))
if pathlib.Path("model.pt2").exists():
    models["pt2"] = torch.export.load("model.pt2").module()
if pathlib.Path("model.ts").exists():
    models["torchscript"] = torch.jit.load("model.ts")
if pathlib.Path("model.onnx").exists():
    import onnxruntime

    session = onnxruntime.InferenceSession("model.onnx")
    models["onnx"] = lambda batch: torch.from_numpy(session.run(None, {"inputs": batch.numpy()})[0])
found = {}
with torch.no_grad():
    for name, model in models.items():
        scores = torch.cat([model(batch) for batch in inputs.split(97)])
        loss = torch.nn.functional.cross_entropy(scores, targets)
        found[name] = [float((scores.argmax(1) == targets).double().mean()), float(loss)]
print(json.dumps(found))
"""


def trained(place: Path, **settings: object) -> Path:
    """Train for a round; batch-norm buffers have moved then."""
    usual = {"rounds": 1, "vehicles": 2, "workers": 1, "algorithms": ["2ceoafl"]}
    skyfed.run("smoke", out=place, progress=False, **(usual | settings))
    return place


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of preset smoke's CNN."""
    return trained(tmp_path_factory.mktemp("smoke") / "run")


def read_without_skyfed(export: Path, run: Path) -> dict[str, list[float]]:
    """Return accuracy and loss of every file of an export, on the run's test samples."""
    test = load_task(RunFolder(run).read_config().data).test
    samples = export.parent / "samples.npz"
    np.savez(samples, inputs=test.inputs, targets=test.targets)
    command = [sys.executable, "-W", "ignore", "-c", READER, str(samples)]
    done = subprocess.run(command, cwd=export, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def evaluated(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert run_arguments(["evaluate", str(run), "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)
    return score


@pytest.mark.parametrize("case", CASES)
def test_every_file_scores_as_evaluate_says_without_skyfed(case, tmp_path, capsys):
    run, out = trained(tmp_path / "run", **CASES[case]), tmp_path / "out"
    formats = "safetensors,pt2,torchscript" + ",onnx" * HAS_ONNX
    assert run_arguments(["export", str(run), "--out", str(out), "--formats", formats]) == 0
    said, found = evaluated(run, capsys), read_without_skyfed(out, run)
    assert found.keys() == set(formats.split(","))
    for name, (accuracy, loss) in found.items():
        assert accuracy == pytest.approx(said["accuracy"], abs=1e-3), name
        assert loss == pytest.approx(said["loss"], rel=1e-3), name  # tells what equal accuracies may hide
    about = json.loads((out / "export.json").read_text())
    assert about["accuracy"] == pytest.approx(said["accuracy"], abs=1e-3)
    if "channels" in case:  # the tensors themselves are smaller
        assert about["weights"] < 0.6 * about["trained"]
        assert (out / "model.safetensors").stat().st_size < 0.6 * (run / "2ceoafl/model.safetensors").stat().st_size


@needs_onnx
def test_onnx_is_written_unless_asked_otherwise_and_names_its_batch(run, tmp_path):
    import onnx

    out = tmp_path / "out"
    assert run_arguments(["export", str(run), "--out", str(out)]) == 0
    (inputs,) = onnx.load(out / "model.onnx").graph.input
    assert inputs.name == "inputs"
    assert inputs.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert not (out / "model.ts").exists()


def test_without_the_extra_the_rest_is_written_and_a_line_says_how_to_get_it(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("skyfed.export.formats.find_spec", lambda name: None)
    out = tmp_path / "out"
    capsys.readouterr()
    assert run_arguments(["export", str(run), "--out", str(out)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'skyfed[export]'" in line
    assert {path.name for path in out.iterdir()} == {
        "README.md", "architecture.py", "export.json", "model.pt2", "model.safetensors"
    }  # fmt: skip
    assert run_arguments(["export", str(run), "--out", str(tmp_path / "no"), "--formats", "onnx"]) == 2
    assert "skyfed[export]" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_python_gives_the_same_module(run, tmp_path):
    opened = skyfed.load(run)
    module, raw = opened.model("2ceoafl"), opened.model("2ceoafl", raw=True)
    assert run_arguments(["export", str(run), "--out", str(tmp_path / "out"), "--formats", "safetensors"]) == 0
    saved = load_file(tmp_path / "out/model.safetensors")
    state = module.state_dict()
    assert saved.keys() == state.keys()
    assert all(torch.equal(saved[name], state[name]) for name in state)
    assert {type(layer) for layer in module.modules()} <= {
        nn.Sequential, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear
    }  # fmt: skip
    assert not module.training
    test = load_task(opened.config.data).test
    right = raw(torch.from_numpy(test.inputs)).argmax(1).numpy() == test.targets
    assert right.mean() == pytest.approx(opened.rounds["accuracy_full"][-1], abs=1e-3)
    with pytest.raises(skyfed.errors.BadInputError, match="allowed in this run: 2ceoafl"):
        opened.model("afl")


def test_the_small_module_is_the_large_one_without_zeros(tmp_path):
    """By definition: outputs of the cut module are those of the whole one with pruned channels as zeros."""
    run = trained(tmp_path / "run", **CASES["resnet18 channels"])
    config = RunFolder(run).read_config()
    engine = Engine(load_task(config.data), config.model, config.seed, "cpu")
    (saved,) = saved_models(run, "2ceoafl", engine)
    settings = config.settings_of(config.row("2ceoafl"))
    small, whole = plain_model(engine, saved.model, settings.prune), engine.copied(saved.model)
    inputs = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(small(inputs), whole(inputs), atol=1e-4)
    assert small[0].out_channels == small[0].weight.shape[0] < whole[0].out_channels


def test_several_models_go_to_folders_of_their_own_or_one_is_asked_for(tmp_path, capsys):
    own = f"{Path(__file__).parents[1] / 'examples/clustered.py'}:Clustered"
    run, out = trained(tmp_path / "run", algorithms=[own]), tmp_path / "out"
    words = ["export", str(run), "--formats", "safetensors"]
    assert run_arguments([*words, "--out", str(out)]) == 0
    abouts = [json.loads((out / f"cluster {k}/export.json").read_text()) for k in (0, 1)]
    assert sorted(abouts[0]["vehicles"] + abouts[1]["vehicles"]) == [0, 1]
    assert run_arguments([*words, "--model", "cluster 1", "--out", str(out)]) == 0  # over the earlier export
    assert {path.name for path in out.iterdir()} == {"README.md", "architecture.py", "export.json", "model.safetensors"}
    capsys.readouterr()
    assert run_arguments([*words, "--model", "cluster 7", "--out", str(out)]) == 2
    assert "allowed in this row: cluster 0, cluster 1" in capsys.readouterr().err


def test_a_task_of_ones_own_is_exported_with_inputs_as_they_are(tmp_path, capsys):
    task = f"{Path(__file__).parents[1] / 'examples/radio_task.py'}:load"
    run = trained(tmp_path / "run", data={"name": task}, model={"name": "cnn", "width": 8}, field={"classes": 4})
    out = tmp_path / "out"
    assert run_arguments(["export", str(run), "--out", str(out), "--formats", "safetensors,pt2"]) == 0
    about, said = json.loads((out / "export.json").read_text()), evaluated(run, capsys)
    assert (about["dtype"], about["shape"], about["mean"], about["classes"]) == ("float32", [2, 128], None, None)
    assert about["metrics"] == pytest.approx(said["metrics"])
    test = load_task(RunFolder(run).read_config().data).test
    scores = torch.export.load(out / "model.pt2").module()(torch.from_numpy(test.inputs))
    right = ((scores > 0) == torch.from_numpy(test.targets > 0.5)).double().mean()
    assert float(right) == pytest.approx(said["accuracy"], abs=1e-3)
    assert str(tmp_path) not in (out / "README.md").read_text()
    assert "examples/" not in (out / "README.md").read_text()


def test_a_model_of_ones_own_is_exported_with_the_words_to_load_it(tmp_path):
    model = f"{Path(__file__).parents[1] / 'examples/own_model.py'}:build"
    run, out = trained(tmp_path / "run", model={"name": model}), tmp_path / "out"
    assert run_arguments(["export", str(run), "--out", str(out), "--formats", "safetensors,pt2"]) == 0
    assert not (out / "architecture.py").exists()
    assert "build(10, 32), load_file" in (out / "README.md").read_text()
    from examples.own_model import build

    build(10, 32).load_state_dict(load_file(out / "model.safetensors"))


def test_code_that_somebody_elses_run_names_is_not_run(tmp_path, capsys, monkeypatch):
    model = f"{Path(__file__).parents[1] / 'examples/own_model.py'}:build"
    run, out = trained(tmp_path / "run", model={"name": model}), tmp_path / "out"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody-else"))
    capsys.readouterr()
    assert run_arguments(["export", str(run), "--out", str(out)]) == 2
    assert "you did not make it" in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(skyfed.errors.BadInputError, match="you did not make it"):
        skyfed.load(run).model("2ceoafl")
    words = ["export", str(run), "--out", str(out), "--formats", "safetensors"]
    assert run_arguments([*words, "--trust"]) == 0


def test_a_folder_with_something_else_is_refused_and_left_as_it_is(run, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    words = ["export", str(run), "--formats", "safetensors", "--out"]
    for place in (out, run, out / "thesis.tex"):
        capsys.readouterr()
        assert run_arguments([*words, str(place)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert (out / "thesis.tex").read_text() == "years of work"
    earlier = tmp_path / "earlier"
    assert run_arguments([*words, str(earlier)]) == 0
    (earlier / "notes.txt").write_text("kept")
    assert run_arguments(["export", str(run), "--formats", "pt2", "--out", str(earlier)]) == 0
    assert {path.name for path in earlier.iterdir()} == {"README.md", "export.json", "model.pt2", "notes.txt"}


def test_bad_words_get_one_line(tmp_path, capsys):
    run = trained(tmp_path / "run", algorithms=["sgd", "afl"], model={"name": "mlp", "width": 4})
    for words, says in (
        (["--algorithm", "2ceoafl"], "allowed in this run: sgd, afl"),
        ([], "--algorithm is missing; allowed in this run: sgd, afl"),
        (["--algorithm", "afl", "--formats", "keras"], "allowed: safetensors, pt2, torchscript, onnx"),
    ):
        capsys.readouterr()
        assert run_arguments(["export", str(run), "--out", str(tmp_path / "out"), *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
    assert not (tmp_path / "out").exists()


class Stubborn(nn.Module):
    """Gives other outputs for a batch of one, which no recording follows."""

    def forward(self, x):
        return x.flatten(1) + (1.0 if len(x) == 1 else 0.0)


def test_a_model_that_torch_cannot_record_is_refused():
    samples = torch.zeros(8, 3)
    with pytest.raises(FormatError, match="gives other outputs"):
        pack("torchscript", Stubborn().eval(), samples)
    with pytest.raises(FormatError, match="pt2: torch cannot write this model"):
        pack("pt2", Stubborn().eval(), samples)


def test_the_card_says_what_the_run_was(run, tmp_path):
    out = tmp_path / "out"
    assert run_arguments(["export", str(run), "--out", str(out), "--formats", "safetensors"]) == 0
    card, config = (out / "README.md").read_text(), load_config(run / "config.toml")
    accuracy = skyfed.load(run).rounds["accuracy_full"][-1]
    for words in (f"{100 * accuracy:.2f} % on the 1,500 test samples", f"seed {config.seed}", "pattern 9", "uint8"):
        assert words in card
    for block in card.split("```python\n")[1:]:
        compile(block.split("```")[0], "card", "exec")


def test_the_pages_python_runs(run, tmp_path):
    page = (Path(__file__).parents[1] / "docs/export.md").read_text()
    (block,) = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/mine").symlink_to(run)
    (tmp_path / "block.py").write_text(block)
    assert "Conv2d" in program(tmp_path, tmp_path / "block.py")
