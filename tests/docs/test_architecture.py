"""ARCHITECTURE.md and CONTRIBUTING.md describe the code as it is: its layers, its state chart, its files."""

from __future__ import annotations

import configparser
import re

import pytest

from tasklib import states
from tests.docs.pages import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
WORDS_ON_TWO_PAGES = 1700


def test_it_fits_two_pages() -> None:
    assert len(PAGE.split()) <= WORDS_ON_TWO_PAGES


def test_the_layers_are_those_that_are_enforced() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    enforced = contracts["importlinter:contract:layers"]["layers"].strip().splitlines()
    chart = PAGE.partition("## Layers")[2].partition("```text\n")[2].partition("```")[0].splitlines()
    for line, shown in zip(enforced, chart, strict=True):
        names = re.findall(r"\w+", line)
        assert re.findall(r"\w+", shown)[: len(names)] == names


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/explanation/how-a-task-travels.md"])
def test_the_state_chart_is_that_of_the_code(page: str) -> None:
    chart = (states.__doc__ or "").split("\n\n")[1]
    assert chart in (ROOT / page).read_text()


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_it_names_exists(page: str) -> None:
    for name in re.findall(r"`((?:\w+/)+[\w*-]*(?:\.\w+)?|\w+\.py)`", (ROOT / page).read_text()):
        places = [*ROOT.glob(name.rstrip("/")), *ROOT.glob(f"src/tasklib/{name.rstrip('/')}")]
        assert places, f"{page} names {name}"


def test_the_test_that_contributing_md_runs_as_an_example_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (path, name), *_ = re.findall(r"pytest (\S+)::(\w+)", text)
    assert f"def {name}(" in (ROOT / path).read_text()
