"""The pages on clusters, comparisons, choices and papers: what they show is run, shrunk, and figures have sources."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from in_process import Popen, Said, program, skyfed
from skyfed.runs.seeds import parse_seeds
from skyfed.runs.sweep_file import read_sweep
from skyfed.runs.tables import read_parquet
from test_commands import blocks, commands, settings_of
from test_docs import slug
from waiting import LONG, wait_until

ROOT = Path(__file__).parents[1]
JOB = ROOT / "examples" / "sweep.sbatch"
SMOKE = ["data.name=synthetic", "model.name=cnn", "sensing.initial=60", "sensing.initial_test=20"]
TINY = ["rounds=3", "vehicles=2", "workers=1", "eval_every=1", "flight.method=greedy", "model.width=4"]


def shrunk(text: str) -> str:
    """Return a sweep's file that takes seconds."""
    text = re.sub(r"trials = \d+", "trials = 2", text.replace('base = "quick"', 'base = "smoke"'))
    first = ", ".join(f"'{setting}'" for setting in TINY)
    return re.sub(r'seeds = "(\d+)-\d+"', lambda found: f'seeds = "{found[1]}-{int(found[1]) + 1}"', text).replace(
        "set = [", f"set = [{first}, ", 1
    )


def own_files(page: str, place: Path) -> None:
    """Write the blocks that begin with a file's name."""
    for language in ("python", "toml"):
        for block in blocks(ROOT / "docs" / page, language):
            if named := re.match(r"# ([\w-]+\.(?:py|toml))\n", block):
                (place / named[1]).write_text(shrunk(block) if "set = [" in block else block)


def shown(page: str) -> list[list[str]]:
    """Return the commands of a page that run as they are, without what a shell does with their output."""
    found = [words[: words.index(">")] if ">" in words else words for words in commands(ROOT / "docs" / page)]
    return [words for words in found if len(words) > 1 and words[0] != "data" and "reproduce/" not in words[1]]


def run_shrunk(place: Path, words: list[str]) -> Said:
    """Run a command of a page with two seeds of a tiny config."""
    words = ["smoke" if word == "quick" else re.sub(r"^0-\d+$", "0-1", word) for word in words]
    if words[0] == "run" and "config.toml" not in words[1]:
        settings = [*TINY, *(SMOKE if words[1].endswith(".toml") else ())]
        words += [word for setting in settings for word in ("--set", setting)]
    done = skyfed(place, *words, *(["--plain"] if words[0] in ("run", "sweep") else []))
    assert done.returncode == 0, (words, done.stderr)
    return done


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where sweeps run in this process."""
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.Popen", Popen)
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.usable_cores", lambda: 1)
    return tmp_path


def test_a_method_is_compared_as_shown(place: Path) -> None:
    own_files("compare.md", place)
    said = [(words, run_shrunk(place, words).stdout) for words in shown("compare.md")]
    assert [words[0] for words, _ in said] == ["run", "table", "sweep", "run", "table", "table"]
    for words, table in said:
        if words[0] == "table" and "--latex" not in words:
            assert "AFL-Quant" in table
            assert "Mine" in table
            assert re.search(r"better|worse|no difference|not inferior", " ".join(table.split()))
    assert "\\toprule" in said[-1][1]
    assert (place / "runs" / "tune-mine" / "best.toml").exists()
    rates = {read_parquet(path)[0]["eta"] for path in (place / "runs/tuned").rglob("rounds.parquet")}
    assert rates == {0.12, 0.1, 0.08, 0.11}  # every row has its own


def test_tuning_and_reporting_use_other_seeds() -> None:
    tuned = parse_seeds(tomllib.loads(blocks(ROOT / "docs/compare.md", "toml")[0])["seeds"])
    reported = [words[words.index("--seeds") + 1] for words in shown("compare.md") if "--seeds" in words]
    assert len(reported) == 2
    assert not set(tuned) & {seed for seeds in reported for seed in parse_seeds(seeds)}


def test_a_run_becomes_what_a_paper_needs(place: Path) -> None:
    said = {" ".join(words[:2]): run_shrunk(place, words).stdout for words in shown("paper-ready.md")}
    assert "done" in said["runs runs/paper"]
    assert (place / "my-model" / "model.safetensors").exists()
    first, again = (
        [row["model_digest"] for row in read_parquet(place / "runs" / run / "2ceoafl" / "rounds.parquet")]
        for run in ("paper/seed-0", "again")
    )
    assert first == again
    (block,) = blocks(ROOT / "docs/paper-ready.md", "python")
    (place / "restyle.py").write_text(block)
    program(place, place / "restyle.py", draws=True)
    assert (place / "accuracy.pdf").read_bytes().startswith(b"%PDF")
    manifest = (place / "runs/paper/seed-0/manifest.json").read_text()
    table = (ROOT / "docs/paper-ready.md").read_text().partition("| key |")[2].partition("\n\n")[0]
    for key in re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:])):
        assert f'"{key}"' in manifest, key


def test_the_choice_is_tried_as_shown(place: Path) -> None:
    run, table = (words for words in shown("choose.md") if words[0] in ("run", "table"))
    assert settings_of(run) == ['algorithms=["afl", "afl-quant", "2ceoafl"]']
    run_shrunk(place, run)
    assert "2CEOAFL" in run_shrunk(place, table).stdout
    for name in ("channels", "attacks"):
        assert f"skyfed sweep reproduce/{name}.toml" in (ROOT / "docs/choose.md").read_text()
        assert read_sweep(ROOT / "reproduce" / f"{name}.toml")


def test_every_figure_of_the_choice_stands_on_the_page_it_names() -> None:
    text = (ROOT / "docs/choose.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|") and "](" in line]
    assert len(rows) == 11
    for row in rows:
        cells = row.strip("|").split(" | ")
        found = re.search(r"\(([\w/]+\.md)#([\w-]+)\)", cells[-1])
        assert found, row
        section = part(ROOT / "docs" / found[1], found[2])
        for number in re.findall(r"\d[\d,]*(?:\.\d+)?(?: ± \d+(?:\.\d+)?)?", re.sub(r"2CEOAFL|47 %", "", cells[-2])):
            assert number in section, (number, found[0])
    for number in ("54.1 ± 1.2", "+0.5 ± 1.2"):
        assert number in text
        assert number in (ROOT / "docs/reproduction.md").read_text()


def part(page: Path, anchor: str) -> str:
    """Return the section of a page that an anchor names; for the one on pairs, what stands before and after it too."""
    sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    named = {slug(section.splitlines()[0]): section for section in sections[1:]}
    return page.read_text() if anchor == "who-is-ahead-of-whom" else named[anchor]


# Slurm

OPTIONS = {  # of sbatch that the job uses, with what they may be
    "job-name": r"[\w-]+", "array": r"\d+(-\d+)?(%\d+)?", "nodes": r"\d+", "ntasks": r"\d+", "cpus-per-task": r"\d+",
    "mem": r"\d+[KMGT]", "time": r"(\d+-)?\d\d:\d\d:\d\d", "signal": r"B:TERM@\d+", "output": r"[\w%./-]+",
}  # fmt: skip


def test_the_job_has_options_that_slurm_knows_before_its_first_command() -> None:
    lines = JOB.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    first = next(k for k, line in enumerate(lines) if line and not line.startswith("#"))
    named = [k for k, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert max(named) < first  # Slurm reads no further
    for k in named:
        found = re.fullmatch(r"#SBATCH --([\w-]+)=(\S+)", lines[k])
        assert found, lines[k]
        assert re.fullmatch(OPTIONS[found[1]], found[2]), lines[k]


def test_the_page_shows_the_job_as_it_is() -> None:
    assert blocks(ROOT / "docs/cluster.md", "bash") == [JOB.read_text()]
    assert "exit code 143" in (ROOT / "docs/cluster.md").read_text()


def on_a_node(place: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Start a script as Slurm starts it: with bash, in the folder of the submission, with skyfed in PATH."""
    program = place / "bin" / "skyfed"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m skyfed "$@"\n')
    program.chmod(0o755)
    known = {
        **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PATH": f"{program.parent}:{os.environ['PATH']}", **environment,
    }  # fmt: skip
    return subprocess.Popen(
        ["bash", *words], cwd=place, env=known, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_the_job_stops_before_its_limit_and_goes_on_when_it_is_submitted_again(tmp_path: Path) -> None:
    own_files("cluster.md", tmp_path)
    path = tmp_path / "my-sweep.toml"
    (first, _, _, _) = read_sweep(path)
    path.write_text(path.read_text().replace("'rounds=3'", "'rounds=3', 'model.name=run_cases:Gated'"))
    path.write_text(path.read_text().replace("[0.3, 0.6]", "[0.3]").replace("0-1", "0"))
    hold, run = tmp_path / "hold", tmp_path / "runs" / "my-sweep" / first.place
    hold.touch()
    table = run / "2ceoafl" / "rounds.jsonl"
    gate = {"SKYFED_TEST_HOLD": str(hold), "SKYFED_TEST_ROWS": "1", "SKYFED_TEST_TABLE": str(table)}
    job = on_a_node(tmp_path, str(JOB), **gate)
    assert wait_until(lambda: Path(f"{hold}.waits").exists() or job.poll() is not None)
    job.send_signal(signal.SIGTERM)
    log = tmp_path / "runs" / "my-sweep" / "logs" / f"{first.variant} seed-0.log"
    assert wait_until(lambda: "stopping after this round" in log.read_text() or job.poll() is not None)
    hold.unlink()
    out, err = job.communicate(timeout=LONG)
    assert job.returncode == 143, out + err
    assert len(table.read_text().splitlines()) == 2  # the round that it was in is kept
    again = on_a_node(tmp_path, str(JOB), "my-sweep.toml")
    out, err = again.communicate(timeout=LONG)
    assert again.returncode == 0, err
    assert len(read_parquet(tmp_path / "runs/my-sweep/sweep.parquet")) == 1


def test_the_parts_of_an_array_are_named_as_shown(place: Path) -> None:
    own_files("cluster.md", place)
    (words,) = (words for words in shown("cluster.md") if "--part" in words)
    for task in ("1", "2"):
        named = [word.replace("$SLURM_ARRAY_TASK_ID", task).replace("$SLURM_ARRAY_TASK_COUNT", "2") for word in words]
        said = run_shrunk(place, named).stdout
    assert "written to runs/my-sweep" in said
    assert len(read_parquet(place / "runs/my-sweep/sweep.parquet")) == 4
