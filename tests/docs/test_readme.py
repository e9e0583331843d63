"""The README: short, its pictures are those of the recorded runs, and it stands alone on PyPI."""

from __future__ import annotations

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tasklib
from tests.docs.pages import ROOT

TEXT = (ROOT / "README.md").read_text()
PEERS = ["Celery", "RQ", "Procrastinate", "PgQueuer", "DBOS", "Hatchet"]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def comparison() -> dict[str, list[str]]:
    """The rows of the comparison by what they compare."""
    section = TEXT.partition("## Comparison")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0] if row[0] != "TaskLib" else "": row for row in rows}


def long_description() -> str:
    """What PyPI is given, built as the build does it."""
    pytest.importorskip("hatchling", reason="comes with the extra `dev`")
    pytest.importorskip("hatch_fancy_pypi_readme", reason="comes with the extra `dev`")
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    return ProjectMetadata(str(ROOT), PluginManager()).core.readme


def test_it_can_be_read_in_two_minutes() -> None:
    prose = re.sub(r"^```.*?^```$|^\|.*$|^!\[.*$", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    words = re.sub(r"\]\([^)]*\)|<!--.*?-->", "", prose).split()
    assert len(words) < 600  # without code and tables, at 240 words and a glance at the pictures each minute


def test_it_first_says_the_name_to_install() -> None:
    first = TEXT.split("\n\n")[1]
    assert first.startswith("**`pip install tasklib-pg`**")
    assert "another program" in first


def test_the_comparison_has_every_peer_and_a_link_in_every_claim() -> None:
    heading, *rows = comparison().values()
    assert heading == ["TaskLib", *PEERS]
    assert len(rows) >= 8
    for what, *cells in rows:
        assert len(cells) == len(heading), what
        for cell in cells:
            assert cell in ("-", "not measured") or re.search(r"\]\([^)]+\)", cell), f"{what}: {cell} is not proven"


def test_the_restarts_in_the_comparison_are_those_that_were_recorded() -> None:
    recorded = (ROOT / "docs/explanation/reliability.md").read_text()
    found = re.findall(r"^\| database restarted \| (\w+).*\| (\d+) \|$", recorded, re.MULTILINE)
    row = dict(
        zip(["TaskLib", *PEERS], comparison()["Workers that ended when the database restarted"][1:], strict=True)
    )
    shown = {name.lower(): match[1] for name, cell in row.items() if (match := re.match(r"\[(\d+) of 2\]", cell))}
    assert shown == dict(found)


def test_the_chart_shows_the_recorded_speeds() -> None:
    from tools.pictures import speeds

    assert (ROOT / "docs/pictures/speed.svg").read_text() == speeds.svg(), "run: python -m tools.pictures"


def test_on_pypi_every_link_leads_to_a_file_of_this_version() -> None:
    source = PYPROJECT["project"]["urls"]["Source"]
    files = re.compile(rf"{re.escape(source)}/(?:blob|raw)/v{re.escape(tasklib.__version__)}/(?P<path>[^#]+)")
    links = re.findall(r"\]\(([^)\s]+)\)", long_description())
    assert len(links) == len(re.findall(r"\]\(([^)\s]+)\)", TEXT))
    assert all(link.startswith("https://") for link in links)
    ours = [match["path"] for link in links if (match := files.match(link))]
    assert len(ours) == len(re.findall(r"\]\((?!https://)[^)\s]+\)", TEXT))
    assert [path for path in ours if not (ROOT / path).exists()] == []


def test_pypi_shows_the_pictures_and_the_tables() -> None:
    markdown = pytest.importorskip("readme_renderer.markdown", reason="comes with the extra `dev`")
    html = markdown.render(long_description())
    assert html is not None

    class Shown(HTMLParser):
        pictures: list[str]
        cells: int

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "img":
                self.pictures.append(Path(dict(attrs)["src"] or "").name)
            self.cells += tag == "td"

    shown = Shown()
    shown.pictures, shown.cells = [], 0
    shown.feed(html)
    assert shown.pictures == ["demo.svg", "speed.svg"]
    assert shown.cells == sum(len(row) for name, row in comparison().items() if name)
