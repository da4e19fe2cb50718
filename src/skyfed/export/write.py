"""Writes the models of a row into a folder: whole files, made and tried before the first of them is written."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from skyfed.errors import BadInputError
from skyfed.export.architecture import architecture
from skyfed.export.card import Facts, card, facts_of
from skyfed.export.formats import FILES, FormatError, check_formats, missing_extra, pack, pack_state
from skyfed.files import read_json_table, storage_errors, write_whole
from skyfed.learning.batches import tensor_of
from skyfed.learning.engine import Engine
from skyfed.learning.evaluate import evaluate
from skyfed.learning.plain_model import plain_model, with_raw_inputs
from skyfed.runs.folder import RunFolder
from skyfed.runs.models import SavedModel, chosen, engine_of, finished_rows, saved_models

_MARK = "export.json"  # tells an earlier export from a folder that is somebody's
_NAMES = (*FILES.values(), "architecture.py", "README.md", _MARK)
_SAMPLES = 8  # of the test set, to record and try files with

Files = dict[str, bytes]


@dataclass(frozen=True)
class Exported:
    """What was written of one model: where, its facts, and the bytes of every file."""

    folder: Path
    facts: Facts
    sizes: dict[str, int]


def export_models(
    folder: Path, algorithm: str | None, name: str | None, out: Path, formats: str | None = None,
    trust: bool = False, say: Callable[[str], None] = print,
) -> list[Exported]:  # fmt: skip
    """Write the models of a run's row; several go to subfolders by their names.

    name     of one delivered model; all of them if not given
    formats  separated by commas: what cannot be written is then an error; else it is left out, and `say` tells why
    trust    runs code that the run's config names, whoever made it
    """
    wanted = check_formats(formats)
    _refuse_other(out)
    config = RunFolder.trusted_config(folder, trust)
    if algorithm is None and len(config.labels) > 1:
        raise BadInputError(f"--algorithm is missing; allowed in this run: {', '.join(config.labels)}")
    (label,) = finished_rows(folder, config, algorithm or config.labels[0])
    engine = engine_of(config, config.load_task())
    models = chosen(saved_models(folder, label, engine), name)
    made = [_make(RunFolder(folder), label, saved, engine, wanted, None if formats else say) for saved in models]
    places = [out] if len(models) == 1 else [out / saved.name for saved in models]
    _clear(out)
    if len(models) > 1:
        _write(out, {_MARK: json.dumps({"skyfed_export": 1, "models": [place.name for place in places]}).encode()})
    for place, (_, files) in zip(places, made, strict=True):
        _write(place, files)
    return [
        Exported(place, facts, {name: len(data) for name, data in files.items()})
        for place, (facts, files) in zip(places, made, strict=True)
    ]


def _make(
    folder: RunFolder, label: str, saved: SavedModel, engine: Engine, formats: Sequence[str],
    say: Callable[[str], None] | None,
) -> tuple[Facts, Files]:  # fmt: skip
    """Return the files of a model by name, the mark first. What cannot be made is told to `say`, or raised."""
    config = folder.read_config()
    module = plain_model(engine, saved.model, config.settings_of(config.row(label)).prune)
    scores = evaluate(module, engine.batches, engine.task, 0, len(engine.task.test), tested_at(folder.path, label))
    facts = facts_of(folder, config, label, saved, engine, module, scores)
    raw, samples = with_raw_inputs(engine, module), tensor_of(engine.task.test.inputs[:_SAMPLES])
    files: Files = {}
    for name in formats:
        try:
            if name == "onnx" and (line := missing_extra()):
                raise FormatError(line)
            files[FILES[name]] = pack_state(module) if name == "safetensors" else pack(name, raw, samples)
        except FormatError as error:
            if say is None:
                raise BadInputError(f"--formats {','.join(formats)}: {error}") from error
            say(f"left out: {error}")
    if "safetensors" in formats and not facts.own_model:
        files["architecture.py"] = architecture(module, engine.batches.moments).encode()
    sizes = {name: len(data) for name, data in files.items()}
    about = json.dumps({"skyfed_export": 1, **asdict(facts), "files": sizes}, indent=2)
    return facts, {_MARK: about.encode(), **files, "README.md": card(facts, sizes).encode()}


def _refuse_other(out: Path) -> None:
    """Raise if something that is no earlier export is where the files shall go."""
    allowed = "allowed: a new or empty folder, or an earlier export"
    with storage_errors(out):
        if out.exists() and not out.is_dir():
            raise BadInputError(f"--out {out}: is a file; {allowed}")
        if out.is_dir() and any(out.iterdir()) and not _is_export(out):
            raise BadInputError(f"--out {out}: not empty and not an export; {allowed}")


def _is_export(place: Path) -> bool:
    return "skyfed_export" in (read_json_table(place / _MARK) or {})


def _clear(out: Path) -> None:
    """Remove the files of an earlier export, by name; whatever else is there stays. The mark goes last."""
    if not out.is_dir():
        return
    with storage_errors(out):
        for inner in [path for path in out.iterdir() if path.is_dir() and not path.is_symlink() and _is_export(path)]:
            _clear(inner)
            with contextlib.suppress(OSError):  # somebody keeps something in it
                inner.rmdir()
        for name in _NAMES:
            (out / name).unlink(missing_ok=True)


def _write(place: Path, files: Files) -> None:
    with storage_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_whole(place / name, data)
