"""The questions of people on call, with clicks counted: why is it not running, and what did task Y do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard.conftest import Site
from tests.dashboard.filling import TRACEBACK, attempt, row

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]
COUNT = """
window.clicks = Number(sessionStorage.getItem("clicks") || 0);
addEventListener("click", () => sessionStorage.setItem("clicks", ++window.clicks), true);
"""


@pytest.fixture
def db(site: Site) -> Iterator[psycopg.Connection]:
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        yield db
        db.execute("DELETE FROM tasks")


def counting(page: Page) -> Page:
    """A page that counts clicks from now on, over the pages it leads to."""
    page.add_init_script(COUNT)
    page.reload()
    return page


def clicks(page: Page) -> int:
    return int(page.evaluate("Number(sessionStorage.getItem('clicks') || 0)"))


def test_why_a_task_is_not_running_takes_two_clicks_from_the_overview(tab: Tab, db: psycopg.Connection) -> None:
    row(db, name="render_invoice", queue="billing", required_capabilities=["pdf"])
    page = counting(tab("/"))
    page.locator(".nav").get_by_role("link", name="Tasks").click()
    page.get_by_role("link", name="render_invoice").click()
    said = page.locator(".why").inner_text()
    assert "No live worker" in said or "no live worker" in said
    assert clicks(page) <= 2


def test_what_a_task_did_takes_one_step_with_its_id(tab: Tab, db: psycopg.Connection) -> None:
    task_id = row(
        db, "dead_letter", name="send_email", error=TRACEBACK, retry_count=3, kwargs={"to": "ada@example.com"},
        history=[attempt(1, "TimeoutError: timed out"), attempt(2, TRACEBACK)],
    )  # fmt: skip
    page = counting(tab("/"))
    page.locator("[data-palette]").click()
    page.keyboard.insert_text(task_id)
    page.locator("#palette [role=option][aria-selected=true]", has_text=task_id).wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/tasks/{task_id}")
    text = page.locator("#task").inner_text()
    for part in ("ada@example.com", "Attempt 1", "Attempt 2", "TimeoutError: timed out", "refused the connection"):
        assert part in text, part
    assert clicks(page) <= 1


def test_json_folds_and_copies_the_path_of_a_name(tab: Tab, db: psycopg.Connection) -> None:
    task_id = row(db, kwargs={"order": {"id": 9001, "lines": [{"sku": "<b>x</b>"}]}})
    page = tab(f"/tasks/{task_id}", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="sku").click()
    page.locator(".key.copied").wait_for()
    path = page.evaluate("navigator.clipboard.readText()")
    assert path == "args.order.lines.0.sku"
    page.get_by_role("button", name="Fold args.order", exact=True).click()
    page.get_by_role("button", name="sku").wait_for(state="hidden")
    plain = tab(f"/tasks/{task_id}", java_script_enabled=False)
    assert json.loads(plain.locator("#arguments").inner_text())["order"]["id"] == 9001


def test_nothing_moves_while_thousands_of_tasks_arrive(tab: Tab, db: psycopg.Connection) -> None:
    """Selection, focus and scroll after thirty refreshes, 500 new tasks before each: half a minute of them."""
    ids = [row(db, name=f"steady{n}", queue="storm") for n in range(20)]
    page = tab("/tasks?q=queue:storm")
    page.locator(".live[data-on=true]").wait_for()
    page.locator(f'input[value="{ids[3]}"]').check()
    page.locator(f"#t-{ids[5]} a.name").focus()
    page.evaluate("window.scrollTo(0, 180)")
    before = page.evaluate("[scrollY, Array.from(document.querySelectorAll('tr[data-row]'), r => r.id)]")
    for number in range(30):
        db.execute("INSERT INTO tasks (name, queue) SELECT 'storm' || n, 'storm' FROM generate_series(1, 500) AS n")
        with page.expect_response(lambda r: "/tasks" in r.url and r.request.headers.get("hx-request") == "true"):
            page.evaluate("document.querySelectorAll('[data-live]').forEach(part => htmx.trigger(part, 'tick'))")
        page.locator("[data-held] [data-load]", has_text="new task").wait_for()
        after = page.evaluate("[scrollY, Array.from(document.querySelectorAll('tr[data-row]'), r => r.id)]")
        assert after == before, number
        assert page.locator(f'input[value="{ids[3]}"]').is_checked()
        assert page.evaluate("document.activeElement.closest('tr').id") == f"t-{ids[5]}"
    page.keyboard.press("n")
    page.get_by_role("link", name="storm500").first.wait_for()
    page.get_by_text("1 selected, 1 on other pages").wait_for()
