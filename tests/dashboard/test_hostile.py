"""Strings that mean harm, in every field that people can fill: no dialog, no breach, no broken layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard.conftest import Site, assert_fits, portray
from tests.dashboard.scenes import HOSTILE, hostile_task, hostile_worker

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]
SCREENS = ("/", "/queues", "/workers", "/tokens", "/audit", "/settings")


@pytest.fixture(scope="module", autouse=True)
def _hostile(site: Site) -> None:
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        for i, text in enumerate(HOSTILE):
            hostile_worker(db, text, f"{i}-")
            hostile_task(db, text)
            hostile_task(db, text, "dead_letter")
            db.execute(
                """INSERT INTO stats_deltas (name, queue, level, outcome, count)
                   VALUES (%s, %s, 'high', 'completed', 3)""",
                (text, text),
            )
            db.execute("INSERT INTO audit (actor, action, target) VALUES (%s, %s, %s)", (text, text, text))
            db.execute("INSERT INTO pauses (kind, value) VALUES ('name', %s)", (text,))


@pytest.mark.parametrize("path", SCREENS)
def test_hostile_strings_stay_strings(tab: Tab, path: str) -> None:
    page = tab(path)
    assert page.locator("main img").count() == 0
    assert page.locator("main script:not([src^='/assets/'])").count() == 0
    if path in ("/", "/queues", "/workers"):
        page.get_by_text("<script>alert(1)</script>").first.wait_for()
    portray(page, "hostile" + path.replace("/", "-").rstrip("-"))


def test_a_hostile_name_is_resumed_by_its_button(site: Site, tab: Tab) -> None:
    page = tab("/queues")
    lines = page.locator("tr", has=page.locator("form[action='/queues/resume']"))
    for text, seen in zip(HOSTILE, ("<script>", "<img", "{{7*7}}"), strict=False):
        lines.filter(has_text=seen).get_by_role("button", name="Resume").click()
        page.get_by_text("Resumed name").filter(has_text=seen).wait_for()
        assert_fits(page)
        assert text not in {p.value for p in site.client.pauses()}


def test_a_path_and_a_query_are_only_text(tab: Tab) -> None:
    page = tab("/%3Cscript%3Ealert(1)%3C/script%3E", expecting=("404",))
    page.get_by_role("heading", name="Not Found").wait_for()
    page.goto("/?range=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E")
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto("/audit?actor=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E&before=1")
    page.get_by_text("Nothing recorded").wait_for()
