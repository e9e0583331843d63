"""Nothing moves under the hand: rows, selection, focus and buttons stay while new tasks come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard.conftest import Site
from tests.dashboard.filling import row
from tests.eventually import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.long
Tab = Callable[..., "Page"]


@pytest.fixture(scope="module")
def db(site: Site) -> Iterator[psycopg.Connection]:
    with psycopg.connect(site.config.database_url, autocommit=True) as connection:
        yield connection


def shown(page: Page) -> list[str]:
    return [id_ or "" for id_ in page.locator("tr[data-row]").evaluate_all("rows => rows.map(row => row.id)")]


def test_rows_hold_while_one_is_ticked_and_a_key_loads_the_new_ones(tab: Tab, db: psycopg.Connection) -> None:
    first = row(db, name="first", queue="selected")
    page = tab("/tasks?q=queue:selected")
    page.locator(f'input[value="{first}"]').check()
    page.mouse.move(5, 5)
    row(db, name="second", queue="selected")
    page.get_by_role("button", name="1 new task").wait_for()
    assert shown(page) == [f"t-{first}"]
    db.execute("UPDATE tasks SET state = 'cancelled', completed_at = now() WHERE id = %s", (first,))
    page.locator(f"#t-{first} .state.cancelled").wait_for()
    page.keyboard.press("n")
    page.get_by_role("link", name="second").wait_for()
    assert page.locator(f'input[value="{first}"]').is_checked()
    page.get_by_text("1 selected").wait_for()


@pytest.mark.parametrize("hold", ["hover", "focus", "cursor"])
def test_rows_hold_under_pointer_focus_and_cursor(tab: Tab, db: psycopg.Connection, hold: str) -> None:
    queue = f"held-{hold}"
    first = row(db, name="first", queue=queue)
    page = tab(f"/tasks?q=queue:{queue}")
    link = page.locator(f"#t-{first} a.name")
    if hold == "hover":
        link.hover()
    elif hold == "focus":
        link.focus()
    else:
        page.keyboard.press("j")
    row(db, name="second", queue=queue)
    page.get_by_role("button", name="1 new task").wait_for()
    assert shown(page) == [f"t-{first}"]
    if hold == "focus":
        assert link.evaluate("element => element === document.activeElement")


def test_a_selection_survives_paging_and_acts_on_all_of_it(tab: Tab, site: Site, db: psycopg.Connection) -> None:
    ids = [row(db, name=f"page{n}", queue="paged") for n in range(25)]
    page = tab("/tasks?q=queue:paged")
    page.locator(f'input[value="{ids[-1]}"]').check()
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**older=**")
    page.locator(f'input[value="{ids[0]}"]').check()
    page.get_by_text("2 selected, 1 on other pages").wait_for()
    page.get_by_role("button", name="Cancel selected").click()
    page.get_by_role("heading", name="Cancel 2 selected tasks?").wait_for()
    page.get_by_role("button", name="Cancel 2 tasks").click()
    page.get_by_text("Cancelled 2 tasks.").wait_for()
    cancelled = {task.id for task in site.client.list_tasks(queue="paged", state="cancelled")}
    assert {str(id_) for id_ in cancelled} == {str(ids[0]), str(ids[-1])}


def test_the_refresh_can_be_paused_and_goes_on(tab: Tab, db: psycopg.Connection) -> None:
    page = tab("/tasks?q=queue:paused-list")
    page.locator(".live[data-on=true]").click()
    page.get_by_role("button", name="Paused").wait_for()
    with page.expect_event("console", lambda message: message.text == "tick heard"):
        page.evaluate(
            "new EventSource(document.body.dataset.liveUrl).addEventListener('tick', () => console.log('tick heard'))"
        )
        row(db, name="late", queue="paused-list")
    assert shown(page) == []
    page.keyboard.press("p")
    page.get_by_role("link", name="late").wait_for()


def test_the_buttons_of_a_task_follow_its_state(tab: Tab, db: psycopg.Connection) -> None:
    task_id = row(db, name="short", queue="header")
    page = tab(f"/tasks/{task_id}")
    page.locator("#actions").get_by_role("button", name="Cancel").wait_for()
    page.locator(".live[data-on=true]").wait_for()
    db.execute("UPDATE tasks SET state = 'completed', completed_at = now() WHERE id = %s", (task_id,))
    page.locator("#actions").get_by_role("button", name="Replay", exact=True).wait_for()
    assert page.locator("#actions").get_by_role("button", name="Cancel").count() == 0


def test_a_finished_task_that_others_replay_shows_it_and_until_then_stays_still(
    tab: Tab, site: Site, db: psycopg.Connection
) -> None:
    task_id = row(db, "completed", name="done", queue="header", kwargs={"order": {"id": 7}}, result={"value": 1})
    page = tab(f"/tasks/{task_id}")
    page.locator(".live[data-on=true]").wait_for()
    page.get_by_role("button", name="Fold args.order", exact=True).click()
    page.evaluate("document.querySelector('#arguments').dataset.mark = 'same'")
    for moment in page.locator("#task time[data-exact]").all():
        moment.evaluate("element => { element.dataset.was = element.title }")
    page.wait_for_function("""() => [...document.querySelectorAll('#task time[data-was]')].some(
        element => element.title !== element.dataset.was)""")
    for _ in range(2):
        with page.expect_response(lambda r: r.request.headers.get("hx-request") == "true"):
            page.keyboard.press("r")
    assert page.locator("#arguments").get_attribute("data-mark") == "same"
    site.client.replay_task(task_id)
    page.locator("#actions").get_by_role("button", name="Cancel").wait_for()
    page.locator(".summary .state", has_text="pending").wait_for()


@pytest.mark.parametrize("during", ["press", "question"])
def test_a_refresh_that_arrives_between_a_press_and_its_answer_replaces_nothing(
    tab: Tab, db: psycopg.Connection, during: str
) -> None:
    worker = f"worker-of-{during}"
    db.execute("INSERT INTO workers (id, capacity, heartbeat_timeout_seconds) VALUES (%s, 4, 86400)", [worker])
    page = tab("/workers")
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if "hx-request" in route.request.headers and not held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/workers", hold_the_first)
    page.evaluate("document.addEventListener('htmx:afterRequest', () => { document.body.dataset.arrived = 'yes' })")
    db.execute("UPDATE workers SET current_load = 3 WHERE id = %s", [worker])
    page.keyboard.press("r")
    eventually(lambda: page.evaluate("true") and held, "the refresh is on its way")
    drain = page.locator(".worker", has_text=worker).get_by_role("button", name="Drain")
    if during == "press":
        drain.hover()
        page.mouse.down()
    else:
        drain.click()
        page.locator("dialog#confirm[open]").wait_for()
    held[0].continue_()
    page.locator("body[data-arrived=yes]").wait_for()
    if during == "press":
        page.mouse.up()
    page.locator("dialog#confirm [data-yes]").click()
    page.get_by_text(f"Asked {worker} to drain").wait_for()
