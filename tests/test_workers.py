"""Worker processes: bytes in, bytes out, whatever happens to a process on the way."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from skyfed import workers as workers_module
from skyfed.errors import BadInputError, InfeasibleError, SkyfedError, StorageError
from skyfed.workers import Crew, WorkerDiedError, load_handler, usable_cores
from waiting import LONG, wait_until

HANDLERS = """
import os, sys, time
from pathlib import Path
from skyfed import errors

def reverse(job):
    return job[::-1]

def hold_first(job):
    index, gate = job.decode().split(" ", 1)
    while index == "0" and not Path(gate).exists():
        time.sleep(0.01)
    return index.encode()

def who(job):
    time.sleep(0.05)
    return str(os.getpid()).encode()

def chatty(job):
    print("a library prints to standard output", flush=True)
    os.write(1, b"and below Python too")
    return job

def die(job):
    with open(job.decode(), "a") as log:
        log.write("tried\\n")
    os._exit(7)

def die_once(job):
    marker = Path(job.decode())
    if not marker.exists():
        marker.touch()
        os._exit(7)
    return b"survived"

def die_by_signal_once(job):
    marker = Path(job.decode())
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), 9)
    return b"survived"

def starve_once(job):
    marker = Path(job.decode())
    if not marker.exists():
        marker.touch()
        raise MemoryError
    return b"survived"

def fail(job):
    kind, _, message = job.decode().partition(":")
    raise {**vars(errors), "ValueError": ValueError, "MemoryError": MemoryError}[kind](message)

def threads(job):
    return os.environ["OMP_NUM_THREADS"].encode()

def hang(job):
    if not job:
        return b""
    Path(job.decode()).write_text(str(os.getpid()))
    time.sleep(3600)
    return b""
"""


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "crew_handlers.py").write_text(HANDLERS)
    return folder


@pytest.fixture(autouse=True)
def importable(handlers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(handlers))
    monkeypatch.setenv("PYTHONPATH", str(handlers), prepend=os.pathsep)


def answers(name: str, jobs: list[bytes], workers: int) -> list[bytes]:
    with Crew(f"crew_handlers:{name}", workers) as crew:
        found = dict(crew.run(jobs))
    assert sorted(found) == list(range(len(jobs)))
    return [found[index] for index in range(len(jobs))]


def gone(pid: int) -> bool:
    """Tell whether a process has ended (or waits to be reaped)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_job_has_its_own_answer_whatever_the_number_of_workers(workers):
    jobs = [os.urandom(size) for size in (0, 1, 7, 100, 70_000, 3)]
    assert answers("reverse", jobs, workers) == [job[::-1] for job in jobs]


def test_answers_come_as_they_are_done_with_the_index_of_their_job(tmp_path):
    gate, found = tmp_path / "gate", []
    with Crew("crew_handlers:hold_first", 2) as crew:
        for one in crew.run([f"{k} {gate}".encode() for k in range(4)]):
            found.append(one)
            if len(found) == 3:
                gate.touch()  # the first job ends once all others have been answered
    assert found[-1] == (0, b"0")
    assert sorted(found) == [(k, str(k).encode()) for k in range(4)]


def test_one_worker_works_in_this_process_and_several_in_as_many_others():
    assert set(answers("who", [b""] * 3, 1)) == {str(os.getpid()).encode()}
    others = set(answers("who", [b""] * 8, 2))
    assert len(others) == 2
    assert str(os.getpid()).encode() not in others


def test_no_jobs_no_answers():
    assert answers("reverse", [], 2) == []


def test_a_crew_can_run_again():
    with Crew("crew_handlers:who", 2) as crew:
        first = {pid for _, pid in crew.run([b""] * 4)}
        again = {pid for _, pid in crew.run([b""] * 4)}
    assert first == again


def test_workers_have_ended_when_the_crew_has_left():
    pids = [int(pid) for pid in answers("who", [b""] * 4, 2)]
    assert all(gone(pid) for pid in pids)


def test_workers_are_ended_at_once_when_the_work_is_given_up(tmp_path):
    mark = tmp_path / "pid"

    def give_up() -> None:
        with Crew("crew_handlers:hang", 2) as crew:
            for _ in crew.run([b"", str(mark).encode()]):  # the first answer comes, the second never would
                assert wait_until(lambda: mark.exists() and mark.read_text() != "")
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_up()  # or it would wait for an hour
    assert gone(int(mark.read_text()))


def test_what_a_library_prints_does_not_reach_the_answers():
    assert answers("chatty", [b"a", b"b", b"c"], 2) == [b"a", b"b", b"c"]


def test_workers_use_one_thread_each():
    assert set(answers("threads", [b""] * 2, 2)) == {b"1"}


def test_twenty_megabytes_pass_both_ways():
    jobs = [bytes([k]) + bytes(20_000_000) for k in range(3)]
    for job, answer in zip(jobs, answers("reverse", jobs, 2), strict=True):
        assert answer == job[::-1]


def test_a_job_that_ends_its_worker_is_tried_three_times(tmp_path):
    log = tmp_path / "log"
    with Crew("crew_handlers:die", 2) as crew, pytest.raises(WorkerDiedError, match=r"3 times on job [01].*7"):
        list(crew.run([str(log).encode(), str(log).encode()]))
    assert 3 <= log.read_text().count("tried") <= 6


@pytest.mark.parametrize("how", ["die_once", "die_by_signal_once"])
def test_a_job_whose_worker_ended_once_is_repeated(tmp_path, how):
    jobs = [str(tmp_path / f"job {k}").encode() for k in range(3)]
    assert answers(how, jobs, 2) == [b"survived"] * 3
    assert len(list(tmp_path.iterdir())) == 3


def test_a_worker_that_is_killed_from_outside_is_replaced(tmp_path):
    script = """
        import os, signal, sys
        from skyfed.workers import Crew
        with Crew("crew_handlers:who", 2) as crew:
            pids = {int(pid) for _, pid in crew.run([b""] * 4)}
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            again = {int(pid) for _, pid in crew.run([b""] * 4)}
        assert len(again) == 2 and not again & pids, (pids, again)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stderr) == (0, "")


def test_workers_are_deaf_to_ctrl_c_from_their_first_moment():
    """A terminal signals every process of the group; only the parent decides what that means."""
    script = """
        import os, signal, threading
        from skyfed.workers import Crew
        signal.signal(signal.SIGINT, lambda number, frame: None)
        done = threading.Event()
        def press():
            while not done.wait(0.005):
                os.killpg(0, signal.SIGINT)
        presses = threading.Thread(target=press)
        presses.start()
        with Crew("crew_handlers:who", 2) as crew:
            assert len(dict(crew.run([b""] * 4))) == 4
        done.set()
        presses.join()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=LONG, start_new_session=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", [BadInputError, StorageError, InfeasibleError, SkyfedError])
def test_an_error_keeps_its_class_and_its_words(kind, workers):
    jobs = [f"{kind.__name__}:what went wrong, wörtlich".encode()] * 2
    with Crew("crew_handlers:fail", workers) as crew, pytest.raises(SkyfedError) as caught:
        list(crew.run(jobs))
    assert type(caught.value) is kind
    assert str(caught.value) == "what went wrong, wörtlich"


@pytest.mark.parametrize("workers", [1, 2])
def test_an_unforeseen_error_fails_the_work_in_one_way_whatever_the_number_of_workers(workers):
    with Crew("crew_handlers:fail", workers) as crew, pytest.raises(SkyfedError, match="ValueError: surprise"):
        list(crew.run([b"ValueError:surprise"] * 2))


@pytest.mark.parametrize("how", ["MemoryError:surprise", "SkyfedError:you can't allocate memory"])
def test_a_worker_out_of_memory_is_replaced_and_after_three_there_is_a_clear_end(how):
    """Errors of the project's own are not mistaken for it, whatever they say."""
    says = "3 times on job [01].*out of memory" if how.startswith("Memory") else "you can't allocate memory"
    with Crew("crew_handlers:fail", 2) as crew, pytest.raises(SkyfedError, match=says):
        list(crew.run([how.encode()] * 2))


def test_a_job_that_ran_out_of_memory_once_is_repeated_on_a_new_worker(tmp_path):
    jobs = [str(tmp_path / f"job {k}").encode() for k in range(2)]
    assert answers("starve_once", jobs, 2) == [b"survived"] * 2


def test_a_worker_that_ends_at_its_start_is_tried_three_times(tmp_path):
    mark, log = tmp_path / "mark", tmp_path / "log"
    with Crew("crew_handlers:die_once", 2, str(mark).encode()) as crew:
        assert dict(crew.run([str(mark).encode()])) == {0: b"survived"}
    with (
        Crew("crew_handlers:die", 2, str(log).encode()) as crew,
        pytest.raises(WorkerDiedError, match="3 times at its start"),
    ):
        list(crew.run([b""]))
    assert log.read_text().count("tried") == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_workers_leave_signals_to_their_parent(number):
    """A service manager signals every process of a service, not the parent alone."""
    with Crew("crew_handlers:who", 2) as crew:
        pids = {int(pid) for _, pid in crew.run([b""] * 4)}
        for pid in pids:
            os.kill(pid, number)
        assert {int(pid) for _, pid in crew.run([b""] * 4)} == pids


@pytest.mark.parametrize("workers", [1, 2])
def test_a_handler_that_does_not_exist_fails_the_work(workers):
    with Crew("crew_handlers:nothing", workers) as crew, pytest.raises((AttributeError, SkyfedError)):
        list(crew.run([b"", b""]))


def test_handlers_are_found_by_name():
    assert load_handler("crew_handlers:reverse")(b"abc") == b"cba"


AUDIT = """
import sys

def hook(event, arguments):
    if event == "pickle.find_class":
        with open(LOG, "a") as log:
            log.write(f"{arguments}\\n")

sys.addaudithook(hook)
"""


def test_nothing_is_unpickled_by_the_parent_or_a_worker(tmp_path):
    """Every process of a fleet's planning starts with a hook that notes each unpickled name."""
    log = tmp_path / "unpickled"
    (tmp_path / "sitecustomize.py").write_text(AUDIT.replace("LOG", repr(str(log))))
    work = """
        import numpy as np
        from skyfed.flight.problem import Options, Problem
        from skyfed.flight.remote import plan_fleet
        one = Problem(np.array([[0.0, 0.0], [200.0, 0.0]]), np.array([40.0, 40.0]), np.full((2, 4), 0.5),
                      np.full((2, 2), 2))
        found = dict(plan_fleet([one] * 3, "exact", [Options(vehicle=u) for u in range(3)], 2))
        assert sorted(found) == [0, 1, 2]
    """
    control = "import pickle; pickle.loads(pickle.dumps(len))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(work)], check=True, env=environment, timeout=LONG)
    assert not log.exists()
    subprocess.run([sys.executable, "-c", control], check=True, env=environment)
    assert "builtins" in log.read_text()  # the hook does see what it is there for


@pytest.mark.parametrize("handler", ["who", "hang"])
def test_workers_end_when_their_parent_is_killed(tmp_path, handler):
    """Idle ones (their input closes) and ones in the middle of a long job."""
    script = f"""
        import sys, time
        from skyfed.workers import Crew
        with Crew("crew_handlers:{handler}", 2) as crew:
            for _, answer in crew.run([name.encode() for name in sys.argv[1:]]):
                print(answer.decode(), flush=True)
            time.sleep(3600)
    """
    marks = [tmp_path / "0", tmp_path / "1"]
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, marks)], stdout=subprocess.PIPE, text=True
    )
    try:
        if handler == "who":
            pids = [int(parent.stdout.readline()) for _ in marks]
        else:
            assert wait_until(lambda: all(mark.exists() and mark.read_text() for mark in marks))
            pids = [int(mark.read_text()) for mark in marks]
        assert not any(gone(pid) for pid in pids)
    finally:
        parent.kill()
        parent.communicate()
    try:
        assert wait_until(lambda: all(gone(pid) for pid in pids))
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_plan_is_the_same_after_packing():
    from skyfed.flight.problem import Options, Problem
    from skyfed.flight.remote import pack_plan, plan_fleet, unpack_plan

    one = Problem(np.array([[0.0, 0.0]]), np.array([40.0]), np.ones((1, 3)), np.full((1, 3), 2))
    [(_, found)] = plan_fleet([one], "greedy", [Options()], 1)
    again = unpack_plan(pack_plan(found))
    assert np.array_equal(again.positions, found.positions)
    assert np.array_equal(again.association, found.association)
    assert (again.objective, again.bound, again.method, again.note, again.history) == (
        found.objective, found.bound, found.method, found.note, found.history,
    )  # fmt: skip


# how many


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Eight cores, and a machine's cgroups to write: files by path, and what the process says it is in."""

    def write(own: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "own").write_text(own)

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(workers_module, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(workers_module, "_OWN_CGROUPS", tmp_path / "own")
    return write


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_as_many_workers_as_cores_that_the_process_may_use():
    script = """
        import os
        from skyfed.config import load_config
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # as taskset does
        print(load_config("smoke", ["workers=0"]).processes, load_config("smoke", ["workers=3"]).processes)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "3"]


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "1600000 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/a:b/c\n", {"a:b/c/cpu.max": "300000 100000\n"}, 3),
        ("0::/of/the/host\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 8),
        ("4:cpu,cpuacct:/a\n0::/\n", {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, 3),
        ("4:cpuacct,cpu:/x\n", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("4:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("", {}, 8),
    ],
)
def test_quotas_of_version_1_and_2_limit_the_cores(cgroups, own, files, cores):
    cgroups(own, files)
    assert usable_cores() == cores


def test_a_system_without_cgroups_and_affinity_has_all_its_cores(cgroups, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cores() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
