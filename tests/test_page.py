"""The page in a real browser, and what is written into it."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import in_process
from page_cases import FIVE, HOSTILE, in_a_browser, settings, without_formula, write_run, write_theory
from skyfed.errors import BadInputError
from skyfed.report.groups import find_groups
from skyfed.report.measures import MEASURES
from skyfed.report.page import write_page
from skyfed.report.page.headline import headline
from skyfed.report.style import COLOURS, PARTS, VEHICLES
from skyfed.runs.tables import Table
from waiting import LONG

LOOKS = Path(__file__).parent / "looks"


def data_of(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return json.loads(found.group(1))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def one(place: Path) -> Path:
    """The page of one finished run, with five algorithms."""
    run = write_run(place / "one", settings(4, 24, 6), names=["cat", "dog", "ship", "truck", "deer", "frog"])
    return write_page([run], run / "report.html")


@pytest.fixture(scope="module")
def several(place: Path) -> Path:
    """The page of a sweep: two variants with two seeds each."""
    for variant, more in (("delta=0.25", ["prune.delta=0.25"]), ("delta=0.5", ["prune.delta=0.5"])):
        for seed in (0, 1):
            config = settings(3, 12, 4, ["afl", "2ceoafl"], f"seed={seed}", *more)
            write_run(place / "sweep" / variant / f"seed-{seed}", config)
    return write_page([place / "sweep"], place / "sweep" / "report.html")


class Tab:
    """A page in the browser with what it complained about and what it asked the network for."""

    def __init__(self, page: Any) -> None:
        self.page, self.complaints, self.requests = page, [], []
        page.set_default_timeout(1e3 * LONG)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def go(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self.page

    def close(self) -> None:
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        self.page.context.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; at the end there must have been no complaint and no request."""
    tabs: list[Tab] = []

    def make(path: Path, width: int = 1280, **look: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **look)
        tabs.append(Tab(context.new_page()))
        return tabs[-1].go(path)

    yield make
    for each in tabs:
        each.close()


def lines(page: Any, chart: str = "accuracy-chart") -> list[Any]:
    found: list[Any] = page.evaluate(
        f"document.getElementById('{chart}').data.map(t => ({{name: t.name, n: t.x.length}}))"
    )
    return found


def settle(page: Any, milliseconds: int = 300) -> None:
    """Let the page do what it has to do by its own clock, which stands still where a slow machine keeps it busy."""
    page.evaluate(f"""() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
        setTimeout(() => requestAnimationFrame(done), {milliseconds}))))""")


def clock(page: Any) -> str:
    """The round of the player, without the mission time."""
    return str(page.inner_text("#clock")).partition(",")[0]


# --- in the browser


@in_a_browser
def test_it_plays_pauses_and_stops_at_the_end(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    page.select_option("#speed", "5")
    page.click("#play")
    assert page.get_attribute("#play", "aria-label") == "Pause"
    page.wait_for_function(FAR, arg="Round 3 of 23")
    page.click("#play")
    stands = clock(page)
    settle(page)
    assert clock(page) == stands
    page.fill("#round", "21")
    page.click("#play")
    page.wait_for_selector('#play[aria-pressed="false"]')
    assert clock(page) == "Round 23 of 23"


FAR = "(text) => parseInt(document.getElementById('clock').textContent.slice(6)) >= parseInt(text.slice(6))"


@in_a_browser
def test_the_slider_moves_the_map_and_the_numbers(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    before = page.evaluate("document.getElementById('map').toDataURL()")
    page.fill("#round", "17")
    assert page.inner_text("#clock") == "Round 17 of 23, 18.0 min"  # a minute per round
    assert page.inner_text("#train-size") == f"{400 + 30 * 17}"
    assert page.inner_text("#test-size") == f"{100 + 5 * 17}"
    assert page.inner_text("#vehicles button:first-child .samples") == f"{90 + 9 * 17}"
    assert page.inner_text("#vehicles button:first-child em") == "frog"  # hand-made flights visit class t mod C
    assert page.evaluate("document.getElementById('map').toDataURL()") != before


@in_a_browser
def test_keys_play_step_and_jump(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    assert clock(page) == "Round 12 of 23"  # not where all are at the start
    page.keyboard.press("Home")
    for key, told in (("ArrowRight", "1"), ("ArrowRight", "2"), ("ArrowLeft", "1"), ("End", "23"), ("Home", "0")):
        page.keyboard.press(key)
        assert clock(page) == f"Round {told} of 23"
    page.keyboard.press("Space")
    assert page.get_attribute("#play", "aria-pressed") == "true"
    page.keyboard.press("Space")
    assert page.get_attribute("#play", "aria-pressed") == "false"
    page.focus("#play")
    page.keyboard.press("Space")  # a focused button answers once, not twice
    assert page.get_attribute("#play", "aria-pressed") == "true"
    page.focus("#round")
    page.keyboard.press("Home")
    assert page.evaluate("player.t") <= 1


@in_a_browser
def test_every_control_can_be_reached_by_keyboard_and_has_a_name(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    unnamed = page.evaluate("""() => [...document.querySelectorAll('button, select, input, canvas')].filter((control) =>
        !(control.getAttribute('aria-label') || control.textContent.trim() || control.closest('label'))).length""")
    assert unnamed == 0
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.dataset.value || ''"))
    assert {"theme", "play", "back", "forth", "round", "speed", "map", "megabytes", "accuracy_full"} <= reached


@in_a_browser
def test_the_x_axis_and_the_test_set_can_be_switched(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    for value, title in (
        ("mission", "Mission time, modelled (min)"),
        ("megabytes", "Sent and received by all vehicles, measured (MB)"),
        ("joules", "Energy of all vehicles, modelled (kJ)"),
    ):
        if value != "mission":  # where it opens
            page.click(f'[data-value="{value}"]')
        assert page.get_attribute(f'[data-value="{value}"]', "aria-pressed") == "true"
        assert page.evaluate("document.getElementById('accuracy-chart').layout.xaxis.title.text") == title
        assert len(lines(page)) == 4  # central training costs nothing: a level
        assert page.evaluate("document.getElementById('accuracy-chart').layout.shapes.length") == 1
    page.click('[data-value="rounds"]')
    assert len(lines(page)) == 5
    before = page.evaluate("document.getElementById('accuracy-chart').data[0].y[5]")
    page.click('[data-value="accuracy_full"]')
    assert page.evaluate("document.getElementById('accuracy-chart').data[0].y[5]") == pytest.approx(
        before - 1, abs=0.02
    )


@in_a_browser
def test_an_algorithm_without_the_paper_s_sizes_has_its_payloads_drawn(place: Path, tab: Callable[..., Any]) -> None:
    run = write_run(place / "own sizes", settings(2, 8, 3, ["afl", "afl-quant"]))
    without_formula(run / "afl-quant")
    page = tab(write_page([run], place / "own-sizes.html"))
    names = page.evaluate("document.getElementById('payload-chart').data.map((line) => line.name)")
    assert names == ["AFL, paper’s formula", "AFL, measured", "AFL-Quant, measured"]
    table = headline(find_groups([run]))
    (line,) = [line for line in table.lines if line.algorithm == "afl-quant"]
    shown = dict(zip(table.names, line.cells, strict=True))
    assert (shown["paper_bytes"].text, shown["uplink_bytes"].text) == ("–", shown["uplink_bytes"].text) != ("–", "–")


@in_a_browser
def test_rows_with_labels_can_be_switched_off_too(place: Path, tab: Callable[..., Any]) -> None:
    row = {"use": "afl-quant", "label": "EDEN, (1) bit", "quantise": {"scheme": "eden", "s": 1}}
    page = tab(write_page([write_run(place / "rows", settings(2, 8, 3, ["afl", row]))], place / "rows.html"))
    button = "#algorithms button[data-algorithm='EDEN, (1) bit']"
    assert page.inner_text(f"{button} span") == "EDEN, (1) bit"
    assert page.is_visible("tr[data-algorithm='EDEN, (1) bit']")
    page.click(button)
    assert not page.is_visible("tr[data-algorithm='EDEN, (1) bit']")
    assert page.is_visible("tr[data-algorithm='afl']")


@in_a_browser
def test_algorithms_can_be_switched_off_everywhere(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    page.click("#algorithms button[data-algorithm='afl-prune']")
    assert "AFL-Prune" not in [line["name"] for line in lines(page)]
    assert page.evaluate("document.getElementById('energy-chart').data[0].x.length") == 3
    assert len(lines(page, "payload-chart")) == 6
    assert page.locator("#classes-charts > div").count() == 4
    assert not page.is_visible("tr[data-algorithm='afl-prune']")
    page.click("#algorithms button[data-algorithm='afl-prune']")
    assert len(lines(page)) == 4
    assert [box.get_attribute("data-algorithm") for box in page.query_selector_all("#classes-charts > div")] == list(
        FIVE
    )


@in_a_browser
def test_a_vehicle_in_focus_shows_its_visits(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    assert len(lines(page, "age-chart")) == 1
    page.click("#vehicles button:nth-child(2)")
    assert "vehicle 1" in page.inner_text("#age-title")
    marks = page.evaluate("document.getElementById('age-chart').data[1].y.slice(0, 8)")
    assert marks == [0, 1, 2, 3, 4, 5, 1, 2]  # round 6 is idle
    page.click("#vehicles button:nth-child(2)")
    assert len(lines(page, "age-chart")) == 1


@in_a_browser
def test_it_looks_at_light_and_dark(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one, color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(14, 17, 22)"
    page.click("#theme")
    assert page.evaluate(paper) == "rgb(246, 247, 249)"
    assert page.evaluate("document.getElementById('accuracy-chart').layout.font.color") == "rgb(20, 24, 31)"


@in_a_browser
def test_two_variants_stand_side_by_side(several: Path, tab: Callable[..., Any]) -> None:
    page = tab(several)
    assert [row.inner_text() for row in page.query_selector_all(".headline .group")] == ["delta=0.25", "delta=0.5"]
    assert len(lines(page)) == 8  # a band and a line each
    page.click("#runs button:nth-child(2)")
    assert [line["name"] for line in lines(page) if line["name"]] == ["delta=0.25: AFL", "delta=0.25: 2CEOAFL"]
    assert [row.is_visible() for row in page.query_selector_all(".headline tbody tr")] == [True] * 3 + [False] * 3
    assert page.inner_text("#settings tbody th") == "prune.delta"
    assert not page.is_visible("#map-run")  # the flights are the same: one map


@in_a_browser
def test_runs_of_one_algorithm_are_told_apart_by_colour(place: Path, tab: Callable[..., Any]) -> None:
    for delta in (0.25, 0.5, 0.75):
        write_run(place / "solo" / f"delta={delta}", settings(2, 12, 3, ["2ceoafl"], f"prune.delta={delta}"))
    page = tab(write_page([place / "solo"], place / "solo" / "report.html"))
    colours = page.evaluate("document.getElementById('accuracy-chart').data.map((line) => line.line.color)")
    assert len(set(colours)) == 3
    assert [line["name"] for line in lines(page)] == ["delta=0.25", "delta=0.5", "delta=0.75"]
    assert page.inner_text(".headline tbody tr:nth-child(2) th") == "delta=0.5"
    assert page.locator("#classes-charts > div").count() == 3
    assert not page.is_visible("#classes-run")
    page.click("#runs button:nth-child(2)")
    assert page.inner_text("#classes-charts h3 >> nth=1") == "delta=0.75"
    assert len(lines(page)) == 2


@in_a_browser
def test_a_class_map_spans_the_rounds_and_small_uploads_are_in_kilobytes(place: Path, tab: Callable[..., Any]) -> None:
    run = write_run(place / "small", settings(2, 10, 3, ["afl-quant"]), done=7)
    page = tab(write_page([run], run / "report.html"))
    chart = "document.querySelector('#classes-charts .chart')"
    assert page.evaluate(f"{chart}.layout.xaxis.range") == [-0.5, 9.5]
    assert page.evaluate(f"{chart}.data[0].x") == [-0.5, *(t + 0.5 for t in range(7))]
    assert page.evaluate("document.getElementById('payload-chart').layout.xaxis.title.text") == "Size of an upload (MB)"
    page.evaluate(
        "data.payload.forEach((one) => { for (const kind of ['measured', 'formula']) one[kind] = [0.01, 0.2]; })"
    )
    page.evaluate("drawPayload()")
    assert page.evaluate("document.getElementById('payload-chart').layout.xaxis.title.text") == "Size of an upload (kB)"
    assert max(page.evaluate("document.getElementById('payload-chart').data[0].x")) == 200


@in_a_browser
def test_names_are_words_not_code(place: Path, tab: Callable[..., Any]) -> None:
    folder = place / HOSTILE.replace("/", "∕")
    run = write_run(folder, settings(2, 6, 3, ["afl"]), names=[HOSTILE, "<b>bold</b>", "a&amp;b"])
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "cpu": HOSTILE, "command": ["skyfed", HOSTILE]}))
    page = tab(write_page([run], run / "report.html"))
    page.click("#vehicles button:first-child")
    page.hover("#age-chart")
    assert page.evaluate("window.bad") is None
    assert "<script>" in page.inner_text("h1")
    assert page.locator("main img, main script").count() == 0
    ticks = page.evaluate("[...document.querySelectorAll('#age-chart .ytick text')].map(t => t.textContent)")
    assert "<b>bold</b>" in ticks
    assert "a&amp;b" in ticks


@in_a_browser
def test_an_unfinished_run_says_so(place: Path, tab: Callable[..., Any]) -> None:
    run = write_run(place / "half", settings(3, 20, 4, ["sgd", "afl"]), done=7)
    shutil.rmtree(run / "afl")
    page = tab(write_page([run], run / "report.html"))
    assert "sgd 7 of 20 rounds, afl not begun" in page.inner_text(".notice")
    assert len(lines(page)) == 1


@in_a_browser
def test_a_plan_alone_has_a_map(place: Path, tab: Callable[..., Any]) -> None:
    run = write_run(place / "planned", settings(3, 20, 4, ["afl"]), done=0)
    page = tab(write_page([run], run / "report.html"))
    assert "Nothing has been trained yet" in page.inner_text("#results")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert clock(page) == "Round 1 of 19"
    assert page.inner_text("#vehicles button:first-child .samples") != "–"
    assert not page.is_visible("#vehicles .battery >> nth=0")
    assert "modelled by Eq. 6" in page.inner_text("#map-note")


@in_a_browser
def test_batteries_stand_beside_the_vehicles(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    page.fill("#round", "11")
    assert page.inner_text("#vehicles button:first-child .battery") == "75 %"
    page.fill("#round", "23")
    assert page.inner_text("#vehicles button:first-child .battery") == "50 %"


@in_a_browser
def test_energy_is_stacked_by_use_and_batteries_are_drawn_over_mission_time(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    assert [line["name"] for line in lines(page, "energy-chart")] == [
        "flying", "hovering", "training", "receiving", "sending",
    ]  # fmt: skip
    assert [line["name"] for line in lines(page, "board-chart")] == ["training", "receiving", "sending"]
    chart = "document.getElementById('battery-chart')"
    assert page.evaluate(f"{chart}.data.length") == 4
    assert page.evaluate(f"{chart}.data[0].x.slice(0, 3)") == [0, 1, 2]
    assert page.evaluate(f"{chart}.data[0].y.at(-1)") == pytest.approx(50)
    assert "No vehicle went home early" in page.inner_text("#battery-note")
    page.click("#vehicles button:nth-child(2)")
    assert page.evaluate(f"{chart}.data.map((line) => line.opacity)") == [0.2, 1, 0.2, 0.2]


@in_a_browser
def test_a_vehicle_that_went_home_stands_at_the_station(place: Path, tab: Callable[..., Any]) -> None:
    run = write_run(place / "home", settings(3, 10, 3, ["afl"]), done=10)
    table = Table(run / "afl", "vehicles")
    rows = table.rows()
    for row in rows:
        if row["vehicle"] == 1 and row["round"] >= 6:
            row |= {"status": "going home" if row["round"] == 6 else "on the ground", "x": 0.0, "y": 0.0}
    table.keep(0)
    table.append(rows)
    page = tab(write_page([run], run / "report.html"))
    page.fill("#round", "5")
    assert page.inner_text("#vehicles button:nth-child(2) em") != "going home"
    for t, told in ((6, "going home"), (8, "on the ground")):
        page.fill("#round", str(t))
        assert page.inner_text("#vehicles button:nth-child(2) em") == told
        assert page.evaluate(f"placeAt(data.map[0], 1, {t})") == [0, 0]
        assert page.evaluate(f"statusAt(0, {t})") == 0
    assert "Went home early: vehicle 1 in round 6." in page.inner_text("#map-note")
    assert "1 of 3 went home early" in page.inner_text("#battery-note")
    (line,) = headline(find_groups([run])).lines
    assert line.cells[-1].text == "1"


@in_a_browser
@pytest.mark.parametrize("kind", ["law", "old"])
def test_without_a_mission_the_page_shows_none(kind: str, place: Path, tab: Callable[..., Any]) -> None:
    if kind == "law":
        run = write_run(
            place / "law", settings(2, 8, 3, ["afl"], "world.time=law", "field.follows=rounds", "sensing.model=eq6")
        )
        table = Table(run / "afl", "vehicles")
        rows = [row | {"battery_left": None} for row in table.rows()]
        table.keep(0)
        table.append(rows)
        first = "Modelled training time (t_tr)"
    else:
        run = Path(shutil.copytree(Path(__file__).parent / "formats" / "0.1.0" / "done", place / "old"))
        first = "Sent and received by all vehicles, measured (MB)"
    page = tab(write_page([run], run / "report.html"))
    assert page.evaluate("document.getElementById('accuracy-chart').layout.xaxis.title.text") == first
    assert page.is_visible('[data-value="mission"]') == (kind == "law")
    assert not page.is_visible("#batteries")
    assert page.locator("#energy").count() == 0
    assert "min" not in page.inner_text("#clock")
    head = page.inner_text(".headline thead")
    assert not [word for word in ("Mission", "Least battery", "Landed") if word in head]


@in_a_browser
def test_vehicles_that_would_cover_each_other_are_drawn_apart(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    same = page.evaluate("apart([[100, 100], [100, 100], [100, 100], [300, 100]])")
    least = min(np.hypot(a[0] - b[0], a[1] - b[1]) for a, b in itertools.combinations(same, 2))
    assert least > 18
    assert same[3] == [300, 100]


@in_a_browser
def test_a_run_that_measured_the_bound_shows_its_terms(place: Path, tab: Callable[..., Any]) -> None:
    run = write_run(place / "theory", settings(2, 10, 3, ["afl", "2ceoafl"], "theory.every=5"))
    for name in ("afl", "2ceoafl"):
        write_theory(run / name, [0, 5], 2)
    page = tab(write_page([run], run / "report.html"))
    assert page.input_value("#bound-pick") == "1"  # the paper's own algorithm comes last
    assert len(lines(page, "bound-shares")) == 6
    shares = page.evaluate("document.getElementById('bound-shares').data.map((term) => term.y[0])")
    assert sum(shares) == pytest.approx(1)
    page.select_option("#bound-pick", "0")
    assert "corrected form" in page.inner_text("#bound-note")
    assert [line["name"] for line in lines(page, "bound-totals")][-1] == "gradient, measured"


SIZES = {"desktop": (1280, {}), "phone": (380, {}), "dark": (1280, {"color_scheme": "dark"}), "print": (1280, {})}


@in_a_browser
@pytest.mark.parametrize("look", SIZES)
def test_nothing_sticks_out_or_overlaps(
    look: str, one: Path, several: Path, tab: Callable[..., Any], tmp_path: Path
) -> None:
    width, more = SIZES[look]
    for path in (several, one):
        page = tab(path, width, **more)
        if look == "print":
            page.emulate_media(media="print")
            settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.evaluate("""() => [...document.querySelectorAll('header, main > section, footer')].map((part) => {
            const box = part.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; })""")
        for (_, _, _, bottom), (left, top, right, _) in itertools.pairwise(boxes):
            assert top >= bottom - 1
            assert left >= 0
            assert right <= width
        inside = page.evaluate("""() => [...document.querySelectorAll('.chart .main-svg, canvas')].every((part) => {
            const box = part.getBoundingClientRect(), card = part.closest('section').getBoundingClientRect();
            return box.left >= card.left - 1 && box.right <= card.right + 1 && box.width > 150; })""")
        assert inside
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    compare(tmp_path / "page.png", LOOKS / f"page-{look}.png")


@in_a_browser
def test_after_paper_and_other_widths_the_screen_is_full_again(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one, color_scheme="dark")
    page.fill("#round", "0")
    width = "document.querySelector('#accuracy-chart .main-svg').getBoundingClientRect().width"
    before = page.evaluate(width)
    page.keyboard.press("ArrowRight")
    assert page.pdf()[:4] == b"%PDF"
    assert page.evaluate("document.documentElement.dataset.theme") is None
    assert page.evaluate(width) == pytest.approx(before, abs=2)
    assert clock(page) == "Round 1 of 23"
    page.set_viewport_size({"width": 420, "height": 800})
    settle(page, 600)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert 250 < page.evaluate(width) < 400


@in_a_browser
def test_a_page_that_is_hidden_for_a_while_does_not_complain(one: Path, tab: Callable[..., Any]) -> None:
    page = tab(one)
    for display in ("none", ""):
        page.evaluate(f"document.querySelector('main').style.display = '{display}'")
        settle(page)
    assert page.evaluate("document.querySelector('#accuracy-chart .main-svg').getBoundingClientRect().width") > 900


def compare(shot: Path, known: Path) -> None:
    """Compare in squares so coarse that letters do not matter, only where things are and how bright."""
    picture = Image.open(shot).convert("RGB").resize((24, 96), Image.Resampling.BOX)
    if os.environ.get("SKYFED_NEW_LOOKS"):
        known.parent.mkdir(exist_ok=True)
        picture.save(known)
    apart = np.abs(np.asarray(picture, float) - np.asarray(Image.open(known), float))
    assert apart.mean() < 8
    assert np.quantile(apart, 0.98) < 60


@in_a_browser
def test_the_papers_page_is_small(place: Path, browser: Any) -> None:
    """U = 10, T = 100, C = 10, five algorithms; -s shows size and seconds (docs/report.md)."""
    run = write_run(place / "paper", settings(10, 100, 10))
    path = write_page([run], run / "report.html")
    page = browser.new_context().new_page()
    spent = page.context.new_cdp_session(page)
    spent.send("Performance.enable", {"timeDomain": "threadTicks"})
    Tab(page).go(path)
    told = {one["name"]: one["value"] for one in spent.send("Performance.getMetrics")["metrics"]}
    size, ready = path.stat().st_size / 1e6, int(page.get_attribute("html", "data-ready")) / 1e3
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1e3
    print(f"\n{size:.2f} MB; loaded after {loaded:.2f} s, with all charts after {ready:.2f} s", end="; ")
    print(f"{told['TaskDuration']:.2f} s of computing")
    assert size < 8
    page.context.close()


# --- what is written


def test_the_page_needs_nothing_from_outside(one: Path) -> None:
    text = re.sub(r"<script.*?</script>", "", one.read_text(), flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text


def test_the_best_is_marked_among_equals_only(place: Path) -> None:
    for seed in range(3):
        run = write_run(place / "best" / f"seed-{seed}", settings(2, 8, 3, FIVE[:4], f"seed={seed}"))
        (run / "afl" / "rounds.parquet").unlink()  # as if it had just begun
        shutil.rmtree(run / "afl-quant")
    begun = headline(find_groups([place / "best"])).lines
    assert [line.algorithm for line in begun] == ["sgd", "afl-prune"]
    assert not any(cell.best for line in begun for cell in line.cells)  # the central baseline is no rival
    for seed in range(3):
        write_run(place / "best2" / f"seed-{seed}", settings(2, 8, 3, ["sgd", "afl", "2ceoafl"], f"seed={seed}"))
    table = headline(find_groups([place / "best2"]))
    central, *rivals = table.lines
    assert not any(cell.best for cell in central.cells)
    assert [cell.text for cell in central.cells][2:] == ["–"] * 7
    for k, name in enumerate(table.names):
        values, marked = ([getattr(line.cells[k], what) for line in rivals] for what in ("value", "best"))
        if MEASURES[name].source == "modelled":  # a model's figure wins nothing
            assert not any(marked)
        else:
            assert sum(marked) == 1
            assert marked.index(True) == (np.argmax if k < 2 else np.argmin)(values)


def test_one_seed_marks_nothing_and_the_page_says_so(place: Path) -> None:
    run = write_run(place / "single", settings(2, 8, 3, ["afl", "2ceoafl"]))
    assert not any(cell.best for line in headline(find_groups([run])).lines for cell in line.cells)
    text = write_page([run], place / "single.html").read_text()
    assert "One seed: no row is called better." in text
    assert "95 % interval" not in text.partition("<script")[0]


def test_uplink_and_downlink_are_those_of_the_tables(place: Path) -> None:
    run = write_run(place / "both ways", settings(3, 6, 3, ["afl"]))
    table = headline(find_groups([run]))
    cells = dict(zip(table.names, table.lines[0].cells, strict=True))
    rounds, uplink = (Table(run / "afl", name).rows() for name in ("rounds", "uplink"))
    assert cells["uplink_bytes"].value == sum(row["wire_bytes"] for row in uplink)
    assert cells["downlink_bytes"].value == sum(row["downlink_bytes"] for row in rounds)
    (sizes,) = data_of(write_page([run], run / "report.html"))["payload"]
    assert sizes["down"][0] == pytest.approx(min(row["downlink_bytes"] for row in rounds[:-1]) / 3e6, rel=1e-3)
    assert sizes["down"][-1] == pytest.approx(max(row["downlink_bytes"] for row in rounds) / 3e6, rel=1e-3)


def test_algorithms_vehicles_and_uses_of_energy_have_colours_of_their_own() -> None:
    def in_oklab(colour: str) -> np.ndarray:
        share = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        light = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
        cones = np.cbrt(np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]]) @ light)
        return np.array([[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]) @ cones

    pairs = [*itertools.product(VEHICLES, COLOURS), *itertools.product(PARTS.values(), (*COLOURS, *VEHICLES))]
    near = {(own, other): float(np.linalg.norm(in_oklab(own) - in_oklab(other))) for own, other in pairs}
    assert min(near.values()) > 0.09, min(near, key=near.__getitem__)


def test_the_header_says_what_differs(several: Path) -> None:
    text = re.sub(r"<script.*?</script>", "", several.read_text(), flags=re.DOTALL)
    lines = [re.findall(r"<(?:b|span)>(.*?)</", line) for line in re.findall(r'<p class="facts">(.*?)</p>', text)]
    assert "3 vehicles" in lines[0]
    assert lines[1:] == [[f"delta={x}", f"prune.delta = {x}", "2 seeds: 0, 1"] for x in (0.25, 0.5)]


def test_numbers_are_those_of_the_tables(one: Path) -> None:
    data, folder = data_of(one), one.parent
    rows = Table(folder / "afl", "rounds").rows()
    line = next(each for each in data["accuracy"] if each["algorithm"] == "afl")
    np.testing.assert_allclose(line["y"]["accuracy"]["mean"], [100 * row["accuracy"] for row in rows], rtol=1e-3)
    uplink = Table(folder / "afl", "uplink").rows()
    sent = sum(row["wire_bytes"] for row in uplink) + sum(row["downlink_bytes"] for row in rows)
    assert line["x"]["megabytes"][-1] == pytest.approx(sent / 1e6, rel=1e-4)
    assert line["x"]["mission"] == [t + 1 for t in range(24)]
    assert line["x"]["joules"][-1] == pytest.approx(sum(row["joules"] for row in rows) / 1e3, rel=1e-4)
    spent = next(each["joules"] for each in data["energy"] if each["algorithm"] == "afl")
    for part, joules in spent.items():
        known = sum(row[f"{part}_joules"] for row in Table(folder / "afl", "vehicles").rows())
        assert joules == pytest.approx(known, rel=1e-4)
    payload = next(each for each in data["payload"] if each["algorithm"] == "afl")
    assert payload["measured"][-1] == pytest.approx(max(row["wire_bytes"] for row in uplink) / 1e6, rel=1e-3)
    assert payload["formula"][0] == pytest.approx(min(row["paper_bits"] for row in uplink) / 8e6, rel=1e-3)


def test_a_large_fleet_stays_small(place: Path) -> None:
    run = write_run(place / "large", settings(60, 300, 40, ["afl"]), done=0)
    path = write_page([run], run / "report.html")
    flights = data_of(path)["map"][0]
    assert flights["shown"] == 50
    assert flights["vehicles"] == 60
    assert path.stat().st_size < 8e6


def test_places_are_found_named_and_refused(place: Path, several: Path, one: Path) -> None:
    assert [group.name for group in find_groups([several.parent])] == ["delta=0.25", "delta=0.5"]
    assert [len(group.folders) for group in find_groups([several.parent / "delta=0.5"])] == [2]
    assert next(group.name for group in find_groups([one.parent, several.parent, one.parent])) == "one"
    twins = [write_run(place / side / "mine", settings(1, 2, 2, ["afl"])) for side in ("a", "b")]
    assert [group.name for group in find_groups(twins)] == ["a/mine", "b/mine"]
    assert [group.name for group in find_groups([several.parent / "delta=0.5" / "seed-1"])] == ["delta=0.5/seed-1"]
    (place / "empty").mkdir()
    for wrong in (place / "empty", place / "nowhere", one):
        with pytest.raises(BadInputError):
            find_groups([wrong])
    with pytest.raises(BadInputError, match="is a folder"):
        write_page([one.parent], place)
    (twins[0] / "afl" / "uplink.parquet").write_bytes(b"no table")
    with pytest.raises(BadInputError, match="not a table"):
        write_page([twins[0]], place / "damaged.html")


def test_the_command_writes_where_it_says_and_refuses_in_one_line(one: Path, several: Path, tmp_path: Path) -> None:
    def skyfed(*arguments: object) -> in_process.Said:
        return in_process.skyfed(tmp_path, "report", *map(str, arguments), draws=True)

    one.unlink()
    done = skyfed(one.parent)
    assert done.stdout.splitlines() == [f"report: {one}"]
    assert one.exists()
    assert skyfed(one.parent, several.parent).stdout == "report: report.html\n"
    assert (tmp_path / "report.html").exists()
    assert skyfed(one.parent, "--out", "deep/er/page.html").returncode == 0
    for wrong in (["nowhere"], [tmp_path], [], [one.parent, "--out", tmp_path]):
        done = skyfed(*wrong)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_the_page_is_written_without_torch(one: Path) -> None:
    script = "import sys, skyfed.report.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
