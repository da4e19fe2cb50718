"""The tables of the reproduction, from a sweep of tiny runs with known numbers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import studentized_range

from learning_cases import blank
from reproduce.__main__ import main
from reproduce.collect import MAIN, _flights, collect
from reproduce.page.fill import fill_pages, tables
from reproduce.results import PAPER, late, read_machines
from run_cases import fleet_plan
from skyfed.algorithms.twoceoafl import TwoCEOAFL
from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.runs.folder import RunFolder
from skyfed.runs.sweep_file import read_sweep
from skyfed.runs.tables import Table, read_parquet, write_parquet

ROOT = Path(__file__).parents[1]
OWN = (*TwoCEOAFL.columns, *TwoCEOAFL.station_columns)  # columns of uploads that its algorithm fills in


def made(
    place: Path,
    variant: str,
    seed: int,
    accuracies: dict[str, list[float | None]],
    *overrides: str,
    cpu: float = 2.0,
    sent: int = 26_000_000,
    down: int = 0,
) -> None:
    """Write what the tables need of one run: accuracies and bytes by round, ten uploads of known size and time."""
    names = "[" + ",".join(f'"{name}"' for name in accuracies) + "]"
    config = load_config("paper", [f"algorithms={names}", f"seed={seed}", *overrides])
    with RunFolder.claim(place / variant / f"seed-{seed}", config, []) as folder:
        for name, course in accuracies.items():
            where = folder.subfolder(name)
            rows = [
                blank("rounds")
                | {
                    "round": t,
                    "accuracy": x,
                    "accuracy_full": None if x is None else x - 0.01,
                    "train_size": 10 * t,
                    "test_size": 2500,
                    "wire_bytes": sent,
                    "downlink_bytes": down if t + 1 < len(course) else 0,
                }
                | {"accuracy_class": None, "seconds": 360}
                for t, x in enumerate(course)
            ]
            Table(where, "rounds").append(rows)
            uploads = [
                blank("uplink")
                | {"delta": 0.0, "kept_live": 0}
                | {
                    "quantised": k > 3,
                    "turned": False,
                    "wire_bytes": 1e6 if k > 3 else 5e6,
                    "paper_bits": 8e7,
                    "modelled_seconds": 5.0,
                    "measured_cpu_seconds": cpu,
                    "dropped": None,
                }
                for k in range(10)
            ]
            Table(where, "uplink", OWN).append(uploads if name != "sgd" else [])
            Table(where, "uplink", OWN).finish()
            (where / "model.safetensors").touch()
            Table(where, "rounds").finish()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    place = tmp_path / "runs"
    for seed, shift in enumerate((0.0, 0.01, 0.02)):
        made(place, MAIN, seed, {"sgd": [0.3, 0.5 + shift], "afl": [0.2, 0.3, 0.4, 0.47 + shift]})
    made(place, "norm global", 0, {"afl": [0.2, 0.1]}, "quantise.bucket=0")
    made(place, "planner greedy", 0, {"afl": [0.2, 0.5]}, 'flight.method="greedy"')
    collect(place, tmp_path / "results")
    return tmp_path / "results"


def cells(table: str, first: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_accuracies_by_four_measures(results):
    table = tables(results)["measures"]
    assert cells(table, "SGD") == ["SGD", "51.5", "51 ± 2", "51 ± 2", "50 ± 2", "50 ± 2"]
    assert cells(table, "AFL")[2] == "48 ± 2"
    assert cells(tables(results)["seeds"], "SGD") == ["SGD", "49.0", "50.0", "51.0"]


def test_factors_are_compared_at_the_same_round(results):
    made_tables = tables(results)
    assert cells(made_tables["factors"], "norm global") == ["norm global", "AFL", "2", "9.0", "29.0", "-20.0"]
    assert cells(made_tables["variants"], "norm global") == ["norm global", "`quantise.bucket = 0`"]


def test_uploads_are_averaged_over_raw_and_quantised_ones(results):
    found = cells(tables(results)["uploads"], "AFL")
    assert found[1:4] == ["10.0", "2.60", "0.26"]
    assert found[5] == "2.00"
    assert "SGD" not in tables(results)["uploads"]


def test_steadiness_is_of_the_second_half(results, tmp_path):
    rows = read_parquet(results / "rounds.parquet")
    assert len(rows) == 3 * 6 + 4
    assert tables(results)["steadiness"].count("\n") == 1  # two tests are too few to speak of
    made(tmp_path / "long", MAIN, 0, {"afl": [0.1, 0.9, 0.1, 0.50, 0.52, 0.49]})
    collect(tmp_path / "long", tmp_path / "out")
    assert cells(tables(tmp_path / "out")["steadiness"], "AFL") == ["AFL", "2.50", "2.5", "2.50"]


def test_a_rise_is_no_fluctuation(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.1, 0.1, 0.1, 0.1, 0.11, 0.12, 0.13, 0.14]})
    collect(tmp_path / "runs", tmp_path / "out")
    assert cells(tables(tmp_path / "out")["steadiness"], "AFL")[1:] == ["0", "0.0", "0"]


def test_fluctuations_where_nothing_and_where_plenty_is_sensed(tmp_path):
    """Five changes of 0.5, 1 and 3 points up and down, less their mean; SGD has another budget and is left out."""

    def shaken(much: float) -> list[float | None]:
        return [0.4 + much * (t % 2) for t in range(12)]

    made(tmp_path / "runs", MAIN, 0, {"afl": shaken(0.01), "sgd": shaken(0.01)})
    made(tmp_path / "runs", "nothing sensed", 0, {"afl": shaken(0.005), "sgd": shaken(0.09)})
    made(tmp_path / "runs", "planner sca, placed, 50 m", 0, {"afl": shaken(0.03)})
    collect(tmp_path / "runs", tmp_path / "out")
    table = tables(tmp_path / "out")["stillness"]
    assert cells(table, "AFL") == ["AFL", "0.48", "0.96", "2.88"]
    assert "SGD" not in table


def test_tests_that_are_rounds_apart_are_no_fluctuation(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.1, None, 0.2, None, 0.3, None, 0.4, None, 0.5]})
    collect(tmp_path / "runs", tmp_path / "out")
    assert "AFL" not in tables(tmp_path / "out")["steadiness"]


def test_hours_are_of_all_rounds(results):
    (*_, found) = tables(results)["machines"].splitlines()
    assert found.endswith("| 2.2 |")  # 22 rounds of a tenth of an hour


def test_visits_at_the_peak():
    """A vehicle that is over a class whenever its psi is largest."""
    plan = fleet_plan(1, 4, 4)
    object.__setattr__(plan, "psi", np.eye(4)[None] * 0.7 + 0.1)
    found = _flights(plan)
    assert (found["visits"], found["peak"], found["rank"]) == (4.0, 1.0, 1)


def test_visits_on_the_planned_rim_and_over_the_true_disc():
    """Two visits at 30 m of a centre whose radius is 40 m; of the true discs one is 20 m away and one 50."""
    plan = fleet_plan(1, 2, 2)
    change = {
        "association": np.array([[0, 1]]),
        "positions": np.array([[[30.0, 0.0], [130.0, 0.0]]]),
        "centres": np.array([[[0.0, 0.0], [100.0, 0.0]]]),
        "radii": np.full((1, 2), 40.0),
        "true_centres": np.array([[[10.0, 0.0], [80.0, 0.0]]]),
        "true_radii": np.full((1, 2), 40.0),
    }
    for name, value in change.items():
        object.__setattr__(plan, name, value)
    found = _flights(plan)
    assert (found["rim"], found["over"]) == (0.75, 0.5)


def test_one_seed_gives_no_verdict(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.5], "afl-prune": [0.48], "afl-quant": [0.5], "2ceoafl": [0.4]})
    collect(tmp_path / "runs", tmp_path / "out")
    for name in ("pairs", "against", "compared"):
        assert tables(tmp_path / "out")[name].count("\n") == 1  # a head without rows


def test_two_seeds_that_agree_by_chance_prove_nothing(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.50], "afl-prune": [0.49]})
    made(tmp_path / "runs", MAIN, 1, {"afl": [0.50], "afl-prune": [0.48]})
    collect(tmp_path / "runs", tmp_path / "out")
    row = cells(tables(tmp_path / "out")["against"], "AFL-Prune")
    assert row == ["AFL-Prune", "-0.3", "-1 ± 6", "0.205", "no difference shown"]  # t = 12.7


def test_all_pairs_are_judged_together(tmp_path):
    """1.4 points are more than chance for one t test (p = 0.027), but not as the largest of three comparisons.

    By hand: the means are 50, 48.6 and 50. Residuals of the additive model are 0 in one row and +-0.5 in two, so their
    sum of squares is 1 on four degrees of freedom, and q = 1.4 / sqrt(0.25 / 3).
    """
    for seed, shift in enumerate((-0.005, 0.0, 0.005)):
        ends = {"afl": [0.50], "2ceoafl": [0.486 + shift], "sgd": [0.50 - shift]}
        made(tmp_path / "runs", MAIN, seed, ends)
    collect(tmp_path / "runs", tmp_path / "out")
    rows = {row.split(" | ")[0].strip("| "): row for row in tables(tmp_path / "out")["pairs"].splitlines()[2:]}
    assert list(rows) == ["SGD over AFL", "AFL over 2CEOAFL"]
    assert rows["SGD over AFL"].endswith("| 1 | no difference shown |")
    p = float(studentized_range.sf(1.4 / (0.25 / 3) ** 0.5, 3, 4))
    assert p > 0.05
    assert rows["AFL over 2CEOAFL"].endswith(f"| {p:.3g} | no difference shown |")


def test_the_lead_of_sgd_at_every_budget(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"sgd": [0.55], "afl": [0.5]})
    made(tmp_path / "runs", "genie 10 steps", 0, {"sgd": [0.51]})
    collect(tmp_path / "runs", tmp_path / "out")
    table = tables(tmp_path / "out")["budgets"]
    assert cells(table, "10") == ["10", "50.0", "+1.0", "51.0", "1"]
    assert cells(table, "50")[2] == "+5.0"


def test_readings_are_of_whole_runs_and_of_what_they_can_change(tmp_path):
    ends = {name: [0.4, (end + 1.5) / 100] for name, end in PAPER.items()}  # on all pictures a point less
    made(tmp_path / "runs", MAIN, 0, ends)
    made(tmp_path / "runs", "decay 50 m", 0, {name: [0.5] for name in PAPER}, "sensing.decay_length=50.0")
    made(tmp_path / "runs", "norm buckets of 512", 0, {"afl-quant": [0.4, 0.6]}, "quantise.bucket=512")
    collect(tmp_path / "runs", tmp_path / "out")
    table = tables(tmp_path / "out")["readings"]
    assert "decay" not in table
    assert cells(table, "`paper`")[1:] == ["**49.2**", "**48.9**", "**48.7**", "**48.0**", "1"]
    assert cells(table, "`norm buckets of 512`")[1:] == ["same", "same", "59.0", "–", "1"]


def gathered(tmp_path: Path, *places: str) -> Path:
    """Collect several folders, one after another, and put their tables together."""
    for place in places:
        collect(tmp_path / place, tmp_path / place / "out")
    last = tmp_path / places[-1] / "out"
    for name in ("rounds", "uplink"):
        write_parquet(
            last / f"{name}.parquet",
            [row for place in places for row in read_parquet(tmp_path / place / f"out/{name}.parquet")],
        )
    return last


def test_costs_are_compared_within_a_seed(tmp_path):
    """Seeds run by engines of different speed do not change by how much 2CEOAFL takes longer."""
    for seed, base in enumerate((1.0, 10.0)):
        made(tmp_path / "runs", MAIN, seed, {"afl": [0.5]}, cpu=base)
        made(tmp_path / "more", MAIN, seed, {"2ceoafl": [0.4]}, cpu=1.25 * base)
    made(tmp_path / "more", MAIN, 2, {"2ceoafl": [0.4]}, cpu=99.0)
    found = tables(gathered(tmp_path, "runs", "more"))
    row = cells(found["compared"], "CPU time: 2CEOAFL / AFL")
    assert row == ["CPU time: 2CEOAFL / AFL", "1.25", "1.25", "1.25", "< 0.001", "worse"]
    assert cells(found["uploads"], "AFL")[5] == "5.50"


def test_what_is_sent_until_an_accuracy(tmp_path):
    """AFL reaches 47 % by the mean of five rounds in round 6; 2CEOAFL with a tenth of the bytes in round 12."""
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.1, *[0.49] * 11]}, sent=100_000_000)
    made(tmp_path / "more", MAIN, 0, {"2ceoafl": [*[0.1] * 7, *[0.49] * 5]}, sent=10_000_000)
    table = tables(gathered(tmp_path, "runs", "more"))["levels"]
    assert cells(table, "AFL") == ["AFL", "6.00", "600", "6.00", "600"]
    assert cells(table, "2CEOAFL") == ["2CEOAFL", "12.0", "120", "12.0", "120"]


def test_bytes_of_both_directions(tmp_path):
    """30 MB up in each of three rounds, 20 MB down in the first two: nothing goes down after the last."""
    made(tmp_path / "runs", "both ways", 0, {"afl": [0.1] * 3}, sent=30_000_000, down=20_000_000)
    made(tmp_path / "more", "both ways", 0, {"afl-quant": [0.1] * 3}, sent=5_000_000, down=20_000_000)
    found = tables(gathered(tmp_path, "runs", "more"))
    assert cells(found["both ways"], "AFL") == ["AFL", "30.0", "20.0", "50.0", "1"]
    assert cells(found["both ways"], "AFL-Quant") == ["AFL-Quant", "5.00", "20.0", "25.0", "2"]
    assert "both ways" not in found["factors"]


def test_what_is_left_of_errors_at_small_rates(results):
    rows = [
        {"variant": "theory", "seed": 0, "algorithm": "2ceoafl", "rate": rate, "term": term, "value": value}
        for term, values in {"pruning": (9.0, 1.0), "dissimilarity": (3.0, 0.2)}.items()
        for rate, value in zip((1e-3, 1e-4), values, strict=True)
    ]
    assert tables(results)["rates"] == tables(results)["floor"] == "Not measured yet."
    write_parquet(results / "rates.parquet", rows)
    write_parquet(results / "floor.parquet", [{"error": "pruning", "share": 0.05, "gradient2": 0.25}])
    assert cells(tables(results)["rates"], "0.0001") == ["0.0001", "1", "0.2"]
    assert cells(tables(results)["floor"], "0.05") == ["0.05", "0.25"]


def test_planners_stand_beside_what_their_flights_hit(tmp_path):
    for variant, end in ((MAIN, 0.5), ("planner exact", 0.53), ("planner exact, placed", 0.54), ("genie kappa", 0.5)):
        made(tmp_path / "runs", variant, 0, {"afl": [0.1, end]})
        (tmp_path / "runs" / variant / "seed-0/plan.npz").write_bytes(fleet_plan(1, 2, 2).to_bytes())
    collect(tmp_path / "runs", tmp_path / "out")
    found = tables(tmp_path / "out")
    assert [line.split(" | ")[0] for line in found["pictures"].splitlines()[2:]] == [
        "| exact", "| sca (as `paper`)", "| exact, placed",
    ]  # fmt: skip
    assert cells(found["pictures"], "exact") == ["exact", "10", "53.0", "52.0", "52.0"]
    assert cells(found["flights"], "exact")[4:] == ["0.20", "100"]


def test_late_means_are_of_every_fifth_round_in_the_last_quarter(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.1] * 79 + [0.3] + [0.2] * 19 + [0.5]})  # rounds 79, 84, 89, 94, 99
    collect(tmp_path / "runs", tmp_path / "out")
    rows = read_parquet(tmp_path / "out/rounds.parquet")
    assert late(rows, MAIN, "afl", "accuracy") == pytest.approx(100 * (0.3 + 3 * 0.2 + 0.5) / 5)
    assert late(rows, MAIN, "afl", "accuracy", at=80) == pytest.approx(100 * (3 * 0.1 + 0.3) / 4)  # 64, 69, 74, 79
    assert late(rows, "other", "afl", "accuracy") is None


def test_only_seeds_that_are_as_far_count(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.2, 0.4]})
    made(tmp_path / "runs", MAIN, 1, {"afl": [0.2]})
    collect(tmp_path / "runs", tmp_path / "out")
    assert cells(tables(tmp_path / "out")["measures"], "AFL")[2] == "40.0"


def test_what_was_gathered_before_stays_until_its_run_is_there_again(results, tmp_path):
    """Another machine trained one run anew and a new one; a third has nothing finished yet."""
    before = (results / "fig3-accuracy.png").read_bytes()
    made(tmp_path / "later", "planner greedy", 0, {"afl": [0.2, 0.52]}, 'flight.method="greedy"')
    made(tmp_path / "later", "planner hover", 0, {"afl": [0.3]}, 'flight.method="hover"')
    made(tmp_path / "later", "norm global", 0, {"afl": [0.9, 0.9]})
    (tmp_path / "later/norm global/seed-0/afl/model.safetensors").unlink()
    collect(tmp_path / "later", results)
    rows = read_parquet(results / "rounds.parquet")
    ends = {(row["variant"], row["seed"], row["algorithm"]): row["accuracy"] for row in rows}
    assert ends == {
        ("norm global", 0, "afl"): 0.1,
        **{(MAIN, seed, name): end + seed / 100 for seed in range(3) for name, end in (("sgd", 0.5), ("afl", 0.47))},
        ("planner greedy", 0, "afl"): 0.52,
        ("planner hover", 0, "afl"): 0.3,
    }
    assert len(rows) == 3 * 6 + 2 + 2 + 1
    assert list(read_machines(results)) == sorted({f"{variant} seed-{seed}" for variant, seed, _ in ends})
    assert (results / "fig3-accuracy.png").read_bytes() == before


def test_results_gathered_before_a_column_was_there_stay_without_it(results, tmp_path):
    old = [{"variant": "a first one", "seed": 0, "visits": 2.0}]  # its place is before all others
    write_parquet(results / "flights.parquet", old)
    made(tmp_path / "later", "planner hover", 0, {"afl": [0.3]}, 'flight.method="hover"')
    (tmp_path / "later/planner hover/seed-0/plan.npz").write_bytes(fleet_plan(1, 2, 2).to_bytes())
    collect(tmp_path / "later", results)
    assert [row["rim"] for row in read_parquet(results / "flights.parquet")] == [None, 0.2]  # 10 of 50 m


def test_pages_keep_their_words_and_get_their_tables(results, tmp_path):
    page = "a\n<!-- table seeds -->\n\nold\n\n<!-- end of table -->\nb\n"
    (tmp_path / "page.md").write_text(page)
    fill_pages(results, tmp_path)
    assert (tmp_path / "page.md").read_text() == page.replace("old", tables(results)["seeds"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["page", "none", "."], "none: no results of a reproduction"),
        (["page", "results", "results/machines.json"], "results/machines.json: no folder of pages"),
        (["collect", "none", "out"], "none: no runs of a sweep"),
    ],
)
def test_wrong_places_are_refused_with_one_line(results, monkeypatch, capsys, words, said):
    monkeypatch.chdir(results.parent)
    monkeypatch.setattr("sys.argv", ["reproduce", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"reproduce: {said}\n"


def test_runs_of_version_0_1_0_are_collected(tmp_path):
    shutil.copytree(ROOT / "tests/formats/0.1.0/done", tmp_path / "runs" / MAIN / "seed-0")
    collect(tmp_path / "runs", tmp_path / "out")
    found = {name: read_parquet(tmp_path / f"out/{name}.parquet") for name in ("rounds", "uplink", "flights")}
    assert [row["round"] for row in found["rounds"]] == list(range(6))
    assert {row["algorithm"] for row in found["rounds"]} == {"2ceoafl"}
    assert sum(row["uploads"] for row in found["uplink"]) == 12
    assert found["flights"][0]["visits"] > 0
    assert list(read_machines(tmp_path / "out")) == [f"{MAIN} seed-0"]


def test_nothing_to_collect_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="no runs"):
        collect(tmp_path / "empty", tmp_path / "out")


def test_the_grid_can_be_run():
    jobs = read_sweep(ROOT / "reproduce/grid.toml")
    main = [job for job in jobs if job.variant == MAIN]
    assert [job.seed for job in main] == [0, 1, 2]
    assert all(set(job.config.labels) == set(PAPER) and job.config.rounds == 100 for job in main)
    assert {job.config.flight.method for job in jobs} == {"sca", "random", "hover", "greedy", "exact"}
