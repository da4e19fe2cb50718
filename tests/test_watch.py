"""The page of a run that goes on: what it shows, what is sent, and whom its server refuses."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import in_process
from page_cases import HOSTILE, add_rounds, in_a_browser, settings, write_run
from skyfed.errors import BadInputError
from skyfed.report import watch
from skyfed.report.page import live
from skyfed.report.page.live import LivePage, News
from skyfed.report.watch import serving
from skyfed.runs.folder import locked
from skyfed.runs.tables import Table, read_parquet
from waiting import LONG, wait_until

CONFIG = settings(3, 12, 4, ["afl", "2ceoafl"])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with three rounds of its first algorithm."""
    place = write_run(tmp_path / "run", CONFIG, done=0)
    add_rounds(place / "afl", CONFIG, 0, range(3))
    return place


@pytest.fixture
def address(run: Path) -> Iterator[str]:
    with serving([run]) as where:
        yield where


def ask(address: str, path: str, method: str = "GET", **headers: str) -> HTTPResponse:
    """Ask a server for a path; `Host` is the true one unless it is given."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=LONG)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": urlsplit(address).netloc, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def raw(address: str, request: bytes) -> bytes:
    """Send bytes, return all that comes back."""
    where = urlsplit(address)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=LONG) as connection:
        answer = b""
        try:
            connection.sendall(request)
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionError:  # closed before all was read
            pass
        return answer


# --- whom it refuses


def test_the_page_and_its_data_need_the_token(address: str) -> None:
    path = urlsplit(address).path
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
    assert ask(address, path).status == 200
    assert ask(address, f"{path}data?since=0").status == 200
    for wrong in ("/", "/data", path[:-2] + "/", f"/{'x' * 32}/", f"/{'x' * 32}/data", path.swapcase(), "*", "//"):
        assert ask(address, wrong).status == 404, wrong
    strange = f"GET /é/ HTTP/1.1\r\nHost: {urlsplit(address).netloc}\r\n\r\n"
    assert raw(address, strange.encode()).startswith(b"HTTP/1.0 404")


def test_no_path_reaches_the_disk(address: str, run: Path) -> None:
    path = urlsplit(address).path
    for wrong in ("config.toml", "../config.toml", "data/../config.toml", "data/", str(run), "%2e%2e/", "./"):
        response = ask(address, path + wrong)
        assert (response.status, response.read()) == (404, b""), wrong


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "", "[::1]"])
def test_another_host_is_refused(address: str, host: str) -> None:
    path = urlsplit(address).path
    assert ask(address, path, Host=host).status == 403
    assert raw(address, f"GET {path} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.0 403")
    true = urlsplit(address).netloc
    twice = f"GET {path} HTTP/1.1\r\nHost: {true}\r\nHost: {host}\r\n\r\n"
    assert raw(address, twice.encode()).startswith(b"HTTP/1.0 403")
    assert ask(address, path, Host=true.replace("127.0.0.1", "localhost")).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "<b>"])
def test_other_methods_are_refused(address: str, method: str) -> None:
    response = ask(address, urlsplit(address).path, method)
    assert (response.status, response.read()) == (405, b"")
    assert response.headers["Allow"] == "GET, HEAD"


def test_a_head_without_its_body(address: str) -> None:
    response = ask(address, urlsplit(address).path, "HEAD")
    assert (response.status, response.read()) == (200, b"")
    assert int(response.headers["Content-Length"]) > 1_000_000


def test_answers_forbid_what_the_page_does_not_need(address: str) -> None:
    for path in (urlsplit(address).path, urlsplit(address).path + "data", "/"):
        headers = ask(address, path).headers
        assert headers["Referrer-Policy"] == "no-referrer"  # the address holds the token
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
    rules = dict(rule.split(" ", 1) for rule in ask(address, urlsplit(address).path).headers[
        "Content-Security-Policy"
    ].split("; "))  # fmt: skip
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert re.fullmatch(r"('sha256-[\w+/=]+' ?){2}", rules["script-src"])


def test_it_listens_on_this_machine_only(address: str) -> None:
    port = f"{urlsplit(address).port:04X}"
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line]
    assert f"0100007F:{port}" in listening
    assert f"00000000:{port}" not in listening


def test_long_heads_get_no_answer(address: str) -> None:
    host = urlsplit(address).netloc
    start = f"GET {urlsplit(address).path} HTTP/1.1\r\nHost: {host}\r\n".encode()
    assert raw(address, start + b"X: " + b"x" * 100_000 + b"\r\n\r\n") == b""
    assert raw(address, start + b"X: y\r\n" * 10_000 + b"\r\n") == b""
    assert raw(address, b"\0" * 40_000) == b""
    assert ask(address, urlsplit(address).path).status == 200


def test_slow_and_many_connections_are_closed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PATIENCE", 0.3)
    with serving([run]) as address, ExitStack() as stack:
        where = urlsplit(address)
        for _ in range(3 * watch._MOST_CONNECTIONS):
            idle = stack.enter_context(socket.create_connection((where.hostname or "", where.port or 0)))
            idle.sendall(b"GET / HT")
        threads = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(threads) <= watch._MOST_CONNECTIONS

        def answered() -> bool:
            try:
                return ask(address, where.path).status == 200
            except (HTTPException, OSError):
                return False

        assert wait_until(answered)


# --- what it sends


def test_only_what_is_new_is_sent(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_PAUSE", 0.0)
    page = LivePage([run])
    first = page.since(-1)
    assert first["whole"]
    assert [(one["algorithm"], one["done"]) for one in first["content"]["flown"]] == [("afl", 3)]
    page.look()
    assert page.since(first["version"]) == {"version": first["version"], "whole": False, "content": {}}
    add_rounds(run / "2ceoafl", CONFIG, 1, range(2))
    page.look()
    news = page.since(first["version"])
    assert not news["whole"]
    assert [(one["algorithm"], one["done"]) for one in news["content"]["flown"]] == [("2ceoafl", 2)]
    assert {"map", "looks", "runs", "block-settings", "block-again"}.isdisjoint(news["content"])  # as before
    assert "2CEOAFL" in news["content"]["block-results"]
    assert page.since(99)["whole"]  # of another server


def test_a_row_that_starts_over_takes_its_records_back() -> None:
    def content(*names: str) -> dict[str, Any]:
        return {"flown": [{"run": 0, "algorithm": name} for name in names], "running": True}

    news = News()
    news.note(content("afl", "2ceoafl"))
    news.note(content("afl"))
    told = news.since(1)
    assert told["whole"]
    assert [one["algorithm"] for one in told["content"]["flown"]] == ["afl"]


def test_a_long_run_sends_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 rounds, 10 vehicles, five algorithms: a new round is a few kilobytes, not the whole page."""
    monkeypatch.setattr(live, "_PAUSE", 0.0)
    config = settings(10, 200, 10)
    place = write_run(tmp_path / "long", config, done=40)
    page = LivePage([place])
    for t in range(40, 42):
        add_rounds(place / "2ceoafl", config, 4, range(t, t + 1))
        before = page.since(-1)
        page.look()
        assert len(json.dumps(page.since(before["version"]))) < 0.25 * len(json.dumps(before))


def test_a_folder_that_cannot_be_read_for_a_while_is_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_PAUSE", 0.0)
    with serving([run]) as address:
        path = urlsplit(address).path
        good = (run / "afl" / "rounds.jsonl").read_bytes()
        (run / "afl" / "rounds.jsonl").write_bytes(good + b'{"round": 3}\n')
        told = json.loads(ask(address, f"{path}data").read())
        assert told == {"trouble": f"{run}/afl/rounds.jsonl: line 4 is not a row of a table of rounds"}
        assert ask(address, path).status == 200  # as it last was
        (run / "afl" / "rounds.jsonl").write_bytes(good)
        assert "content" in json.loads(ask(address, f"{path}data").read())


def test_a_table_that_is_finished_while_it_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(run / "afl", "rounds")
    before, read = table.rows(), Table._read_lines

    def finished_meanwhile(self: Table) -> list[bytes] | None:
        monkeypatch.setattr(Table, "_read_lines", read)
        table.finish()
        return read(self)

    monkeypatch.setattr(Table, "_read_lines", finished_meanwhile)
    assert [row["round"] for row in Table(run / "afl", "rounds").rows()] == [row["round"] for row in before]


# --- in the browser


@in_a_browser
def test_the_page_follows_the_run_and_keeps_the_reader_s_place(run: Path, browser: Any) -> None:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(1e3 * LONG)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    with locked(run), serving([run]) as address:
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.inner_text("#live").startswith("Live")
        assert page.inner_text("#clock") == "Round 2 of 11, 3.0 min"  # the last one
        page.evaluate("window.mark = 1")  # gone if the page were loaded again
        add_rounds(run / "afl", CONFIG, 0, range(3, 6))
        page.wait_for_function("() => document.getElementById('accuracy-chart').data[0].x.length === 6")
        assert page.inner_text("#clock") == "Round 5 of 11, 6.0 min"  # it follows
        battery = f"{100 * (1 - 6 / 24):.0f} %"
        assert page.inner_text("#vehicles button:first-child .battery") == battery

        page.fill("#round", "1")
        page.click("#vehicles button:nth-child(2)")
        page.evaluate("window.scrollTo({top: 600, behavior: 'instant'})")
        add_rounds(run / "2ceoafl", CONFIG, 1, range(2))
        page.wait_for_function("() => document.getElementById('accuracy-chart').data.length === 2")
        assert page.inner_text("#clock") == "Round 1 of 11, 2.0 min"  # the reader’s own choice
        assert page.get_attribute("#vehicles button:nth-child(2)", "aria-pressed") == "true"
        assert page.evaluate("Math.abs(scrollY - 600)") < 200  # the row that is new in the table above
        assert "2CEOAFL" in page.inner_text("#results")
        page.select_option("#speed", "0.5")
        page.click("#play")
        add_rounds(run / "2ceoafl", CONFIG, 1, range(2, 4))
        page.wait_for_function("() => document.getElementById('accuracy-chart').data[1].x.length === 4")
        assert page.get_attribute("#play", "aria-pressed") == "true"
        assert page.evaluate("window.mark") == 1
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
    assert complaints == []
    page.wait_for_selector('#live[data-kind="lost"]')
    assert "The server has ended" in page.inner_text("#live")
    assert all(url.startswith(f"{address}data?since=") for url in requests)
    page.context.close()


@in_a_browser
def test_names_stay_words_when_they_come_later(tmp_path: Path, browser: Any) -> None:
    title = "<img src=x onerror=window.bad=1>"
    (tmp_path / "own.py").write_text("")
    config = settings(2, 6, 3, ["sgd", f"{tmp_path}/own.py:Mine"])
    run = write_run(tmp_path / HOSTILE.replace("/", "∕"), config, done=0, names=[HOSTILE, "<b>bold</b>", "a&amp;b"])
    page = browser.new_context().new_page()
    page.set_default_timeout(1e3 * LONG)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    with serving([run]) as address:
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        add_rounds(run / "Mine", config, 1, range(3))
        known = json.loads((run / "manifest.json").read_text())
        known |= {"cpu": HOSTILE, "command": ["skyfed", HOSTILE], "rows": [{"label": "Mine", "title": title}]}
        (run / "manifest.json").write_text(json.dumps(known))
        page.wait_for_function("() => document.getElementById('results').textContent.includes('onerror')")
        assert title in page.inner_text("#results")
        assert title in page.inner_text("#algorithms")
        assert page.evaluate("window.bad") is None
        assert page.locator("main img, main script, header img, header script").count() == 0
    assert complaints == []
    page.context.close()


# --- the command


def started(*words: str) -> tuple["subprocess.Popen[str]", str]:
    """Start a command and return it with the address that it prints first."""
    command = [sys.executable, "-m", "skyfed", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


def test_the_command_prints_one_address_and_ends_with_ctrl_c(run: Path) -> None:
    process, line = started("watch", str(run))
    address = line.removeprefix("watch: ").strip()
    assert ask(address, urlsplit(address).path).status == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out, err) == (130, "", "Ctrl-C ends it\n")


def test_it_waits_for_a_folder_if_asked(run: Path) -> None:
    later = run.parent / "later"
    threading.Timer(0.5, lambda: run.rename(later)).start()
    process, line = started("watch", str(later), "--wait")
    assert line.startswith("watch: http://127.0.0.1:")
    process.terminate()
    process.communicate(timeout=LONG)
    assert process.returncode == 143


def test_what_is_no_run_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    damaged = write_run(tmp_path / "damaged", CONFIG)
    (damaged / "afl" / "uplink.parquet").write_bytes(b"no table")
    strange = write_run(tmp_path / "strange", CONFIG, done=0)
    (strange / "config.toml").write_text("rounds = 'many'")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in ("nowhere", "empty", "damaged", "strange", "run --port 99999", f"run --port {port}", ""):
            done = in_process.skyfed(tmp_path, "watch", *words.split())
            assert done.returncode == 2, words
            assert len(done.stderr.splitlines()) == 1, done.stderr


def test_viewers_resolve_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n")
    own = f'flight.constraints=["{tmp_path / "own.py"}:Mine"]'
    place = write_run(tmp_path / "sent", settings(2, 4, 3, [f"{tmp_path / 'own.py'}:Mine"], own), done=0)
    assert LivePage([place]).page()
    assert not (tmp_path / "own.ran").exists()


def test_a_run_that_is_watched_has_the_same_bits(tmp_path: Path) -> None:
    words = ["--set", "rounds=3", "--set", "vehicles=2", "--set", 'algorithms=["afl","2ceoafl"]']
    words += ["--set", "flight.method=greedy", "--set", "workers=1", "--plain"]
    assert in_process.skyfed(tmp_path, "run", "smoke", "--out", "alone", *words).returncode == 0
    process, line = started("run", "smoke", "--out", str(tmp_path / "seen"), "--watch", *words)
    address = line.removeprefix("watch: ").strip()
    asked = 0
    while process.poll() is None:
        try:
            asked += ask(address, f"{urlsplit(address).path}data?since=0").status == 200
        except (HTTPException, OSError):
            break
        time.sleep(0.05)
    out, err = process.communicate(timeout=LONG)
    assert (process.returncode, asked > 0) == (0, True), err
    assert "watch:" not in out  # once
    for name in ("afl", "2ceoafl"):
        alone, seen = (read_parquet(tmp_path / run / name / "rounds.parquet") for run in ("alone", "seen"))
        assert [row["model_digest"] for row in alone] == [row["model_digest"] for row in seen]


def test_a_port_that_is_taken_is_told(run: Path) -> None:
    with (
        serving([run]) as address,
        pytest.raises(BadInputError, match="allowed: a free port"),
        serving([run], urlsplit(address).port or 0),
    ):
        pytest.fail("two servers on one port")
