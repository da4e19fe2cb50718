"""The tables of the reproduction, from a sweep of tiny runs with known numbers."""

from pathlib import Path

import numpy as np
import pytest

from learning_cases import fleet_plan
from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.report.reproduction import MAIN, PAPER, collect, fill, tables
from skyfed.report.reproduction.collect import _flights
from skyfed.report.reproduction.reading import read_machines
from skyfed.runs.folder import RunFolder
from skyfed.runs.recorder import ROUNDS, UPLINK
from skyfed.runs.store import Table, read_parquet, write_parquet
from skyfed.runs.sweep import read_sweep

ROOT = Path(__file__).parents[1]


def made(
    place: Path, variant: str, seed: int, accuracies: dict[str, list[float]], *overrides: str, cpu: float = 2.0
) -> None:
    """Write what the tables need of one run: accuracies by round, and ten uploads of known size and CPU seconds."""
    names = "[" + ",".join(f'"{name}"' for name in accuracies) + "]"
    config = load_config("paper", [f"algorithms={names}", f"seed={seed}", *overrides])
    with RunFolder.claim(place / variant / f"seed-{seed}", config, []) as folder:
        for name, course in accuracies.items():
            where = folder.subfolder(name)
            rows = [
                dict.fromkeys(ROUNDS, 0)
                | {"round": t, "accuracy": x, "accuracy_full": x - 0.01, "train_size": 10 * t, "test_size": 2500}
                | {"accuracy_class": None, "seconds": 360}
                for t, x in enumerate(course)
            ]
            Table(where, "rounds").append(rows)
            sent = [
                dict.fromkeys(UPLINK, 0)
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
            Table(where, "uplink").append(sent if name != "sgd" else [])
            Table(where, "uplink").finish(UPLINK)
            (where / "model.safetensors").touch()
            Table(where, "rounds").finish(ROUNDS)


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


def test_accuracies_beside_the_paper_s(results):
    table = tables(results)["accuracies"]
    assert cells(table, "SGD") == ["SGD", "51.5", "51.0 ± 1.0", "40.5 ± 0.5", "50.0 ± 1.0", "-0.5", "yes", "3", "2"]
    assert cells(table, "AFL")[2:7] == ["48.0 ± 1.0", "34.5 ± 0.2", "47.0 ± 1.0", "-0.7", "yes"]


def test_factors_are_compared_at_the_same_round(results):
    found = cells(tables(results)["factors"], "norm global")
    assert found == ["norm global", "AFL", "2", "10.0", "30.0", "-20.0"]


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
    assert cells(tables(tmp_path / "out")["steadiness"], "AFL") == ["AFL", "2.5", "2.5"]
    assert "AFL 2.5 and 2.5." in line(tmp_path / "out", "Are fluctuations")


def test_hours_are_of_all_rounds(results):
    (*_, found) = tables(results)["machines"].splitlines()
    assert found.endswith("| 2.2 |")  # 22 rounds of a tenth of an hour


def test_visits_at_the_peak():
    """A vehicle that is over a class whenever its psi is largest."""
    plan = fleet_plan(1, 4, 4)
    object.__setattr__(plan, "psi", np.eye(4)[None] * 0.7 + 0.1)
    found = _flights(plan)
    assert (found["visits"], found["peak"], found["rank"]) == (4.0, 1.0, 1)


def line(results: Path, start: str) -> str:
    (found,) = [one for one in tables(results)["answers"].splitlines() if one.startswith(f"- **{start}")]
    return found


def test_questions_are_answered_from_the_results(results):
    assert "`paper`: SGD, AFL." in line(results, "Which accuracies")
    assert "SGD over AFL +15.5 ± 0.5 points, more than the spread" in line(results, "Does the order")  # rounds 0 and 1
    assert line(results, "What does each").endswith("Not measured yet.")
    assert line(results, "What does 2CEOAFL save").endswith("Not measured yet.")
    assert line(results, "Does the pruning error").endswith("Not measured yet.")


def test_one_seed_is_no_spread(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.5], "afl-prune": [0.48], "afl-quant": [0.5], "2ceoafl": [0.4]})
    collect(tmp_path / "runs", tmp_path / "out")
    assert "pruning -2.0 points (one seed) (paper -0.3); quantising +0.0" in line(tmp_path / "out", "What does each")
    assert "measured bytes of an upload are 0.0 % above" in line(tmp_path / "out", "What does 2CEOAFL save")
    assert line(tmp_path / "out", "Is AFL-Quant the lightest").count("2.60 MB") == 4


def test_two_seeds_that_agree_by_chance_prove_nothing(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.50], "afl-prune": [0.49]})
    made(tmp_path / "runs", MAIN, 1, {"afl": [0.50], "afl-prune": [0.48]})
    collect(tmp_path / "runs", tmp_path / "out")
    assert "pruning -1.5 ± 0.7 points, within the spread" in line(tmp_path / "out", "What does each")


def test_readings_within_a_point_are_named(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"sgd": [0.5, 0.55], "afl": [0.4, 0.49]})
    made(tmp_path / "runs", "genie 25 steps", 0, {"sgd": [0.4, 0.52]})
    made(tmp_path / "runs", "short", 0, {"sgd": [0.515]})  # fewer rounds say nothing of the end
    made(tmp_path / "runs", "planner hover", 0, {"afl": [0.4, 0.48]})
    collect(tmp_path / "runs", tmp_path / "out")
    found = line(tmp_path / "out", "Which accuracies")
    assert "`paper`: AFL. Not: SGD (+3.5 points), see below." in found
    assert found.endswith("another reading: SGD with `genie 25 steps` 52.0 %.")


def test_differences_have_a_hypothesis_and_its_test(tmp_path):
    """One is 1.2 points away on all pictures, the other 2.5, where a test on 2,500 is off by one."""
    made(tmp_path / "runs", MAIN, 0, {"sgd": [0.5, 0.55], "afl": [0.4, 0.509], "afl-prune": [0.4, 0.48]})
    made(tmp_path / "runs", "genie kappa", 0, {"sgd": [0.4, 0.46]})
    collect(tmp_path / "runs", tmp_path / "out")
    found = tables(tmp_path / "out")["differences"].splitlines()[2:]
    assert [row.split(" | ")[-1] for row in found] == [
        "+2.5 points, 2.5 standard errors: more than chance |",
        "+1.2 points, 1.2 standard errors: may be chance |",
        "Not measured yet. |",
    ]
    assert "one test on 2,500 is off by 1.0 points" in found[0]
    made(tmp_path / "runs", "genie 10 steps", 0, {"sgd": [0.4, 0.51]})
    made(tmp_path / "runs", "genie 25 steps", 0, {"sgd": [0.4, 0.52]})
    collect(tmp_path / "runs", tmp_path / "out")
    assert (
        tables(tmp_path / "out")["differences"]
        .splitlines()[-1]
        .endswith(
            "5 give 46.0 %, 10 give 51.0 %, 25 give 52.0 %, 50 give 55.0 %: the paper's 51.5 % is between 10 and 25 |"
        )
    )


def test_seconds_are_compared_within_a_seed(tmp_path):
    """Seeds run by engines of different speed, and one without AFL, do not change what 2CEOAFL saves."""
    for seed, base in enumerate((1.0, 10.0)):
        made(tmp_path / "runs", MAIN, seed, {"afl": [0.5]}, cpu=base)
        made(tmp_path / "more", MAIN, seed, {"2ceoafl": [0.4]}, cpu=1.25 * base)
    made(tmp_path / "more", MAIN, 2, {"2ceoafl": [0.4]}, cpu=99.0)
    made(tmp_path / "runs", "channels cut out", 0, {"afl": [0.5]}, cpu=4.0)  # another engine than the main seed 0
    made(tmp_path / "more", "channels cut out", 0, {"2ceoafl": [0.4]}, cpu=3.0)
    for place, name in (("runs", "one"), ("more", "two")):
        collect(tmp_path / place, tmp_path / name)
    both = [row for name in ("one", "two") for row in read_parquet(tmp_path / name / "uplink.parquet")]
    write_parquet(tmp_path / "two/uplink.parquet", both)
    found = line(tmp_path / "two", "What does 2CEOAFL save")
    assert "CPU seconds of a vehicle-round 25.0 ± 0.0 % above" in found
    assert "(`channels cut out`) bytes are 0.0 % above, CPU seconds 25.0 % below" in found
    assert cells(tables(tmp_path / "two")["uploads"], "AFL")[5] == "5.50"


def test_what_is_left_of_the_pruning_error(results):
    values = {"pruning": (1.0, 0.5), "dissimilarity": (2.0, 0.02)}
    rows = [
        {"variant": "theory", "seed": 0, "algorithm": "2ceoafl", "rate": rate, "term": term, "value": pair[k]}
        for term, pair in values.items()
        for k, rate in enumerate((1e-3, 1e-5))
    ]
    write_parquet(results / "rates.parquet", rows)
    said = (
        "No: with rates 100 times smaller the bound's pruning term goes to 0.5 of what it was, dissimilarity to 0.01."
    )
    assert said in line(results, "Does the pruning error")


def test_planners_are_compared_on_all_pictures(tmp_path):
    for seed, end in enumerate((0.50, 0.52, 0.54)):
        made(tmp_path / "runs", MAIN, seed, {"afl": [end]})
    made(tmp_path / "runs", "planner hover", 0, {"afl": [0.45]}, 'flight.method="hover"')
    made(tmp_path / "runs", "planner exact", 0, {"afl": [0.53]}, 'flight.method="exact"')
    collect(tmp_path / "runs", tmp_path / "out")
    found = line(tmp_path / "out", "Does planning help")
    assert "are 2.8 points apart. More than twice that: exact plans over hovering +8.0 points." in found
    assert found.endswith("Not: exact plans over Algorithm 1 +3.0 points.")  # random was not run


def test_what_was_known_before_stands_beside_what_came_out(results):
    rows = tables(results)["claims"].splitlines()[2:]
    assert [row.split("|")[2].strip() for row in rows][1:3] == ["Not measured yet."] * 2
    assert "Not measured" not in rows[0]


def test_only_seeds_that_are_as_far_count(tmp_path):
    made(tmp_path / "runs", MAIN, 0, {"afl": [0.2, 0.4]})
    made(tmp_path / "runs", MAIN, 1, {"afl": [0.2]})
    collect(tmp_path / "runs", tmp_path / "out")
    assert cells(tables(tmp_path / "out")["accuracies"], "AFL")[2] == "40.0"


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


def test_a_page_keeps_its_words_and_gets_its_tables():
    page = "a\n<!-- table accuracies -->\n\nold\n\n<!-- end of table -->\nb\n"
    assert fill(page, {"accuracies": "new"}) == page.replace("old", "new")
    assert fill(page, {"others": "new"}) == page


def test_nothing_to_collect_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="no runs"):
        collect(tmp_path / "empty", tmp_path / "out")


def test_the_grid_can_be_run():
    jobs = read_sweep(ROOT / "reproduce/grid.toml")
    main = [job for job in jobs if job.variant == MAIN]
    assert [job.seed for job in main] == [0, 1, 2]
    assert all(set(job.config.algorithms) == set(PAPER) and job.config.rounds == 100 for job in main)
    assert {job.config.flight.method for job in jobs} == {"sca", "random", "hover", "greedy", "exact"}
