"""The screens of schedules in a browser: what they show, every action, and pictures in light, dark and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest

from tests.dashboard.conftest import Site, assert_fits, portray
from tests.dashboard.scenes import HOSTILE
from tests.dashboard.schedule_scenes import hostile, shop, slot_of
from tests.server.conftest import running

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]


@pytest.fixture(autouse=True)
def _shop(site: Site) -> Iterator[None]:
    shop(site)
    yield
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        db.execute("TRUNCATE schedules, schedule_skips, tasks")


def _confirm(page: Page) -> None:
    page.locator("dialog#confirm [data-yes]").click()


def _actions(site: Site, name: str) -> list[str]:
    return [record.action for record in site.client.audit(target=name)]


def test_the_list_shows_state_note_lateness_and_the_last_runs_in_colour_and_words(tab: Tab) -> None:
    page = tab("/schedules")
    nightly = page.locator("tr", has_text="nightly-report")
    assert nightly.locator(".strip li").count() == 10
    assert nightly.locator(".strip li.dead_letter").count() == 1
    nightly.get_by_text("8 completed, 1 dead letter, 1 failed").wait_for()
    nightly.get_by_text("At 03:00 every day, Europe/Berlin").wait_for()
    page.locator("tr", has_text="newsletter").get_by_text("ticket 1042").wait_for()
    page.locator("tr", has_text="late-one").get_by_text("late by 1 h").wait_for()
    page.locator("tr", has_text="old-cleanup").get_by_text("retired").wait_for()
    portray(page, "schedules")
    page.get_by_label("State").select_option("paused")
    page.wait_for_url("**/schedules?state=paused*")
    assert page.locator("tbody tr").count() == 1
    page.goto("/schedules?q=NIGHTLY")
    assert page.locator("tbody tr").count() == 1


def test_the_calendar_shows_times_and_counts_of_dense_schedules(tab: Tab) -> None:
    page = tab("/schedules/calendar")
    page.locator(".often li", has_text="heartbeat").get_by_text("86,400 times").wait_for()
    page.locator(".often li", has_text="stock").get_by_text("96 times").wait_for()
    page.locator(".often li", has_text="late-one").get_by_text("24 times").wait_for()
    assert page.locator(".fires li", has_text="newsletter").count() == 0
    page.get_by_label("Times of").select_option("Europe/Berlin")
    page.wait_for_url("**/schedules/calendar?zone=Europe%2FBerlin")
    page.locator(".fires li", has_text="03:00 nightly-report").wait_for()
    portray(page, "schedules-calendar")


def test_one_schedule_shows_its_definition_times_runs_and_skipped_slots(site: Site, tab: Tab) -> None:
    page = tab("/schedules")
    page.get_by_role("link", name="nightly-report").click()
    page.get_by_role("heading", name="nightly-report").wait_for()
    assert page.locator(".upcoming tbody tr").count() == 20
    page.get_by_text("An earlier run was not finished").wait_for()
    page.get_by_text("shop.tasks").wait_for()
    assert "hunter2" not in page.content()
    portray(page, "schedule")
    slot = slot_of(site, "nightly-report")
    page.goto(f"/schedules/show?name=nightly-report&at={quote(slot.isoformat())}")
    page.locator("#of-slot", has_text="was fired: task").wait_for()
    page.locator(".ran-slots a").first.click()
    page.wait_for_url("**/tasks/*")


def test_a_schedule_is_previewed_and_created_and_mistakes_are_told(site: Site, tab: Tab) -> None:
    page = tab("/schedules/new", expecting=("422",))
    page.get_by_label("Name").fill("weekly")
    page.get_by_label("Task function").fill("reports.weekly")
    page.get_by_label("Cron").fill("61 3 * * MON")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Arguments").fill('{"full": true}')
    page.get_by_role("button", name="Create").click()
    page.locator(".notice.bad", has_text="61").wait_for()
    assert page.get_by_label("Arguments").input_value() == '{"full": true}'
    page.get_by_label("Cron").fill("0 3 * * MON")
    page.get_by_role("button", name="Preview").click()
    page.locator("#preview", has_text="At 03:00 on Monday, Europe/Berlin").wait_for()
    assert page.locator("#preview tbody tr").count() == 20
    portray(page, "schedule-new")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("Created. It runs at its next slot.").wait_for()
    made = site.client.get_schedule("weekly")
    assert (made.task, made.schedule.cron, dict(made.schedule.args)) == (
        "reports.weekly",
        ("0 3 * * MON",),
        {"full": True},
    )
    assert _actions(site, "weekly") == ["schedule.create"]


def test_a_change_keeps_what_was_not_touched_and_masked_arguments(site: Site, tab: Tab) -> None:
    before = site.client.get_schedule("nightly-report").schedule
    page = tab("/schedules/change?name=nightly-report")
    page.get_by_text("declared in code").wait_for()
    assert "hunter2" not in page.content()
    portray(page, "schedule-change")
    page.get_by_label("If an earlier run is not finished").select_option("wait_one")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Changed. It continues from now.").wait_for()
    after = site.client.get_schedule("nightly-report").schedule
    assert (after.overlap, after.args, after.jitter) == ("wait_one", before.args, timedelta(seconds=30))


def test_a_form_that_is_older_than_the_schedule_changes_nothing(site: Site, tab: Tab) -> None:
    page = tab("/schedules/change?name=stock", expecting=("422",))
    site.client.change_schedule("stock", every=timedelta(minutes=10))
    page.get_by_label("Or every").fill("20m")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("since this form was opened").wait_for()
    assert site.client.get_schedule("stock").schedule.every == timedelta(minutes=10)


def test_a_schedule_is_paused_with_a_note_resumed_run_and_deleted(site: Site, tab: Tab) -> None:
    page = tab("/schedules/show?name=stock")
    page.locator("summary", has_text="Pause").click()
    page.get_by_label("Note").fill("stocktaking")
    portray(page, "schedule-pause")
    page.get_by_role("button", name="Pause it").click()
    page.get_by_text("Paused. Slots that pass").wait_for()
    assert site.client.get_schedule("stock").pause_note == "stocktaking"
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("Resumed. Its next slot is").wait_for()
    page.get_by_role("button", name="Run now").click()
    _confirm(page)
    page.get_by_text("Submitted a run of stock.").wait_for()
    page.goto("/schedules/show?name=stock")
    page.get_by_role("button", name="Delete").click()
    _confirm(page)
    page.get_by_text("Deleted stock. Its tasks stay.").wait_for()
    done = ["schedule.delete", "schedule.run", "schedule.resume", "schedule.pause", "schedule.create"]
    assert _actions(site, "stock")[:5] == done


def test_a_backfill_shows_its_count_before_it_runs(site: Site, tab: Tab) -> None:
    page = tab("/schedules/backfill?name=invoices", expecting=("422",))
    page.get_by_label("From").fill("2026-02-01T00:00:00")
    page.get_by_label("To", exact=True).fill("2026-01-01T00:00:00")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("is later than").wait_for()
    page.get_by_label("From").fill("2026-01-01T00:00:00")
    page.get_by_label("To", exact=True).fill("2026-06-30T00:00:00")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="6 slots").wait_for()
    portray(page, "schedule-backfill")
    page.get_by_role("button", name="Run 6 slots").click()
    page.get_by_text("Submitted 6 tasks for 6 slots.").wait_for()
    assert page.locator(".strip li").count() == 6
    assert "schedule.backfill" in _actions(site, "invoices")


def test_a_backfill_one_by_one_is_chosen_shown_and_leads_to_its_flow(site: Site, tab: Tab) -> None:
    page = tab("/schedules/backfill?name=invoices")
    page.get_by_label("From").fill("2026-01-01T00:00:00")
    page.get_by_label("To", exact=True).fill("2026-03-31T00:00:00")
    page.get_by_label("Overlap").select_option("One by one: each when the run before it has ended")
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("They run one by one, the oldest first").wait_for()
    assert page.get_by_label("Overlap").input_value() == "one_by_one"
    portray(page, "schedule-backfill-one-by-one")
    page.get_by_role("button", name="Run 3 slots").click()
    page.wait_for_url("**/flows/*")
    page.get_by_text("Submitted 3 tasks for 3 slots. They run one by one.").wait_for()
    page.get_by_role("heading", name="backfill of invoices").wait_for()
    [flow] = site.client.flows()
    made = [task for task in site.client.list_tasks(limit=100) if task.flow == flow.id]
    assert [(task.slot is not None, task.priority, task.state) for task in made] == [(True, 7, "pending")] * 3
    # Only the first can be claimed; each of the others waits for a gate of the flow.
    assert sorted(task.waits_for is None for task in made) == [False, False, True]


def test_everything_works_without_script(site: Site, tab: Tab) -> None:
    page = tab("/schedules/show?name=stock", java_script_enabled=False)
    page.locator("summary", has_text="Pause").click()
    page.get_by_label("Note").fill("by hand")
    page.get_by_role("button", name="Pause it").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Run now").click()
    page.get_by_role("button", name="Run its task now").click()
    page.get_by_text("Submitted a run of stock.").wait_for()
    page.goto("/schedules/change?name=stock")
    page.get_by_label("Or every").fill("5m")
    page.get_by_role("button", name="Preview").click()
    page.locator("#preview", has_text="Every 5 minutes").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Changed.").wait_for()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete this schedule").click()
    page.get_by_text("Deleted stock.").wait_for()


def test_hostile_strings_stay_strings(site: Site, tab: Tab) -> None:
    hostile(site)
    page = tab("/schedules")
    page.get_by_text("<script>alert(1)</script>").first.wait_for()
    portray(page, "hostile-schedules")
    for evil in HOSTILE:
        for screen in ("show", "change", "backfill"):
            page.goto(f"/schedules/{screen}?name={quote(evil[:400], safe='')}")
            assert page.locator("main img").count() == 0
            assert page.locator("main script").count() == 0
            assert_fits(page)
    page.goto(f"/schedules/show?name={quote(HOSTILE[0], safe='')}")
    portray(page, "hostile-schedule")
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("Resumed. Its next slot is").wait_for()
    page.get_by_role("button", name="Delete").click()
    _confirm(page)
    page.get_by_text("Deleted <script>").wait_for()
    page.goto("/schedules/calendar?zone=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E")
    page.get_by_role("heading", name="The coming day").wait_for()


# The last one: once there has been a token, the module's server needs one.
def test_a_viewer_sees_schedules_and_no_buttons(site: Site, tab: Tab) -> None:
    tokens = [site.client.create_token(role, roles=[role]).text for role in ("admin", "viewer")]
    with running(site.config) as url:
        page = tab("/login", at=url, expecting=("403",))
        page.get_by_label("Token").fill(tokens[1])
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        page.goto("/schedules/show?name=stock")
        for action in ("Run now", "Pause", "Delete", "Change", "Backfill"):
            assert page.get_by_text(action, exact=True).count() == 0
        for path in ("new", "change?name=stock", "backfill?name=stock"):
            page.goto(f"/schedules/{path}")
            page.locator(".error-page .code", has_text="403").wait_for()
        refused = page.evaluate("fetch('/schedules/run', {method: 'POST'}).then(r => r.status)")
        assert refused == 403
        page.close()
    for text in tokens:
        site.client.revoke_token(text)
