"""The pages of queues, task names and workers, and charts, in a browser: screens of every size, clicks counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest

from tests.dashboard.conftest import Site, assert_fits, portray
from tests.dashboard.scenes import HOSTILE, busy, hostile_task, hostile_worker

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]
PAGES = {
    "queue": "/queues/mail",
    "name": "/names/mail.send",
    "worker": "/workers/web-1-4107-c0ffee00",
    "chart": "/charts?of=run&by=name",
    "chart-worker": "/charts?of=outcomes&by=worker",
}


@pytest.fixture(scope="module", autouse=True)
def _busy(site: Site) -> None:
    busy(site)
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        for n, text in enumerate(HOSTILE):
            hostile_worker(db, text, f"{n}-")
            hostile_task(db, text)
            db.execute(
                """INSERT INTO stats_deltas (name, queue, level, outcome, count, worker)
                   VALUES (%s, %s, 'high', 'completed', 3, %s)""",
                (text, text, f"{n}-{text}"),
            )
            db.execute("INSERT INTO limits (name, max_running) VALUES (%s, 2)", (f"queue:{text[:200]}",))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_screen(tab: Tab, name: str) -> None:
    page = tab(PAGES[name])
    page.locator(".chart g.col").first.wait_for()
    portray(page, name)
    for width in (320, 768):
        page.set_viewport_size({"width": width, "height": 900})
        assert_fits(page)


@pytest.mark.parametrize("width", [320, 768, 1440])
def test_words_between_the_fields_of_a_form_stay_whole(tab: Tab, width: int) -> None:
    page = tab("/limits", viewport={"width": width, "height": 900})
    words = page.locator(".unit .soft")
    assert words.count() >= 6
    tall = words.evaluate_all("all => all.filter(e => e.offsetHeight > 30).map(e => e.textContent)")
    assert tall == []
    assert_fits(page)


@pytest.mark.parametrize("path", ["/tasks", "/tasks?q=state:running"])
def test_arguments_and_errors_can_be_read_at_every_width(tab: Tab, path: str) -> None:
    page = tab(path)
    for width in (390, 768, 1000, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        told = page.locator("td.c-error").first
        assert told.evaluate("e => e.getBoundingClientRect().right <= innerWidth")
        if width >= 821:
            assert told.evaluate("e => e.getBoundingClientRect().width") >= 120


@pytest.mark.parametrize("path", ["/", "/queues", "/workers", "/audit", "/tasks/new"])
def test_the_lists_fit_a_small_phone_and_a_tablet(tab: Tab, path: str) -> None:
    page = tab(path)
    for width in (320, 768):
        page.set_viewport_size({"width": width, "height": 900})
        assert_fits(page)


@pytest.mark.parametrize("text", HOSTILE, ids=["script", "img", "bidi", "long"])
def test_hostile_names_stay_strings_on_their_pages(tab: Tab, text: str) -> None:
    n = HOSTILE.index(text)
    page = tab(f"/queues/{quote(text, safe='')}")
    for place in (None, f"/names/{quote(text, safe='')}", f"/workers/{quote(f'{n}-{text}', safe='')}"):
        if place:
            page.goto(place)
        page.locator("h1 bdi", has_text=text[:20] if n != 2 else "{{7*7}}").wait_for()
        assert page.locator("main img, main script:not([src])").count() == 0
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert_fits(page)
    page.goto(f"/charts?of=outcomes&by=name&queue={quote(text, safe='')}")
    assert page.locator("main img, main script:not([src])").count() == 0
    assert_fits(page)


def test_what_is_behind_and_since_when_takes_one_click(tab: Tab) -> None:
    page = tab("/")
    clicks = 0
    late = page.get_by_role("region", name="Keeping up")
    assert "mail since" in re.sub(r"\s+", " ", late.inner_text()), "the first screen answers without a click"
    late.get_by_role("link", name="mail").click()
    clicks += 1
    page.wait_for_url("**/queues/mail")
    said = page.locator(".notice.bad").first.inner_text()
    assert re.search(r"Behind since \d\d:\d\d\.", said)
    assert "the backlog grows" in said
    page.get_by_role("img", name="Submitted and finished").locator("path.submitted").wait_for()
    assert clicks == 1


def test_a_column_opens_the_search_of_its_time(tab: Tab) -> None:
    page = tab("/queues/mail")
    column = page.get_by_role("img", name="Failed attempts", exact=False)
    assert column.count() == 0
    chart = page.get_by_role("img", name=re.compile("^Attempts by outcome"))
    chart.locator("g.col rect.completed").nth(20).click()
    page.wait_for_url("**/tasks?q=*")
    box = page.get_by_label("Search tasks").input_value()
    assert re.fullmatch(r"queue:mail created:\S+Z\.\.\S+Z", box)
    assert page.locator(".search-error").count() == 0


def test_times_are_the_readers_own_with_the_zone_and_utc_without_script(tab: Tab) -> None:
    page = tab("/charts?of=outcomes", timezone_id="Asia/Kolkata")
    page.get_by_text(re.compile(r"times in Asia/\w+ \(UTC\+5:30\)")).first.wait_for()
    first = page.locator("#data tbody time").first
    moment = first.get_attribute("datetime") or ""
    local = page.evaluate("m => { const d = new Date(m); return [d.getHours(), d.getMinutes()] }", moment)
    assert first.inner_text().endswith(f"{local[0]:02}:{local[1]:02}")
    page.locator("g.col").nth(20).hover(force=True)
    page.locator(".chart .tip:visible", has_text="UTC+5:30").wait_for()
    plain = tab("/charts?of=outcomes", timezone_id="Asia/Kolkata", java_script_enabled=False)
    time = plain.locator("#data tbody time").first
    assert time.inner_text()[-5:] == (time.get_attribute("datetime") or "")[11:16]
    assert plain.get_by_text("times in UTC").count() >= 1


def test_a_chart_is_grouped_compared_and_downloaded(tab: Tab) -> None:
    page = tab("/queues/mail")
    page.get_by_role("link", name="Data and grouping of Run time").click()
    page.wait_for_url("**/charts?of=run*")
    assert page.get_by_label("Queue").input_value() == "mail"
    page.get_by_label("Group by").select_option("name")
    page.wait_for_url("**by=name*")
    page.get_by_role("heading", name="Run time by task name").wait_for()
    page.get_by_label("Percentile").select_option("p99")
    page.wait_for_url("**share=p99*")
    assert page.get_by_label("Group by").input_value() == "name"
    with page.expect_download() as waiting:
        page.get_by_role("link", name="CSV").click()
    assert waiting.value.suggested_filename == "tasklib-run.csv"
    lines = waiting.value.path().read_text().splitlines()
    assert lines[0].startswith("start,mail.send")
    assert len(lines) == page.locator("#data tbody tr").count() + 1


def test_names_and_figures_lead_to_their_pages(tab: Tab) -> None:
    page = tab("/queues")
    page.get_by_role("link", name="media", exact=True).click()
    page.get_by_role("heading", name="Queue media").wait_for()
    page.get_by_role("link", name="images.resize").first.click()
    page.get_by_role("heading", name="Task name images.resize").wait_for()
    page.get_by_role("link", name="web-2-4117-c0ffee01").click()
    page.get_by_role("heading", name="Worker web-2-4117-c0ffee01").wait_for()
    page.locator(".slots rect.running").first.click()
    page.wait_for_url(re.compile("/tasks/[0-9a-f-]{36}$"))
    page.goto("/workers/web-2-4117-c0ffee01")
    page.get_by_role("link", name="Tasks", exact=True).last.click()
    assert page.get_by_label("Search tasks").input_value() == "worker:web-2-4117-c0ffee01"


def test_a_queue_is_paused_and_resumed_on_its_page(site: Site, tab: Tab) -> None:
    page = tab("/queues/reports")
    page.get_by_role("button", name="Pause queue").click()
    page.get_by_text("Paused queue reports.").wait_for()
    assert [(p.kind, p.value) for p in site.client.pauses()] == [("queue", "reports")]
    page.goto("/queues/reports")
    page.get_by_text("Paused since").wait_for()
    page.get_by_role("button", name="Resume queue").click()
    page.get_by_text("Resumed queue reports.").wait_for()
    assert site.client.pauses() == []
