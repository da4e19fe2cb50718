"""The verb that hands a trained model on: export."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from skyfed.cli.app import Trust, algorithms, app


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new folder, or that of an earlier export.")],
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Whose model; needed where a run has several.", autocompletion=algorithms),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="One of several delivered models; all if not given.")
    ] = None,
    formats: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of safetensors, pt2, onnx, torchscript; the first three if not given."),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a trained model for use without skyfed.

    model.safetensors is a plain state dict and architecture.py its network in PyTorch. model.pt2 (torch.export),
    model.onnx and model.ts (TorchScript) take raw samples. README.md is a model card that says
    how to load each.

    \b
    skyfed export runs/mine --algorithm 2ceoafl --out my-model
    skyfed export runs/mine --algorithm 2ceoafl --formats onnx --out my-onnx
    """  # fmt: skip
    from skyfed.export.write import export_models

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    for exported in export_models(folder, algorithm, model, out, formats, trust, say):
        facts = exported.facts
        print(
            f"{exported.folder}: {facts.title}, {facts.weights:,} weights, "
            f"accuracy {100 * facts.accuracy:.2f} % on {facts.samples:,} test samples"
        )
        for name, size in exported.sizes.items():
            print(f"  {name:<18} {size:>12,} bytes")
