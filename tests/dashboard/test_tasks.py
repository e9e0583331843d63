"""The screens about tasks in a browser: search, selection, keys, actions; one task; dead letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard.conftest import Site, assert_fits, portray
from tests.dashboard.filling import HOSTILE, hostile_row, row, shop

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.long
Tab = Callable[..., "Page"]


@pytest.fixture(scope="module")
def db(site: Site) -> Iterator[psycopg.Connection]:
    with psycopg.connect(site.config.database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def ids(db: psycopg.Connection) -> dict[str, str]:
    return shop(db)


def names(page: Page) -> list[str]:
    return [text.strip() for text in page.locator("td.c-name a.name").all_inner_texts()]


def test_tasks_are_searched_walked_through_and_opened_by_keys(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/tasks")
    portray(page, "tasks")
    page.keyboard.press("/")
    page.keyboard.type("state:dead_letter error:refused")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"q=state%3Adead_letter"))
    assert set(names(page)) == {"send_email"}
    page.locator("body").click(position={"x": 600, "y": 5})
    for key in "jjkxj":
        page.keyboard.press(key)
    assert page.locator("tr.chosen").count() == 1
    page.get_by_text("1 selected").wait_for()
    here = page.locator("tr.here").get_attribute("id") or ""
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/tasks/{here.removeprefix('t-')}")


def test_a_search_that_means_nothing_is_refused_beside_the_box(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/tasks?q=state:fialed", expecting=("422",))
    assert "Did you mean failed?" in page.get_by_role("alert").inner_text()
    portray(page, "tasks-error")
    page.get_by_role("link", name="Clear").click()
    page.locator("tr[data-row]").first.wait_for()


def test_clicks_narrow_the_search_and_a_queue_leads_to_its_page_and_its_tasks(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/tasks")
    page.get_by_role("link", name=re.compile("Failed")).click()
    page.wait_for_url("**q=state%3Afailed")
    assert set(names(page)) == {"billing.charge_card"}
    page.get_by_role("link", name=re.compile("Pending")).click()
    page.wait_for_url("**q=state%3Apending")
    page.locator("td.c-queue").get_by_text("billing", exact=True).click()
    page.wait_for_url("**/queues/billing")
    page.locator("#actions").get_by_role("link", name="Tasks", exact=True).click()
    page.wait_for_url("**queue%3Abilling")
    assert names(page) == ["generate_invoice"]


def test_a_selection_is_cancelled_after_a_question(tab: Tab, site: Site, db: psycopg.Connection) -> None:
    chosen = [row(db, name="unwanted", queue="bulk") for _ in range(3)]
    page = tab("/tasks?q=queue:bulk")
    for task_id in chosen[:2]:
        page.locator(f'input[value="{task_id}"]').check()
    page.get_by_role("button", name="Cancel selected").click()
    page.get_by_role("heading", name="Cancel 2 selected tasks?").wait_for()
    portray(page, "tasks-confirm")
    page.get_by_role("button", name="Cancel 2 tasks").click()
    page.get_by_text("Cancelled 2 tasks.").wait_for()
    states = [found.state for i in chosen if (found := site.client.get_task(i))]
    assert states == ["cancelled", "cancelled", "pending"]


def test_all_that_match_are_replayed_after_a_question_with_their_number(
    tab: Tab, site: Site, db: psycopg.Connection
) -> None:
    for _ in range(60):
        row(db, "cancelled", name="again", queue="bulk2")
    page = tab("/tasks?q=queue:bulk2")
    page.get_by_role("button", name="Replay all that match").click()
    page.get_by_role("heading", name="Replay 60 tasks?").wait_for()
    page.get_by_role("button", name="Replay 60 tasks").click()
    page.get_by_text("Replayed 60 tasks.").wait_for()
    assert len(site.client.list_tasks(queue="bulk2", state="pending")) == 60


def test_pages_lead_there_and_back(tab: Tab, db: psycopg.Connection) -> None:
    for n in range(40):
        row(db, "completed", name=f"page{n}", queue="pages")
    page = tab("/tasks?q=queue:pages")
    assert names(page)[0] == "page39"
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**older=**")
    assert names(page) == [f"page{n}" for n in range(19, -1, -1)]
    page.get_by_role("link", name="Newer").click()
    page.wait_for_url("**newer=**")
    assert len(names(page)) == 20


# ---- one task ----


def test_a_dead_letter_is_shown_with_its_story_and_no_secret(tab: Tab, ids: dict[str, str]) -> None:
    page = tab(f"/tasks/{ids['dead']}")
    portray(page, "task-dead")
    text = page.locator("main").inner_text()
    assert "hunter2" not in text
    assert "t0p" not in text
    assert text.count("smtp.example.com:587 refused the connection") == 1, "once"
    for part in ("4bf92f3577b34da6a3ce929d0e0e4736", "welcome-42", "customer=42", "Attempt 2: error", "web2-99-b0"):
        assert part in text
    page.get_by_role("link", name="Show them").click()
    page.wait_for_url("**reveal=1")
    assert "hunter2" in page.locator("#arguments").inner_text()


def test_a_dead_letter_is_replayed(tab: Tab, site: Site, db: psycopg.Connection) -> None:
    task_id = row(db, "dead_letter", name="replay_me", error="boom")
    page = tab(f"/tasks/{task_id}")
    page.get_by_role("button", name="Replay", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Replay this task").click()
    page.get_by_text("It runs again from the beginning").wait_for()
    page.get_by_text("Replayed; it was dead letter").wait_for()
    page.get_by_text("task.replay").wait_for()


def test_a_task_is_cancelled_after_a_question(tab: Tab, site: Site, db: psycopg.Connection) -> None:
    task_id = row(db, name="cancel_me")
    page = tab(f"/tasks/{task_id}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_text("The task is cancelled.").wait_for()
    task = site.client.get_task(task_id)
    assert task is not None
    assert task.state == "cancelled"


def test_a_running_task_is_live(tab: Tab, ids: dict[str, str], db: psycopg.Connection) -> None:
    page = tab(f"/tasks/{ids['running']}")
    page.get_by_text("70%").wait_for()
    portray(page, "task-running")
    db.execute("""UPDATE tasks SET progress = '{"done": 81, "total": 90}' WHERE id = %s""", [ids["running"]])
    page.get_by_text("90%").wait_for()


def test_why_a_task_does_not_run_is_said(tab: Tab, ids: dict[str, str]) -> None:
    page = tab(f"/tasks/{ids['pending']}")
    assert "worker" in page.locator(".why").inner_text()
    portray(page, "task-pending")


def test_a_task_is_edited_and_submitted_anew(tab: Tab, site: Site, ids: dict[str, str]) -> None:
    page = tab(f"/tasks/{ids['dead']}", expecting=("422",))
    page.get_by_role("link", name="Edit and replay").click()
    box = page.get_by_label("Arguments")
    assert "hunter2" not in box.input_value()
    portray(page, "task-edit")
    box.fill("{not json")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("The arguments are not JSON").wait_for()
    box.fill('{"to": "bob@example.com", "smtp": {"host": "mx.example.com", "password": "••••••"}}')
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("Submitted as a new task").wait_for()
    made = site.client.get_task(page.url.rpartition("/")[2])
    assert made is not None
    assert made.kwargs == {"to": "bob@example.com", "smtp": {"host": "mx.example.com", "password": "hunter2"}}
    assert made.tags["edited_from"] == ids["dead"]


def test_a_waiting_task_is_edited_in_place(tab: Tab, site: Site, ids: dict[str, str]) -> None:
    page = tab(f"/tasks/{ids['pending']}", expecting=("422",))
    page.get_by_role("link", name="Edit", exact=True).click()
    portray(page, "task-edit-waiting")
    page.get_by_label("Due").fill("some day")
    page.get_by_role("button", name="Change this task").click()
    page.get_by_text("Due is a time such as").wait_for()
    page.get_by_label("Due").fill("2h")
    page.get_by_label("Queue").fill("moved")
    page.get_by_role("button", name="Change this task").click()
    page.get_by_text("The task is changed.").wait_for()
    assert site.client.get_task(ids["pending"]).queue == "moved"
    page.locator(".timeline", has_text="task.edit").wait_for()


# ---- dead letters ----


def test_dead_letters_are_replayed_by_cause_and_purged_one_by_one(
    tab: Tab, site: Site, ids: dict[str, str], db: psycopg.Connection
) -> None:
    page = tab("/dead-letters")
    portray(page, "dead-letters")
    line = page.locator("tr[data-row]").filter(has_text="is not a JPEG")
    assert line.locator(".c-count").inner_text().strip() == "3"
    line.get_by_role("link", name="resize_image").click()
    page.get_by_role("heading", name="resize_image").wait_for()
    portray(page, "dead-letter-group")
    page.locator("td.pick input").first.check()
    page.get_by_role("button", name="Purge selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the selected").click()
    page.get_by_text("Deleted 1 dead letter.").wait_for()
    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay all").click()
    page.get_by_text("Replayed 2 dead letters.").wait_for()
    assert page.locator("tr[data-row]").filter(has_text="is not a JPEG").count() == 0
    assert len(site.client.list_tasks(name="resize_image", state="pending")) == 2


# ---- without script ----


def test_reading_and_acting_need_no_script(tab: Tab, db: psycopg.Connection) -> None:
    task_id = row(db, name="plain", queue="noscript")
    page = tab("/tasks?q=queue:noscript", java_script_enabled=False)
    assert names(page) == ["plain"]
    page.locator(f'input[value="{task_id}"]').check()
    page.get_by_role("button", name="Cancel selected").click()
    page.get_by_role("button", name="Cancel 1 task").click()
    page.get_by_text("Cancelled 1 task.").wait_for()


def test_an_empty_list_says_so(tab: Tab) -> None:
    page = tab("/tasks?q=name:nobody_has_this_name")
    page.get_by_text("No task matches this search").wait_for()


# ---- hostile texts ----


def test_hostile_texts_open_no_dialog_break_no_policy_and_no_layout(
    tab: Tab, site: Site, db: psycopg.Connection
) -> None:
    """The tab is watched for dialogs and breaches; here we see that every page still fits its window."""
    dead = [hostile_row(db, evil, "dead_letter") for evil in HOSTILE]
    runs = [hostile_row(db, evil, "running") for evil in HOSTILE]
    groups = [f"/dead-letters/{g.fingerprint}" for g in site.client.dead_letter_groups(limit=100)]
    page = tab("/tasks")
    for number, path in enumerate(
        ["/tasks", "/dead-letters", *groups[:3], *(f"/tasks/{i}" for i in [*dead, *runs]), f"/tasks/{dead[1]}/edit"]
    ):
        page.goto(path, wait_until="load")
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert_fits(page)
        if number in (0, 5):
            portray(page, f"hostile-{number}")
    db.execute("DELETE FROM tasks WHERE id = ANY (%s::uuid[])", [dead + runs])
