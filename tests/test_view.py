"""What a person sees while a run goes on: curves, honest time left, any width; and few plain lines for logs and CI."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from in_process import UNDRAWN
from run_cases import rows_of
from skyfed.report.live import in_ci, is_live
from skyfed.report.view import ASCII, Pace, RunView, clock_time, sparkline

ALGORITHMS = ["sgd", "afl", "2ceoafl"]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def row(t: int, accuracy: float | None = 0.5, sent: int = 1_000_000, dropped: int = 0) -> dict[str, object]:
    return {"round": t, "accuracy": accuracy, "wire_bytes": sent, "dropped": dropped, "seconds": 1.0}


# curves


def test_a_curve_is_as_long_as_what_is_done():
    assert sparkline([0.0, 1.0], 4, 8, 0, 1) == "▁▁██"
    assert sparkline([], 4, 8, 0, 1) == ""
    assert sparkline([0.5] * 4, 4, 8, 0, 1) == "▅" * 8


def test_many_rounds_share_a_cell_which_shows_the_last():
    assert sparkline([k / 99 for k in range(100)], 100, 5, 0, 1) == "▂▄▅▇█"
    assert sparkline([0.0] * 9 + [1.0], 10, 1, 0, 1) == "█"
    assert len(sparkline([0.1] * 37, 100, 20, 0, 1)) == 8


def test_what_is_not_known_is_blank_and_what_is_level_is_drawn():
    assert sparkline([None, None, 0.3], 3, 3, 0.3, 0.3) == "  █"
    assert sparkline([-5.0, 5.0], 2, 2, 0, 1, ASCII) == "_#"


# time left


def test_time_left_goes_by_each_algorithm_s_own_pace():
    clock = Clock()
    pace = Pace({"sgd": True, "afl": False, "2ceoafl": False}, 10, clock)
    pace.begin("sgd", 0)
    assert pace.left is None
    for done in range(1, 11):
        clock.now += 9.0 if done == 1 else 4.0
        pace.round("sgd", done)
    assert pace.left_of("sgd") == 0
    assert pace.left_of("afl") == 40  # all that is known: the others' pace
    pace.begin("afl", 0)
    for done in (1, 2, 3):
        clock.now += 1.0
        pace.round("afl", done)
    assert pace.left_of("afl") == 7
    assert pace.left_of("2ceoafl") == 10  # as its like, not as the genie
    assert pace.left == 17
    clock.now += 0.5
    assert pace.left == 16.5
    clock.now += 60
    assert pace.left == 16  # a slow round does not make the others vanish


def test_rounds_of_an_earlier_session_are_done_but_tell_no_pace():
    clock = Clock()
    pace = Pace({"afl": False, "sgd": True}, 100, clock)
    pace.begin("afl", 98)
    clock.now += 30
    pace.round("afl", 99)
    assert pace.left is None
    clock.now += 2
    pace.round("afl", 100)
    assert pace.left_of("afl") == 0
    assert pace.left == 200


def test_an_algorithm_that_ended_early_takes_no_more_time():
    clock = Clock()
    pace = Pace({"afl": False, "sgd": False}, 100, clock)
    pace.begin("afl", 0)
    for done in (1, 2, 3):
        clock.now += 1
        pace.round("afl", done)
    pace.begin("sgd", 0)
    assert (pace.left_of("afl"), pace.left) == (0, 100)


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0:00"), (59.6, "1:00"), (61, "1:01"), (3725, "1:02:05")])
def test_times_are_short(seconds, shown):
    assert clock_time(seconds) == shown


# the picture


def view_of(clock: Clock, rounds: int = 20) -> RunView:
    view = RunView(rows_of(*ALGORITHMS), rounds, True, lambda: None, clock)
    view.begin("sgd", rounds, [row(t, 0.05 * t, 0) for t in range(rounds)])
    view.begin("afl", 0, [])
    for t in range(rounds // 2):
        clock.now += 2.0
        view.round("afl", row(t, 0.04 * t if t % 2 else None))
    return view


def test_a_line_an_algorithm_at_80_columns():
    sgd, afl, last, foot = view_of(Clock()).picture(80, True).plain.split("\n")
    assert re.fullmatch(r"SGD +[▁▂▃▄▅▆▇█]{35}  95\.0 %  20/20      0 B       done", sgd)
    assert re.fullmatch(r"AFL + [ ▁▂▃▄]{18}·{17}  36\.0 %  10/20  10\.0 MB  0:20 left", afl)
    assert re.fullmatch(r"2CEOAFL  ·{35}       -   0/20      0 B  0:40 left", last)
    assert foot.startswith("about 1:00 left, 0:20 gone, 30 of 60 rounds")


@pytest.mark.parametrize("width", [1, 2, 7, 13, 24, 40, 57, 80, 139])
@pytest.mark.parametrize("blocks", [True, False])
def test_no_line_is_wider_than_the_terminal(width, blocks):
    text = view_of(Clock()).picture(width, blocks).plain
    assert max(map(len, text.split("\n"))) <= max(1, width - 1)
    assert text.count("\n") == 3
    assert blocks or text.isascii()


# plain lines


def test_plain_lines_come_now_and_then_and_at_the_end(capsys):
    view_of(Clock(), 10)
    assert capsys.readouterr().err.splitlines() == [
        "sgd: 10 of 10 rounds were done before",
        "afl: round 3 of 10, accuracy 4.0 %, 3.00 MB sent, about 34 s left in all",
    ]


def test_nobody_watching_means_fewer_lines(capsys, monkeypatch):
    monkeypatch.setenv("CI", "true")
    view_of(Clock(), 10)
    assert capsys.readouterr().err.splitlines() == ["sgd: 10 of 10 rounds were done before"]


def test_dropped_uploads_are_told(capsys):
    view = RunView(rows_of("afl"), 3, True, lambda: None, Clock())
    view.begin("afl", 0, [])
    view.round("afl", row(0, None, dropped=2))
    assert "afl: round 0: 2 upload(s) dropped" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "ci"), [("true", True), ("1", True), ("false", False), ("", False), ("0", False)])
def test_ci_is_what_says_so(monkeypatch, value, ci):
    monkeypatch.setenv("CI", value)
    assert in_ci() == ci


def test_a_terminal_that_cannot_be_drawn_over_gets_lines(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert is_live(plain=False)
    assert not is_live(plain=True)
    monkeypatch.setenv("TERM", "dumb")
    assert not is_live(plain=False)


def on_a_terminal(place: Path, **environment: str) -> bytes:
    """Run one short training with a real terminal behind it; returns all that reached the terminal."""
    ours, theirs = pty.openpty()
    words = ["rounds=2", "vehicles=2", 'algorithms=["afl"]', "flight.method=greedy", "workers=1"]
    command = [*UNDRAWN, "run", "smoke", "--out", str(place)]
    process = subprocess.Popen(
        [*command, *(word for one in words for word in ("--set", one))],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "80", **environment},
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0, said
    return said


def test_ci_never_gets_control_characters_even_with_a_terminal(tmp_path):
    said = on_a_terminal(tmp_path / "run", TERM="xterm-256color", CI="true")
    assert b"\x1b" not in said
    assert not re.search(rb"\r[^\n]", said)
    assert "afl: round 2 of 2" in said.decode()


def test_a_terminal_gets_the_live_view(tmp_path):
    said = on_a_terminal(tmp_path / "run", TERM="xterm-256color").decode()
    assert "\x1b[?25l" in said  # the cursor hides while lines are drawn over
    assert re.search(r"AFL.*2/2.*done", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said))
    assert "\x1b[?25h" in said
