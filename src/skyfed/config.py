"""One config tree, composed of each room's own settings; presets, TOML files, overrides, and errors in one line."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from math import inf
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, Field, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from skyfed import workers
from skyfed.algorithms import KNOWN, Row, check_rows, find_class, merged
from skyfed.blocks.aggregate import ServerSettings
from skyfed.blocks.tables import TABLES, Settings
from skyfed.errors import BadInputError
from skyfed.faults import FaultSettings
from skyfed.field import FieldSettings
from skyfed.flight.problem import FlightSettings
from skyfed.learning.settings import ModelSettings, PruneSettings, TrainSettings
from skyfed.presets import DEFAULT
from skyfed.settings import StrictSettings, what_is_wrong
from skyfed.sources import apply_override, read_source, resolve_files
from skyfed.tasks import DataSettings, Task, load_task
from skyfed.tasks.blur import seen_from
from skyfed.tasks.cache import Progress
from skyfed.theory.settings import TheorySettings
from skyfed.track.settings import TrackSettings
from skyfed.wire.quantise import QuantiseSettings
from skyfed.world import Conditions, SensingSettings, SensorSettings, VehicleSettings, WorldSettings
from skyfed.world.computers import fleet_computers
from skyfed.world.settings_01 import translate_costs

_LARGEST = 3e38  # of a single-precision number
_RENAMED = {("train", "genie_steps"): "central_steps"}  # settings of version 0.1, which are still read


class FleetSettings(StrictSettings):
    """Rounds across machines (docs/fleet.md)."""

    deadline: float = Field(600, gt=0, le=1e6, description="seconds after which a round closes with who is there")
    grace: float = Field(
        10,
        ge=0,
        le=1e6,
        description="seconds that a round stays open for vehicles out of touch once all others have answered",
    )
    least: int = Field(1, ge=1, description="fewest uploads with which a round closes; below, it is tried again")
    tries: int = Field(2, ge=1, le=100, description="how often a vehicle is asked in a round before it is left out")
    patience: int = Field(
        10, ge=1, description="deadlines with fewer than `least` uploads after which the station gives up for now"
    )
    poll: float = Field(3, ge=0.05, le=3, description="seconds between a vehicle's looks for work; Flower's own is 3")
    largest: float = Field(256e6, ge=1e5, le=2e9, description="bytes of the largest request that the station reads")


class Config(StrictSettings):
    """A whole experiment."""

    seed: int = Field(0, ge=0, lt=2**63, description="every random number follows from it")
    vehicles: int = Field(10, ge=1, le=100_000, description="U")
    rounds: int = Field(100, ge=1, le=1_000_000, description="T")
    algorithms: list[str | dict[str, Any]] = Field(
        list(KNOWN),
        min_length=1,
        description="which algorithms are trained, in this order: ids, import paths, or rows with their own settings",
    )
    eval_every: int = Field(
        1, ge=1, description="rounds between two tests of the model; the last round is always tested"
    )
    checkpoint_every: int = Field(1, ge=1, description="rounds between two checkpoints")
    workers: int = Field(
        0, ge=0, le=1024, description="worker processes; 0 is one per usable core; never changes a result"
    )
    device: str = Field(
        "cpu", description="where vehicles train: cpu, cuda, cuda:1, mps or xpu; equal bits are promised for cpu alone"
    )
    field: FieldSettings = FieldSettings()
    world: WorldSettings = WorldSettings()
    vehicle: VehicleSettings = VehicleSettings()
    sensor: SensorSettings = SensorSettings()
    flight: FlightSettings = FlightSettings()
    sensing: SensingSettings = SensingSettings()
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    prune: PruneSettings = PruneSettings()
    quantise: QuantiseSettings = QuantiseSettings()
    server: ServerSettings = ServerSettings()
    theory: TheorySettings = TheorySettings()
    faults: FaultSettings = FaultSettings()
    fleet: FleetSettings = FleetSettings()
    track: TrackSettings = TrackSettings()

    @field_validator("algorithms")
    @classmethod
    def _known_algorithms(cls, rows: list[str | dict[str, Any]]) -> list[str | dict[str, Any]]:
        check_rows(rows)
        return rows

    _shown: dict[str, tuple[str, bool]] = PrivateAttr(default_factory=dict)  # by label: title, central

    @property
    def rows(self) -> list[Row]:
        """The rows of the run: algorithms with their labels."""
        rows = check_rows(self.algorithms)
        return [row.shown_as(*self._shown[row.name]) if row.name in self._shown else row for row in rows]

    def show(self, label: str, title: str, central: bool) -> None:
        """Take note of what a row's class says of itself, which a config alone does not know."""
        self._shown[label] = (title, central)

    @property
    def labels(self) -> list[str]:
        """The labels of the rows, which name folders."""
        return [row.name for row in self.rows]

    def row(self, label: str) -> Row:
        """Return the row of this label."""
        return next(row for row in self.rows if row.name == label)

    @property
    def conditions(self) -> Conditions:
        """The settings that a world follows."""
        field, data = self.field, self.data
        return Conditions(
            self.world, self.vehicle, self.sensor, self.sensing, self.faults, self.seed, data.dirichlet,
            field.follows, field.shared, field.zeta, flight=self.flight if self.flight.replan else None,
        )  # fmt: skip

    def load_task(self, progress: Progress = lambda *_: None) -> Task:
        """Load the data as the vehicles' cameras see it."""
        task = load_task(self.data, progress)
        if self.sensing.model == "eq6":
            return task
        return seen_from(task, self.sensor.altitude, self.sensing.sharp_altitude)

    @property
    def longest_leg(self) -> float:
        """Metres that a vehicle can fly from one round to the next; infinite where nothing limits it."""
        vmax = self.flight.vmax
        if vmax == "unlimited":
            return inf
        return self.vehicle.speed * self.world.flight_time if isinstance(vmax, str) else vmax

    @property
    def processes(self) -> int:
        """How many worker processes to start."""
        return self.workers or workers.usable_cores()

    def settings_of(self, row: Row) -> Settings:
        """Return a row's own settings over the tables that all share; raises BadInputError naming what is wrong.

        The row's algorithm is imported.
        """
        kind = find_class(row).Settings
        known = KNOWN[row.use].settings if row.use in KNOWN else {}
        tables = self.model_dump(mode="json", include=set(TABLES))
        tree = merged(merged(tables, known), row.own)
        try:
            settings = kind.model_validate_json(json.dumps(tree), strict=True)
        except ValidationError as error:
            raise BadInputError(f"algorithms, row {row.name!r}: {_one_line(error, tree, kind)}") from None
        _fit(settings, self.vehicles, f"algorithms, row {row.name!r}: ")
        return settings

    @field_validator("device")
    @classmethod
    def _known_device(cls, name: str) -> str:
        if not re.fullmatch(r"cpu|mps|(cuda|xpu)(:[0-9]{1,3})?", name):
            raise ValueError("allowed: cpu, cuda, mps, xpu, and one of several as cuda:1")
        return name

    @model_validator(mode="after")
    def _one_number_a_vehicle(self) -> "Config":
        _fit(self, self.vehicles)
        absent = self.faults.absent
        if isinstance(absent, list) and any(u >= self.vehicles or t >= self.rounds for u, t in absent):
            raise ValueError(
                f"faults.absent: allowed: [vehicle, round] below [{self.vehicles}, {self.rounds}], or a probability"
            )
        if isinstance(absent, list) and len({tuple(pair) for pair in absent}) == self.vehicles * self.rounds:
            raise ValueError("faults.absent: all vehicles miss all rounds; allowed: an upload or more")
        if len(set(self.faults.attackers)) == self.vehicles:
            raise ValueError(f"faults.attackers: all {self.vehicles} vehicles attack; allowed: fewer")
        named = [*self.faults.attackers, *(u for u, _, _ in self.faults.spoil)]
        if any(u >= self.vehicles for u in named):
            raise ValueError(f"faults: vehicle {max(named)} is named; allowed: below {self.vehicles}")
        fleet_computers(self.vehicle.computer, self.vehicles)
        if self.field.shared and self.data.dirichlet is not None:
            raise ValueError("field.shared: all vehicles draw from one pool; allowed with it: no data.dirichlet")
        if self.world.time == "law" and (self.field.follows == "mission" or self.sensing.model == "footprint"):
            raise ValueError(
                'world.time = "law" has no mission time; allowed: field.follows = "rounds" and sensing.model = "eq6"'
            )
        for row in self.rows:
            if row.own and row.use in KNOWN:  # others would have to be imported
                self.settings_of(row)
        return self

    def to_toml(self) -> str:
        """Write every setting; reading it back gives an equal config. Settings that are off are left out."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


Source = str | Path | Mapping[str, Any] | Config


def _fit(tables: Config | Settings, vehicles: int, where: str = "") -> None:
    """Raise if a table has numbers for another number of vehicles, or a rate that weights cannot hold."""
    alpha, delta, train = tables.server.alpha, tables.prune.delta, tables.train
    error = BadInputError if where else ValueError
    if isinstance(alpha, list) and (len(alpha) != vehicles or sum(alpha) <= 0):
        raise error(f"{where}server.alpha: allowed: one number for each of the {vehicles} vehicles, some above 0")
    if isinstance(delta, list) and len(delta) not in (2, vehicles):
        raise error(f"{where}prune.delta: allowed: [low, high] or one number for each of the {vehicles} vehicles")
    if max(train.eta, train.eta_local) > _LARGEST:
        raise error(f"{where}train.eta, train.eta_local: allowed: at most {_LARGEST:g}, as weights hold it")


def load_config(
    source: Source = DEFAULT, overrides: str | Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> Config:
    """Read a preset, a TOML file or a table, apply overrides "a.b=value" (TOML values), and check everything.

    values: further settings by key, "a.b" or nested tables, as Python values.
    """
    tree = _tree(source)
    for override in [overrides] if isinstance(overrides, str) else overrides:
        apply_override(tree, override)
    for key, value in (values or {}).items():
        nested: Any = deepcopy(value)  # files are resolved in place
        for part in reversed(key.split(".")):
            nested = {part: nested}
        tree = merged(tree, nested)
    resolve_files(tree, Path.cwd())
    return config_from_tree(tree)


def config_from_tree(tree: dict[str, Any]) -> Config:
    """Check a tree of plain values; raises BadInputError naming the first offending key."""
    for (table, old), new in _RENAMED.items():
        inner = tree.get(table)
        if isinstance(inner, dict) and old in inner:
            tree = {**tree, table: {**inner, new: inner[old]}}
            del tree[table][old]
    tree = translate_costs(tree)
    try:
        return Config.model_validate_json(
            json.dumps(tree, default=str, ensure_ascii=False).encode("utf-8"), strict=True
        )
    except ValidationError as error:
        raise BadInputError(" ".join(_one_line(error, tree, Config).splitlines())) from None
    except UnicodeEncodeError as error:
        culprit = next((key for key, value in leaves(tree) if re.search(r"[\ud800-\udfff]", str(value))), "config")
        raise BadInputError(f"{culprit}: not UTF-8 ({error.reason})") from None
    except RecursionError:
        raise BadInputError(f"{next(iter(tree))}: nested too deeply") from None


def changed(configs: Sequence[Config]) -> dict[str, list[Any]]:
    """Keys whose values differ, with every config's value."""
    each_leaves = [dict(leaves(config.model_dump(mode="json"))) for config in configs]
    keys = dict.fromkeys(key for each in each_leaves for key in each)
    values_of = {key: [each.get(key) for each in each_leaves] for key in keys}
    return {key: values for key, values in values_of.items() if any(value != values[0] for value in values)}


def differences(a: Config, b: Config) -> list[str]:
    """Keys whose values differ, as "a.b: 1 -> 2"."""
    return [f"{key}: {left} -> {right}" for key, (left, right) in changed([a, b]).items()]


def _tree(source: Source) -> dict[str, Any]:
    if isinstance(source, Config):
        return source.model_dump(mode="json", exclude_none=True)
    if isinstance(source, Mapping):
        return deepcopy(dict(source))
    if not isinstance(source, str | Path):
        raise BadInputError(f"a config of type {type(source).__name__}; allowed: a preset, a file, a table, a Config")
    return read_source(source)


def _one_line(error: ValidationError, tree: dict[str, Any], model: type[BaseModel]) -> str:
    """Say the first problem: key, value, what is allowed."""
    details = error.errors(include_url=False, include_context=True)
    first = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    path: list[str] = []
    about: FieldInfo | None = None
    for part in first["loc"]:
        if not isinstance(part, str) or (part not in model.model_fields and first["type"] != "extra_forbidden"):
            break
        path.append(part)
        about = model.model_fields.get(part)
        inner = about.annotation if about is not None else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        model, about = inner, None
    key = ".".join(path)
    if first["type"] == "value_error" and about is None:  # a check across settings, which names them itself
        return f"{key}.{what_is_wrong([first])}".lstrip(".")
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], model.model_fields, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        table = f"in [{'.'.join(path[:-1])}]" if path[:-1] else "at the top level"
        return f"{key} is not a setting; {hint}allowed {table}: {', '.join(model.model_fields)}"
    value: Any = tree
    for part in path:
        value = value.get(part) if isinstance(value, dict) else value
    related = [d for d in details if list(d["loc"][: len(path)]) == path]
    meaning = f" ({about.description})" if about is not None and about.description else ""
    shown = json.dumps(value, default=str)
    return f"{key} = {shown if len(shown) < 60 else shown[:57] + '...'}: {what_is_wrong(related)}{meaning}"


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all settings of a tree as "table.key" and value."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
