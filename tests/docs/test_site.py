"""The site is built from docs/ without a warning, and holds every page and every public name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tasklib
from tests.docs.pages import ROOT

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(directory)]
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return directory


def test_every_page_is_on_the_site_and_in_its_contents(site: Path) -> None:
    contents = _links(site / "index.html")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        path = page.relative_to(ROOT / "docs").with_suffix("")
        if path.name == "README":
            continue
        assert (site / path / "index.html").exists(), path
        assert f"{path}/" in contents, path


def test_the_python_reference_shows_every_public_name(site: Path) -> None:
    text = (site / "reference/python/index.html").read_text()
    missing = [name for name in tasklib.__all__ if f'id="tasklib.{name}"' not in text]
    assert missing == ["sync"]


def test_the_search_finds_words_of_pages(site: Path) -> None:
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert any("LISTEN" in part["text"] and part["location"].startswith("how-to/") for part in found)


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not [address for address in _loaded(page) if "//" in address], page


class _Tags(HTMLParser):
    """The start tags of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def _loaded(page: Path) -> list[str]:
    """The addresses of scripts, styles and pictures."""
    scripts = [said.get("src") or "" for tag, said in _Tags(page).found if tag in {"script", "img"}]
    styles = [said.get("href") or "" for tag, said in _Tags(page).found if tag == "link" and said["rel"] != "canonical"]
    return scripts + styles


def _links(page: Path) -> set[str]:
    return {said.get("href") or "" for tag, said in _Tags(page).found if tag == "a"}
