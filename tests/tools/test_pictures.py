"""The film of the demo: what a terminal shows, as an SVG that moves."""

from __future__ import annotations

import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tools.pictures import film
from tools.pictures.terminal import HEIGHT, LAST_FRAME, LONGEST_WAIT, Frame, Output, Screen, frames, record

FILM = ROOT / "docs/pictures/demo.svg"
SVG, LINK = "{http://www.w3.org/2000/svg}", "href"


def test_a_live_table_is_drawn_over_its_last_state() -> None:
    screen = Screen()
    screen.feed("title\r\nfirst\r\nrunning\r\n")
    screen.feed("\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[32mdone\x1b[0m\r\nafter")
    assert screen.lines[:3] == ["title", "\x1b[32mdone\x1b[0m", "after"]


def test_a_terminal_shows_its_last_lines() -> None:
    screen = Screen()
    screen.feed("\n".join(str(number) for number in range(100)))
    assert screen.seen() == tuple(str(number) for number in range(100 - HEIGHT, 100))


def test_waiting_is_shortened_and_the_last_frame_stays() -> None:
    shown = frames([Output(1, "a\n"), Output(31, "b\n"), Output(31.01, "c\n")])
    assert [frame.lines[:3] for frame in shown] == [("a", "", ""), ("a", "b", "c")]
    assert [frame.seconds for frame in shown] == [LONGEST_WAIT, LAST_FRAME]


def test_a_command_is_recorded_in_a_terminal() -> None:
    program = "import sys; print(sys.stdout.isatty())"
    assert "True" in "".join(output.text for output in record([sys.executable, "-c", program]))


def test_a_command_that_fails_is_not_filmed() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        record([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_film_in_the_readme_is_whole_and_needs_no_other_file() -> None:
    text = FILM.read_text()
    tree = ElementTree.fromstring(text)
    drawn = {group.get("id") for group in tree.iter(f"{SVG}g")}
    used = {use.get(LINK, "").removeprefix("#") for use in tree.iter(f"{SVG}use")}
    assert used
    assert used <= drawn
    assert not re.search(r"(?:src|href|url)\W+https?:", text)
    assert len(text) < 300_000


def test_the_film_in_the_readme_is_of_the_demo_and_ends_well() -> None:
    tree = ElementTree.fromstring(FILM.read_text())
    lines = {group.get("id"): "".join(group.itertext()).replace("\xa0", " ") for group in tree.iter(f"{SVG}g")}
    shown = [lines[use.get(LINK, "").removeprefix("#")] for use in tree.iter(f"{SVG}use")]
    for act in ("1. Urgent tasks", "2. Failed tasks", "3. A task that hangs", "4. A worker dies", "5. Throughput"):
        assert any(act in line for line in shown), act
    assert any("none was lost, none done twice" in line for line in shown[-6:])


@pytest.mark.long
def test_the_film_moves_in_a_browser(tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("needs chromium")
    picture = film.svg([Frame(("\x1b[31mfirst\x1b[0m",), 0.2), Frame(("second",), 0.2)], "a film", "two frames")
    (tmp_path / "film.svg").write_text(picture)
    with sync_api.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto((tmp_path / "film.svg").as_uri())
        places = "getComputedStyle(document.getElementById('strip')).transform"
        moved = page.evaluate_handle(places).json_value()
        page.wait_for_function(f"before => {places} !== before", arg=moved)
        browser.close()
