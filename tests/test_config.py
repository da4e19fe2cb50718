"""The config tree: presets, overrides, round trips, and errors in one line that name the key."""

import copy
import json
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import wording
from skyfed.config import Config, config_from_tree, differences, load_config
from skyfed.errors import BadInputError
from skyfed.pipeline import load_data
from skyfed.presets import DEFAULT, describe
from skyfed.world.mission import prepare_mission

BASE = ["vehicles=3", "rounds=12", "field.classes=4", "field.region=[600.0,600.0]"]  # what the presets say may change

FILE_NAMES = st.text().filter(lambda name: "\0" not in name)


def load(*overrides: str) -> Config:
    return load_config("smoke", [*BASE, *overrides])


def read_back(config: Config) -> Config:
    return config_from_tree(tomllib.loads(config.to_toml()))


def refusal(*overrides: str, source: str = "") -> str:
    with pytest.raises(BadInputError) as caught:
        load_config(source, overrides) if source else load(*overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


# presets


def test_the_presets_are_listed_default_first_each_with_a_line():
    known = describe()
    assert next(iter(known)) == DEFAULT
    assert {"quick", "paper", "smoke"} <= set(known)
    assert all(known.values())


@pytest.mark.parametrize("name", describe())
def test_every_preset_loads_and_reads_back_equal(name):
    config = load_config(name)
    assert read_back(config) == config


def test_no_source_means_the_default_preset():
    assert load_config() == load_config(DEFAULT)


def test_the_paper_preset_is_what_the_paper_prints():
    paper = load_config("paper")
    assert (paper.vehicles, paper.rounds, paper.field.classes) == (10, 100, 10)
    assert (paper.flight.method, paper.flight.windows, paper.flight.vmax) == ("sca", "paper", "unlimited")
    assert (paper.sensing.initial, paper.sensing.decay_length) == (512, 1.0)
    assert (paper.sensing.model, paper.world.time, paper.field.follows) == ("eq6", "law", "rounds")


# the effective config is complete and reads back


@pytest.mark.parametrize(
    "overrides",
    [
        ["flight.vmax=150"],
        ["flight.vmax=unlimited", "vehicle.speed=12", "world.flight_time=20"],
        ["vehicle.computer=['phone','raspberry-pi-5','phone']"],
        ["vehicle.computer={name='own',watts=5,idle_watts=1,flops=1e9,memory=1000}"],
        ["field.origin=[52.5,13.4]"],
        ["flight.imax=[[1],[2],[3],[4]]"],
        ["flight.imax=[[[1],[2],[3],[4]]]"],
        ["field.weights=[1,2.5,3,4]"],
        ["field.projection=[[0.1,-2],[1e-300,3],[4,5],[6,7]]", 'field.bases=["sin:1","cos:1"]'],
        ["field.projection=0.5"],
        ['field.bases=["const:2"]'],
        ['field.file=["a b.csv","c\\"d.npz"]'],
        ["flight.sca.seconds=inf"],
        ["seed=9223372036854775807", "flight.epsilon=1e-300"],
    ],
)
def test_the_effective_config_reads_back_equal(overrides):
    config = load(*overrides)
    assert config != load()
    assert read_back(config) == config


lengths = st.floats(1e-6, 1e6)
trees = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**63 - 1), "vehicles": st.integers(1, 9), "rounds": st.integers(1, 99)},
    optional={
        "field": st.fixed_dictionaries(
            {"classes": st.just(2), "weights": st.lists(lengths, min_size=2, max_size=2)},
            optional={
                "origin": st.tuples(st.floats(-85, 85), st.floats(-180, 180)),
                "zeta": st.floats(1e-9, 1),
                "projection": st.lists(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=3), min_size=1, max_size=3),
                "file": FILE_NAMES | st.lists(FILE_NAMES, max_size=3),
            },
        ),
        "flight": st.fixed_dictionaries(
            {"dmin": st.floats(0, 1e6)},
            optional={
                "vmax": lengths | st.sampled_from(["speed", "unlimited"]),
                "imax": st.recursive(st.integers(0, 9), lambda inner: st.lists(inner, max_size=3), max_leaves=4),
                "sca": st.fixed_dictionaries({"precision": lengths}),
            },
        ),
        "sensor": st.fixed_dictionaries({"altitude": lengths, "fov": st.floats(1, 89)}),
    },
)


@given(trees)
@settings(deadline=None)
def test_whatever_config_is_valid_reads_back_equal(tree):
    try:
        config = config_from_tree(tree)
    except BadInputError:  # imax nested deeper than (vehicles, classes, windows), or uneven
        assert "imax" in tree["flight"]
        return
    assert read_back(config) == config


def test_the_effective_config_holds_every_setting_but_those_that_are_off():
    config = load("flight.vmax=9", "field.origin=[1,2]")

    def missing(model: BaseModel, tree: dict[str, object]) -> list[str]:
        found = []
        for name in type(model).model_fields:
            value = getattr(model, name)
            if isinstance(value, BaseModel):
                found += [f"{name}.{inner}" for inner in missing(value, tree[name])]
            elif name not in tree:
                assert value is None, name
                found.append(name)
        return found

    left_out = missing(config, tomllib.loads(config.to_toml()))
    assert "field.file" in left_out
    assert not {"flight.vmax", "field.origin", "flight.sca.iterations", "seed"} & set(left_out)


def test_a_config_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        load().seed = 1


def test_differences_name_the_keys_and_both_values():
    a, b = load(), load("seed=3", "flight.vmax=80", "field.bases=['sin']")
    assert differences(a, a) == []
    assert sorted(line.split(":")[0] for line in differences(a, b)) == ["field.bases", "flight.vmax", "seed"]
    assert "seed: 0 -> 3" in differences(a, b)
    assert "flight.vmax: speed -> 80.0" in differences(a, b)


# overrides


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seed=3", "seed", 3),
        ("seed = 3 ", "seed", 3),
        ("seed=1_000", "seed", 1000),
        ("seed=0x10", "seed", 16),
        ("flight.dmin=5", "flight.dmin", 5.0),
        ("flight.dmin=2.5", "flight.dmin", 2.5),
        ("flight.epsilon=1e-3", "flight.epsilon", 1e-3),
        ("flight.method=sca", "flight.method", "sca"),
        ('flight.method="sca"', "flight.method", "sca"),
        ("flight.method='sca'", "flight.method", "sca"),
        ("field.bases=['sin:3','const']", "field.bases", ["sin:3", "const"]),
        ("field.region=[500,600.5]", "field.region", (500.0, 600.5)),
        ("flight.imax=[[1],[2],[3],[4]]", "flight.imax", [[1], [2], [3], [4]]),
        ("flight.sca.iterations=3", "flight.sca.iterations", 3),
        ("flight.sca={iterations=3}", "flight.sca.iterations", 3),
        ("field.projection=-1.5", "field.projection", -1.5),
        ("field.projection=random", "field.projection", "random"),
        ("flight.vmax=120", "flight.vmax", 120.0),
        ("flight.vmax=speed", "flight.vmax", "speed"),
        ("world.wind=[3,-1]", "world.wind", (3.0, -1.0)),
        ("vehicle.computer=phone", "vehicle.computer", "phone"),
    ],
)
def test_an_override_of_each_kind_of_value(override, path, value):
    found: object = load(override)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_the_last_override_wins_and_the_rest_of_the_table_stays():
    config = load("field.zeta=0.5", "field.zeta=0.25")
    assert config.field.zeta == 0.25
    assert config.field.classes == load().field.classes


def test_one_override_sets_one_key():
    assert "seed" in refusal("seed=1\nvehicles=5")


# malformed

UNKNOWN = [
    ("sed=1", "sed", "seed"),
    ("vehicels=1", "vehicels", "vehicles"),
    ("vehicle.sped=1", "vehicle.sped", "speed"),
    ("world.dedline=1", "world.dedline", "deadline"),
    ("world.channel.bandwith=1", "world.channel.bandwith", "bandwidth"),
    ("fielt.zeta=1", "fielt", "field"),
    ("field.clases=3", "field.clases", "classes"),
    ("flight.vmx=3", "flight.vmx", "vmax"),
    ("flight.sca.iteration=3", "flight.sca.iteration", "iterations"),
    ("sensing.inital=3", "sensing.inital", "initial"),
    ("sensor.altitud=3", "sensor.altitud", "altitude"),
]

MALFORMED = [
    "seed=-1", "seed=1.0", "seed=1.5", "seed=true", "seed=nan", "seed=abc", "seed=", "seed=[1]", "seed={a=1}",
    "seed=9223372036854775808", "seed=1979-05-27", "seed=07:32:00", "vehicles=0", "vehicles=100001", "vehicles='3'",
    "rounds=0", "rounds=-5", "rounds=1e2", "workers=-1", "workers=2000",
    "field=3", "field=[]", "field.classes=0", "field.classes=10001", "field.region=5", "field.region=[1]",
    "field.region=[1,2,3]", "field.region=[1,-1]", "field.region=[1,inf]", "field.region=['a','b']",
    "field.radii=[60,30]", "field.radii=[0,30]", "field.radii=[30]", "field.zeta=0", "field.zeta=1.01",
    "field.zeta=nan", "field.weights=[1,2,3,-4]", "field.weights=equal", "field.weights=[1,2,3,nan]",
    "field.bases=[]", "field.bases=sin", "field.bases=[1]", "field.bases=['tan:1']", "field.bases=['sin:x']",
    "field.bases=['sin:1:2']", "field.bases=['nowhere.at.all:no curve']", "field.bases=['.relative:curve']",
    "field.projection=normal", "field.projection=nan", "field.projection=[1,2]", "field.projection=[['a']]",
    "field.file=3", "field.file=[1]", "field.file=true", "field.file=\"a\\u0000b\"",
    "field.estimate=em", "field.origin=[91,0]", "field.origin=[0,181]", "field.origin=[0]", "field.origin=[nan,0]",
    "field.origin=north", "sensor.altitude=0", "sensor.altitude=inf", "sensor.fov=90", "sensor.fov=0",
    "flight.method=magic", "flight.method=1", "flight.dmin=-1", "flight.dmin=true", "flight.dmin=inf",
    "flight.imax=-1", "flight.imax=1.5", "flight.imax=[[1.5]]", "flight.imax=many", "flight.imax=[[[[1]]]]",
    "flight.vmax=0", "flight.vmax=nan", "flight.vmax=none", "flight.vmax=inf", "flight.windows=daily",
    "flight.epsilon=0", "flight.epsilon=2", "flight.field=both", "flight.placement=edge", "flight.hold=-1",
    "flight.sca=1",
    "flight.sca.iterations=0", "flight.sca.precision=0", "flight.sca.start=here", "flight.sca.sides=2",
    "flight.sca.sides=65", "flight.sca.solver=cplex", "flight.sca.seconds=0", "sensing.initial=0",
    "sensing.initial=1.5", "sensing.initial=100000000", "sensing.decay_length=0", "sensing.decay_length=inf",
    "algorithms=afl", "algorithms=[]", "algorithms=[1]", "algorithms=[{label='x'}]", "flight.constraints=[{}]",
    "flight.constraints={use='x.py:Y'}", "flight.constraints=x.py:Y", "flight.constraints=[3]",
    "flight.constraints=['no path']", "data.name=3", "data.dirichlet=0", "model.width=0", "train.eta=nan",
    "train.central_steps=some", "prune.delta=1", "prune.delta=[]", "quantise.s=0", "quantise.scheme=x",
    "quantise.bucket=x", "server.alpha=x", "server.aggregate=x", "world.time=x", "vehicle.battery=-1",
    "world.deadline=0", "vehicle.computer=fast", "vehicle=1", "vehicle.reserve=1", "world.wind=3", "theory.every=-1",
    "faults.absent=1.0", "faults.absent=2", "faults.absent=[[1]]",
    "faults.spoil=[[0,0,'x']]", "fleet.poll=9", "fleet.tries=0", "track.to=['x']", "track.to=tensorboard", "device=3",
]  # fmt: skip


@pytest.mark.parametrize(("override", "key", "meant"), UNKNOWN)
def test_an_unknown_key_is_refused_with_a_suggestion(override, key, meant):
    assert refusal(override).startswith(f"{key} is not a setting; did you mean {meant}? allowed ")


def test_an_unknown_key_far_from_all_others_lists_what_is_allowed():
    message = refusal("flight.sca.xyzzy=1")
    assert message.startswith("flight.sca.xyzzy is not a setting")
    assert "did you mean" not in message
    assert "allowed in [flight.sca]: iterations, precision, start" in message


@pytest.mark.parametrize("override", MALFORMED)
def test_a_malformed_setting_is_refused_in_one_line_with_its_key(override):
    message = refusal(override)
    assert message.startswith((override.partition("=")[0] + " = ", override.partition("=")[0] + ": allowed"))
    assert len(message) < 400
    assert wording.plain(message), message


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{use='afl', prune={delta=2}}", "row 'afl': prune.delta = 2: must be 'bound' or below 1 or a list"),
        ("{use='afl', nope=2}", "row 'afl': nope is not a setting; allowed"),
        ("{use='2ceoafl', quantising=3}", "row '2ceoafl': quantising = 3: must be 'never', 'always' or 'drawn'"),
        ("{use='2ceoafl', train=3}", "row '2ceoafl': train = 3: must be a table"),
    ],
)
def test_a_row_with_wrong_settings_is_refused_in_plain_words(row, says):
    message = refusal(f"algorithms=[{row}]")
    assert message.startswith(f"algorithms, {says}"), message
    assert wording.plain(message), message


def test_faults_that_leave_nothing_to_learn_from_are_refused():
    assert refusal("faults.attackers=[0,1,2]") == "faults.attackers: all 3 vehicles attack; allowed: fewer"
    every = [[u, t] for u in range(3) for t in range(12)]
    assert refusal(f"faults.absent={every}").startswith("faults.absent: all vehicles miss all rounds; allowed: ")
    load_config("smoke", [*BASE, "faults.attackers=[0,1,1]", f"faults.absent={every[1:]}"])


@pytest.mark.parametrize("override", MALFORMED[::5])
def test_a_malformed_setting_is_refused_from_a_file_too(tmp_path, override):
    key, _, text = override.partition("=")
    table, _, name = key.rpartition(".")
    bare = text.isalpha() and text not in ("true", "nan", "inf")
    (tmp_path / "bad.toml").write_text(
        (f"[{table}]\n" if table else "") + f"{name} = {json.dumps(text) if bare else text}"
    )
    assert refusal(source=str(tmp_path / "bad.toml")).startswith(f"{key} = ")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("seed", "--set 'seed'"),
        ("=1", "--set '=1'"),
        ("field.=1", "--set 'field.=1'"),
        (".zeta=1", "--set '.zeta=1'"),
        ("seed=[", "--set 'seed=['"),
        ('seed="', "--set"),
        ("field.bases=['a'", "--set"),
        ("seed.x=1", "--set 'seed.x=1': 'seed' is a value"),
        ("field.region.x=1", "'region' is a value"),
        ("field.weights=[1,2]", "weights: 2 numbers for 4 classes"),
        ("a\nb=1", "is not a setting"),
        ("field.a\nb=1", "is not a setting"),
        ("field.file=a\udcffb", "field.file"),
        ("a" + ".a" * 3000 + "=1", "a"),
        ("seed=" + "[" * 3000 + "]" * 3000, "seed"),
        ("seed=" + "9" * 5000, "seed"),
    ],
    ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode(),
)
def test_a_malformed_override_is_refused_in_one_line(override, says):
    message = refusal(override)
    assert says in message
    assert len(message) < 10_000


@pytest.mark.parametrize(
    "override",
    [
        "flight.imax=[1,2]",
        "flight.imax=[[1,2],[3]]",
        "flight.imax=99999999999999999999999",
        "flight.vmax=1",
        "field.projection=[[1],[2,3]]",
        "field.projection=[[1]]",
        "field.projection=1e308",
        "field.file=nowhere.csv",
        "sensing.initial=1",
        "sensing.initial=99999999999999999999",
        "sensing.initial=1000000000000",
    ],
)
def test_a_value_that_only_the_mission_can_judge_is_refused_in_one_line_with_its_key(override):
    def prepare() -> None:
        config = load(override)
        prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)

    with pytest.raises(BadInputError) as caught:
        prepare()
    key = override.partition("=")[0]
    assert key in str(caught.value) or key.split(".")[1] + " = " in str(caught.value)
    assert "\n" not in str(caught.value)


# files


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"seed = ", "not valid TOML"),
        (b"seed == 1", "not valid TOML"),
        (b"seed = 1\nseed = 2", "not valid TOML"),
        (b"[field\nzeta = 1", "not valid TOML"),
        (b"\xff\xfe\x00", "not valid TOML"),
        (b"\x00", "not valid TOML"),
        (b"seed = " + b"[" * 3000 + b"]" * 3000, "bad.toml"),
        (b"seed = " + b"9" * 5000, "bad.toml"),
        (b'"a\\nb" = 1', "is not a setting"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_line_with_its_name(tmp_path, content, says):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    assert says in refusal(source=str(path))


@pytest.mark.parametrize("source", ["nowhere.toml", " ", "quik", "x" * 5000, "a\nb"])
def test_a_source_that_does_not_exist_is_refused(source):
    message = refusal(source=source)
    assert "preset" in message or "long" in message


def test_a_folder_is_not_a_config(tmp_path):
    assert "neither a preset nor a file" in refusal(source=str(tmp_path))


def test_an_empty_file_gives_the_defaults(tmp_path):
    (tmp_path / "empty.toml").touch()
    assert load_config(str(tmp_path / "empty.toml")) == Config()


def test_a_survey_is_looked_for_beside_the_config_that_names_it(tmp_path, monkeypatch):
    beside, elsewhere = tmp_path / "configs", tmp_path / "elsewhere"
    beside.mkdir()
    elsewhere.mkdir()
    (beside / "mine.toml").write_text('[field]\nfile = "data/a.csv"\n')
    (beside / "many.toml").write_text('[field]\nfile = ["a.csv", "../b.npz"]\n')
    monkeypatch.chdir(elsewhere)
    assert load_config("../configs/mine.toml").field.file == str(beside / "data/a.csv")
    assert load_config("../configs/many.toml").field.file == [str(beside / "a.csv"), str(tmp_path / "b.npz")]


def test_a_survey_named_on_the_command_line_is_looked_for_where_the_command_is_given(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('[field]\nfile = "a.csv"\n')
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert load_config("../mine.toml", ["field.file=b.csv"]).field.file == str(tmp_path / "here" / "b.csv")
    assert load('field.file=["b.csv"]').field.file == [str(tmp_path / "here" / "b.csv")]
    assert load("field.file=/data/b.csv").field.file == "/data/b.csv"


def test_the_written_config_finds_its_survey_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load("field.file=b.csv")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(config.to_toml())
    monkeypatch.chdir("/")
    assert load_config(str(tmp_path / "run" / "config.toml")) == config


# whatever comes in

names = st.sampled_from(
    ["seed", "vehicles", "rounds", "workers", "field", "sensor", "flight", "sensing", "sca", "zeta", "bases", "file",
     "projection", "weights", "region", "imax", "vmax", "origin", "classes", "method", "initial"]
) | st.text(max_size=5)  # fmt: skip
values = st.recursive(
    st.integers() | st.floats() | st.text(max_size=8) | st.booleans() | st.dates() | st.sampled_from(["sin:1", "..:"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def only_bad_input(source: str, overrides: list[str]) -> None:
    try:
        config = load_config(source, overrides)
    except BadInputError as error:
        message = str(error)
    else:
        message = json.dumps(config.model_dump(mode="json"))
    assert "\n" not in message


@given(st.dictionaries(names, values, max_size=5))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@example({"field": {"file": "a\x00b"}})
@example({"field": {"bases": [".:"]}})
@example({"\n": 1})
def test_a_file_of_any_tree_is_a_config_or_bad_input(tmp_path: Path, tree):
    (tmp_path / "any.toml").write_bytes(tomli_w.dumps(tree).encode("utf-8", "surrogatepass"))
    only_bad_input(str(tmp_path / "any.toml"), [])


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_a_file_of_any_bytes_is_a_config_or_bad_input(tmp_path: Path, data):
    (tmp_path / "any.toml").write_bytes(data)
    only_bad_input(str(tmp_path / "any.toml"), [])


@given(st.lists(st.text(max_size=20) | st.builds("{}.{}={}".format, names, names, values), max_size=3))
@settings(max_examples=200, deadline=None)
def test_any_overrides_are_a_config_or_bad_input(overrides):
    only_bad_input("smoke", overrides)


@given(st.text(max_size=30))
def test_any_source_is_a_config_or_bad_input(source):
    only_bad_input(source, [])


# rows: algorithms with labels and settings of their own


def refused(*overrides: str) -> str:
    """Return the one line with which settings are refused."""
    with pytest.raises(BadInputError) as caught:
        load(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


EDEN = '{use = "afl-quant", label = "EDEN", quantise = {scheme = "eden", s = 1}}'


def test_a_row_has_settings_of_its_own_over_those_that_all_share():
    config = load(f'algorithms=["afl", {EDEN}]', "quantise.s=7", "quantise.bucket=64")
    assert config.labels == ["afl", "EDEN"]
    assert [row.title for row in config.rows] == ["AFL", "EDEN"]
    first, second = (config.settings_of(row) for row in config.rows)
    assert (first.quantise.s, first.quantise.bucket) == (7, 64)
    assert (second.quantise.scheme, second.quantise.s, second.quantise.bucket) == ("eden", 1, 64)
    assert (first.quantising, second.quantising) == ("never", "always")  # what makes them AFL and AFL-Quant


def test_a_row_may_set_what_its_algorithm_alone_has():
    config = load('algorithms=[{use = "2ceoafl", label = "no tickets", pruning = false}]')
    (row,) = config.rows
    assert config.settings_of(row).pruning is False


def test_a_config_with_rows_is_written_and_read_again_as_it_is(tmp_path: Path):
    config = load(f'algorithms=["afl", {EDEN}]')
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert load_config(str(tmp_path / "config.toml")) == config


@pytest.mark.parametrize(
    "label", ["EDEN, 1 bit", "s=1", "(a)", "kappa 2.5", "Ünal", "x" * 63, "2", "a+b", "delta-0.5"]
)  # fmt: skip
def test_labels_may_be_words(label: str):
    config = load(f'algorithms=[{{use = "afl", label = "{label}"}}]')
    assert config.labels == [label]


@pytest.mark.parametrize(
    "label",
    ["/etc", "a/b", "..", ".hidden", " a", "a ", "a\\tb", "a:b", "x" * 64, "figures", "Figures", "plans", "fleet",
     "report.html", "config.toml", "manifest.json", "plan.npz", "a\\u0000b", "<b>", "-"],
)  # fmt: skip
def test_labels_that_cannot_name_a_folder_are_refused(label: str):
    message = refused(f'algorithms=[{{use = "afl", label = "{label}"}}]')
    assert message.startswith("algorithms = ")
    assert "cannot name a folder; allowed: letters, digits, spaces and . , + = ( ) -" in message


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ('["afl", "afl"]', "'afl' is there twice; allowed: a label of its own for each row"),
        ('["afl", {use = "afl", label = "AFL"}]', "'afl' is there twice"),
        ('[{use = "afl", label = "Mine"}, {use = "afl", label = "mine"}]', "'mine' is there twice"),
        ('["afl", "pkg.mod:afl"]', "'afl' is there twice"),
        ('[{label = "mine"}]', 'allowed: an id, or a table such as {use = "afl", label = "mine"}'),
        ("[{use = 3}]", "allowed: an id, or a table"),
        ('[{use = "afl", label = 3}]', "allowed: an id, or a table"),
        ('[{use = "fedprox"}]', "'fedprox' is not known; allowed: sgd, afl, afl-prune, afl-quant, 2ceoafl"),
        ('["no_such_file.py"]', "is not known; allowed"),
        ("[]", "at least 1"),
        ("[3]", "algorithms = [3]"),
    ],
)
def test_rows_that_are_none_are_refused_in_one_line(rows: str, expected: str):
    assert expected in refused(f"algorithms={rows}")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('quantise = {sheme = "eden"}', "quantise.sheme is not a setting; did you mean scheme? allowed in [quantise]"),
        ("kapa = 2", "kapa is not a setting; allowed at the top level: train, prune, quantise, server, theory"),
        ("vehicles = 2", "vehicles is not a setting"),
        ("train = {kappa = 0}", "train.kappa = 0: must be at least 1"),
        ("train = {eta = 1e39}", "train.eta, train.eta_local: allowed: at most 3e+38"),
        ("server = {alpha = [1.0]}", "server.alpha: allowed: one number for each of the 3 vehicles"),
        ("prune = {delta = [0.1, 0.2, 0.3, 0.4]}", "prune.delta: allowed: [low, high] or one number for each of the 3"),
        ('quantise = {scheme = "eden", s = 200}', "quantise"),
        ("pruning = 3", "pruning = 3"),
        ('quantising = "sometimes"', "quantising = "),
        ("train = 3", "train = 3"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_with_its_label(row: str, expected: str):
    message = refused(f'algorithms=["afl", {{use = "2ceoafl", label = "my row", {row}}}]')
    assert message.startswith("algorithms, row 'my row': ")
    assert expected in message


# algorithms of one's own


RECIPES = {
    "a row of 0.1": "from skyfed.algorithms import Recipe\nMINE = Recipe('Mine', prune=True)\n",
    "a Recipe from elsewhere": "class Recipe:\n    pass\nMINE = Recipe()\n",
}


@pytest.mark.parametrize("text", list(RECIPES.values()), ids=list(RECIPES))
@pytest.mark.parametrize("by", ["file", "module"])
def test_a_recipe_of_version_0_1_is_refused_with_what_to_write_instead(text, by, tmp_path, monkeypatch):
    name = f"rows_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    config = load(f'algorithms=["{tmp_path / f"{name}.py" if by == "file" else name}:MINE"]')
    (row,) = config.rows
    with pytest.raises(BadInputError) as caught:
        config.settings_of(row)
    message = str(caught.value)
    assert message.startswith("algorithms = ")
    assert "a Recipe, as in version 0.1; write a class made from skyfed.algorithms.base.Algorithm" in message
    assert "`raw_probability`" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MINE = 3", "allowed: a class made from skyfed.algorithms.base.Algorithm"),
        ("class MINE:\n    pass", "allowed: a class made from skyfed.algorithms.base.Algorithm"),
        ("OTHER = 3", "no 'MINE' there"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("def", "SyntaxError"),
    ],
)
def test_an_algorithm_of_ones_own_that_is_none_is_refused_in_one_line(text, expected, tmp_path):
    (tmp_path / "mine.py").write_text(text + "\n")
    config = load(f'algorithms=["{tmp_path}/mine.py:MINE"]')
    with pytest.raises(BadInputError) as caught:
        config.settings_of(config.rows[0])
    assert str(caught.value).startswith("algorithms = ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_algorithm_of_ones_own_is_tried_before_anything_is_planned(tmp_path: Path):
    """What is wrong with it shows when the data is loaded, and nothing is written by then."""
    (tmp_path / "mine.py").write_text("MINE = 3\n")
    with pytest.raises(BadInputError, match="allowed: a class made from"):
        load_data(load("field.classes=10", f'algorithms=["{tmp_path}/mine.py:MINE"]'), plain=True)


def test_settings_of_version_0_1_are_read_by_their_new_name():
    assert load_config("smoke", ["train.genie_steps=7"]).train.central_steps == 7
    with pytest.raises(BadInputError, match=r"train\.central_steps = 0"):
        load_config({"train": {"genie_steps": 0}})


def test_the_longest_leg_is_a_number_what_the_speed_allows_or_unlimited():
    assert load("flight.vmax=80").longest_leg == 80
    assert load("flight.vmax=speed", "vehicle.speed=12", "world.flight_time=20").longest_leg == 240
    assert load("flight.vmax=unlimited").longest_leg == float("inf")
    assert load().flight.vmax == "speed"


def test_a_world_without_mission_time_has_nothing_that_follows_it():
    says = 'world.time = "law" has no mission time; allowed: field.follows = "rounds" and sensing.model = "eq6"'
    assert refusal('world.time="law"', 'field.follows="mission"') == says
    assert refusal('world.time="law"', 'field.follows="rounds"', 'sensing.model="footprint"') == says
    assert load('world.time="law"', 'field.follows="rounds"', 'sensing.model="eq6"').world.time == "law"


def test_a_fleet_has_one_computer_for_all_or_one_for_each():
    message = refusal("vehicle.computer=['phone','phone']")
    assert "2 in the list; allowed: one for all, or one for each of 3" in message


def test_a_table_stays_as_it_was_given(tmp_path, monkeypatch):
    """Paths of files are resolved in a copy: the caller may use the table again from another folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("")
    table = {
        "field": {"file": ["a.csv"]},
        "algorithms": [{"use": "own.py:A"}, "own.py:B"],
        "data": {"name": "folder:x"},
    }
    before, more = copy.deepcopy(table), {"field": {"file": "b.csv"}, "track": {"dir": "logs"}}
    config = load_config(table)
    assert config.field.file == [str(tmp_path / "a.csv")]
    load_config({}, values=more)
    assert table == before
    assert more == {"field": {"file": "b.csv"}, "track": {"dir": "logs"}}


def test_a_path_is_a_file_even_where_a_preset_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke").write_text('rounds = 3\n[field]\nfile = "a.csv"\n')
    assert load_config("smoke").rounds == 20
    assert load_config("smoke").field.file is None
    own = load_config(Path("smoke"))
    assert (own.rounds, own.field.file) == (3, str(tmp_path / "a.csv"))
    assert load_config(Path("quick")) == load_config("quick")
