"""One config tree, composed of each room's own settings; presets, TOML files, overrides, and errors in one line."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from skyfed.algorithms import RECIPES, find_recipe
from skyfed.cost import CostSettings
from skyfed.errors import BadInputError
from skyfed.faults import FaultSettings
from skyfed.field import FieldSettings
from skyfed.fleet import FleetSettings
from skyfed.flight.problem import FlightSettings
from skyfed.learning.settings import ModelSettings, PruneSettings, TrainSettings
from skyfed.presets import DEFAULT, describe
from skyfed.sensing import SensingSettings, SensorSettings
from skyfed.sensing.datasets import DataSettings
from skyfed.server import ServerSettings
from skyfed.theory.settings import TheorySettings
from skyfed.track.settings import TrackSettings
from skyfed.wire.quantise import QuantiseSettings

_LARGEST = 3e38  # of a single-precision number


class Config(BaseModel):
    """A whole experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0, lt=2**63, description="every random number follows from it")
    vehicles: int = Field(10, ge=1, le=100_000, description="U")
    rounds: int = Field(100, ge=1, le=1_000_000, description="T")
    algorithms: list[str] = Field(
        list(RECIPES), min_length=1, description="which algorithms are trained, in this order"
    )
    eval_every: int = Field(
        1, ge=1, description="rounds between two tests of the model; the last round is always tested"
    )
    checkpoint_every: int = Field(1, ge=1, description="rounds between two checkpoints")
    workers: int = Field(0, ge=0, le=1024, description="worker processes; 0 is one a core; never changes a result")
    device: str = Field(
        "cpu",
        description="where vehicles train: cpu, cuda, cuda:1, mps or xpu; equal bits are promised for cpu alone",
    )
    field: FieldSettings = FieldSettings()
    sensor: SensorSettings = SensorSettings()
    flight: FlightSettings = FlightSettings()
    sensing: SensingSettings = SensingSettings()
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    prune: PruneSettings = PruneSettings()
    quantise: QuantiseSettings = QuantiseSettings()
    server: ServerSettings = ServerSettings()
    cost: CostSettings = CostSettings()
    theory: TheorySettings = TheorySettings()
    faults: FaultSettings = FaultSettings()
    fleet: FleetSettings = FleetSettings()
    track: TrackSettings = TrackSettings()

    @field_validator("algorithms")
    @classmethod
    def _known_algorithms(cls, names: list[str]) -> list[str]:
        for name in names:
            find_recipe(name)
        if len(set(names)) < len(names):
            raise ValueError("an algorithm is named twice")
        return names

    @field_validator("device")
    @classmethod
    def _known_device(cls, name: str) -> str:
        if not re.fullmatch(r"cpu|mps|(cuda|xpu)(:[0-9]{1,3})?", name):
            raise ValueError("allowed: cpu, cuda, mps, xpu, and one of several as cuda:1")
        return name

    @model_validator(mode="after")
    def _one_number_a_vehicle(self) -> "Config":
        alpha, delta = self.server.alpha, self.prune.delta
        if isinstance(alpha, list) and (len(alpha) != self.vehicles or sum(alpha) <= 0):
            raise ValueError(
                f"server.alpha: allowed: one number for each of the {self.vehicles} vehicles, some above 0"
            )
        if isinstance(delta, list) and len(delta) not in (2, self.vehicles):
            raise ValueError(
                f"prune.delta: allowed: [low, high] or one number for each of the {self.vehicles} vehicles"
            )
        if max(self.train.eta, self.train.eta_local) > _LARGEST:
            raise ValueError(f"train.eta, train.eta_local: allowed: at most {_LARGEST:g}, as weights hold it")
        absent = self.faults.absent
        if isinstance(absent, list) and any(u >= self.vehicles or t >= self.rounds for u, t in absent):
            raise ValueError(
                f"faults.absent: allowed: [vehicle, round] below [{self.vehicles}, {self.rounds}], or a probability"
            )
        named = [*self.faults.attackers, *(u for u, _, _ in self.faults.spoil)]
        if any(u >= self.vehicles for u in named):
            raise ValueError(f"faults: vehicle {max(named)} is named; allowed: below {self.vehicles}")
        return self

    def to_toml(self) -> str:
        """Write every setting; reading it back gives an equal config. Settings that are off are left out."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def presets() -> dict[str, str]:
    """Names of the presets with their one-line descriptions, the default first."""
    return describe()


def load_config(source: str = DEFAULT, overrides: Sequence[str] = ()) -> Config:
    """Read a preset or a TOML file, apply overrides "a.b=value" (TOML values), and check everything."""
    tree = _read(source)
    for override in overrides:
        _apply(tree, override)
    _resolve_files(tree, Path.cwd())
    return config_from_tree(tree)


def config_from_tree(tree: dict[str, Any]) -> Config:
    """Check a tree of plain values; raises BadInputError naming the first offending key."""
    try:
        return Config.model_validate_json(
            json.dumps(tree, default=str, ensure_ascii=False).encode("utf-8"), strict=True
        )
    except ValidationError as error:
        raise BadInputError(" ".join(_one_line(error, tree).splitlines())) from None
    except UnicodeEncodeError as error:
        culprit = next((key for key, value in _leaves(tree) if _undecodable(value)), "config")
        raise BadInputError(f"{culprit}: not UTF-8 ({error.reason})") from None
    except RecursionError:
        raise BadInputError(f"{next(iter(tree))}: nested too deeply") from None


def changed(configs: Sequence[Config]) -> dict[str, list[Any]]:
    """Keys whose values differ, with every config's value."""
    leaves = [dict(_leaves(config.model_dump(mode="json"))) for config in configs]
    keys = dict.fromkeys(key for each in leaves for key in each)
    found = {key: [each.get(key) for each in leaves] for key in keys}
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}


def differences(a: Config, b: Config) -> list[str]:
    """Keys whose values differ, as "a.b: 1 -> 2"."""
    return [f"{key}: {left} -> {right}" for key, (left, right) in changed([a, b]).items()]


def _read(source: str) -> dict[str, Any]:
    names = presets()
    path = Path(source)
    try:
        if source in names:
            text = resources.files("skyfed.presets").joinpath(f"{source}.toml").read_text(encoding="utf-8")
        elif path.is_file():
            text = path.read_text(encoding="utf-8")
        else:
            raise BadInputError(f"{source!r} is neither a preset nor a file; presets: {', '.join(names)}")
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{source}: not valid TOML: {error}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or thousands of digits
        raise BadInputError(f"{source}: {error}") from None
    except OSError as error:
        raise BadInputError(f"{source}: {error.strerror or error}") from None
    if path.is_file():
        _resolve_files(tree, path.parent)
    return tree


def _resolve_files(tree: dict[str, Any], base: Path) -> None:
    """Make the paths of field.file, data.name, track.dir absolute: beside their config, or where the command is."""

    def absolute(name: Any) -> Any:
        return str((base / name).resolve()) if isinstance(name, str) and "\0" not in name else name

    field = tree.get("field")
    files = field.get("file") if isinstance(field, dict) else None
    if isinstance(field, dict) and isinstance(files, str):
        field["file"] = absolute(files)
    elif isinstance(field, dict) and isinstance(files, list):
        field["file"] = [absolute(name) for name in files]
    track = tree.get("track")
    if isinstance(track, dict) and isinstance(track.get("dir"), str) and track["dir"]:
        track["dir"] = absolute(str(Path(track["dir"]).expanduser()))
    data = tree.get("data")
    name = data.get("name") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(name, str) and name.startswith("folder:") and len(name) > len("folder:"):
        data["name"] = f"folder:{absolute(str(Path(name.removeprefix('folder:')).expanduser()))}"


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(parts) > 8:
        raise BadInputError(f"--set {override!r}: allowed: key=value, as in flight.dmin=5")
    if "\n" in text or "\r" in text:
        raise BadInputError(f"--set {override!r}: allowed: one line")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if any(mark in text for mark in "[]{}\"'"):
            raise BadInputError(f"--set {override!r}: {text!r} is not a TOML value") from None
        value = text.strip()  # a bare word is a string: flight.method=sca
    except (RecursionError, ValueError) as error:  # nested too deeply, or thousands of digits
        raise BadInputError(f"--set {key}: {error}") from None
    for part in parts[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise BadInputError(f"--set {override!r}: {part!r} is a value, not a table")
    tree[parts[-1]] = value


def _one_line(error: ValidationError, tree: dict[str, Any]) -> str:
    """Say the first problem: key, value, what is allowed."""
    details = error.errors(include_url=False, include_context=True)
    first = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    path: list[str] = []
    model: type[BaseModel] = Config
    for part in first["loc"]:
        if not isinstance(part, str) or (part not in model.model_fields and first["type"] != "extra_forbidden"):
            break
        path.append(part)
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        model = inner
    if not path and first["type"] == "value_error":  # a check across tables, which names its key itself
        return _plain(first["msg"])
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], model.model_fields, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        table = f"in [{'.'.join(path[:-1])}]" if path[:-1] else "at the top level"
        return f"{key} is not a setting; {hint}allowed {table}: {', '.join(model.model_fields)}"
    value: Any = tree
    for part in path:
        value = value.get(part) if isinstance(value, dict) else value
    about = model.model_fields[path[-1]] if path and path[-1] in model.model_fields else None
    related = [d for d in details if list(d["loc"][: len(path)]) == path]
    allowed = " or ".join(dict.fromkeys(_plain(d["msg"]) for d in related))
    meaning = f" ({about.description})" if about is not None and about.description else ""
    shown = json.dumps(value, default=str)
    return f"{key} = {shown if len(shown) < 60 else shown[:57] + '...'}: {allowed}{meaning}"


def _undecodable(value: Any) -> bool:
    return any(0xD800 <= ord(letter) <= 0xDFFF for letter in str(value))


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
