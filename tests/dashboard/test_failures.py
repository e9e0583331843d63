"""The screens about failures in a browser: what broke and for whom, in how many clicks; hostile texts; no script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard.conftest import Site, assert_fits, portray
from tests.dashboard.filling import HOSTILE, TRACEBACK, row

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.server.conftest import Running

pytestmark = pytest.mark.long
Tab = Callable[..., "Page"]


class Clicks:
    """Counts the clicks that a question takes."""

    def __init__(self) -> None:
        self.count = 0

    def on(self, what: Locator) -> None:
        what.click()
        self.count += 1


@pytest.fixture(scope="module")
def db(site: Site) -> Iterator[psycopg.Connection]:
    with psycopg.connect(site.config.database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def broken(db: psycopg.Connection) -> None:
    """Mail that one customer's server refuses, since the last deploy; and a payment that fails now and then."""
    db.execute("INSERT INTO deploys (deployed_at, seen_at) VALUES (now(), now() - interval '12 min')")
    for n in range(14):
        customer = "acme" if n < 11 else f"shop-{n}"
        tags, kwargs = {"customer": customer, "region": "eu"}, {"order": 9000 + n, "api_token": "t0psecret"}
        row(db, "dead_letter", ago=400 - n * 20, name="mail.send", error=TRACEBACK, tags=tags, kwargs=kwargs)
    for n in range(5):
        tags, error = {"customer": f"c-{n}"}, f"Traceback\nTimeoutError: gateway {n}"
        row(db, "failed", ago=3000 - n * 500, name="billing.charge", error=error, tags=tags, kwargs={"amount": 5})
    row(db, "dead_letter", ago=7200, name="billing.charge", error="TimeoutError: gateway 9")


def test_what_broke_in_ten_minutes_and_for_whom_takes_two_clicks(tab: Tab, broken: None) -> None:
    page, clicks = tab("/"), Clicks()
    clicks.on(page.get_by_role("link", name="By cause, and for whom"))
    page.get_by_role("heading", name="Failures").wait_for()
    first = page.locator("tr[data-row]").first
    assert "mail.send" in first.inner_text()
    assert "customer acme 79%" in " ".join(first.inner_text().split()), "for whom is said in the list"
    assert first.locator(".badge", has_text="new").count() == 1
    clicks.on(first.get_by_role("link", name="mail.send"))
    page.get_by_role("heading", name="For whom").wait_for()
    shown = page.locator(".whom-table").inner_text()
    assert all(text in shown for text in ("customer", "acme", "79%", "masked"))
    assert "t0psecret" not in page.content()
    assert page.locator("pre.traceback").is_visible()
    assert clicks.count <= 2


def test_replaying_an_error_slowly_after_a_fix_takes_four_clicks(
    site: Site, tab: Tab, broken: None, db: psycopg.Connection
) -> None:
    page, clicks = tab("/"), Clicks()
    clicks.on(page.get_by_role("link", name="By cause, and for whom"))
    clicks.on(page.get_by_role("link", name="mail.send"))
    clicks.on(page.get_by_role("button", name="Replay 14 dead letters"))
    assert site.client.replays() == [], "it asks first"
    dialog = page.locator("dialog#confirm")
    assert "danger" in (dialog.locator("[data-yes]").get_attribute("class") or "")
    clicks.on(dialog.get_by_role("button", name="Replay 14 dead letters"))
    page.get_by_role("heading", name="Replay of 14 dead letters").wait_for()
    [replay] = site.client.replays()
    assert (replay.per_minute, replay.canary, replay.status) == (30, "wanted", "running")
    assert clicks.count <= 4
    portray(page, "replay")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused. What was replayed goes on.").wait_for()
    db.execute("UPDATE replays SET canary = 'failed', reason = 'the canary is dead letter: <b>Boom</b>', replayed = 3, "
               "completed = 1, failed = 1")  # fmt: skip
    page.goto("/replays")
    page.get_by_text("3 of 14").wait_for()
    portray(page, "replays")
    page.locator("tr[data-row] a.name").click()
    page.get_by_text("the canary is dead letter: <b>Boom</b>").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop the replay").click()
    page.get_by_text("Stopped. The other dead letters stay").wait_for()
    assert site.client.replays()[0].status == "stopped"


def test_without_script_the_server_asks_before_a_replay_begins(
    site: Site, tab: Tab, broken: None, db: psycopg.Connection
) -> None:
    page = tab("/failures", java_script_enabled=False)
    page.get_by_role("link", name="mail.send").click()
    page.get_by_label("Rate").fill("5")
    page.get_by_role("button", name="Replay 14 dead letters").click()
    page.get_by_role("heading", name="Are you sure?").wait_for()
    page.get_by_role("button", name="Replay 14 dead letters").click()
    page.get_by_role("heading", name="Replay of 14 dead letters").wait_for()
    replay = site.client.replays()[0]
    assert (replay.per_minute, replay.status) == (5, "running")
    site.client.stop_replay(replay.id)


def test_a_viewer_sees_the_screens_and_no_button(
    site: Site, browser: Browser, broken: None, server: Callable[..., Running]
) -> None:
    tokens = [site.client.create_token("look", roles=["viewer"])]
    url = server(site.config)
    try:
        for path in ("/failures", "/replays", f"/failures/{site.client.dead_letter_groups()[0].fingerprint}"):
            answer = url.http.get(path, headers={"Authorization": f"Bearer {tokens[0].text}", "Accept": "text/html"})
            assert answer.status_code == 200
            assert 'action="/replays' not in answer.text
            assert "Replay 14" not in answer.text
    finally:
        with psycopg.connect(site.config.database_url, autocommit=True) as db:
            db.execute("DELETE FROM api_tokens")


def test_pictures_of_the_screens(tab: Tab, broken: None) -> None:
    page = tab("/failures?range=24h")
    portray(page, "failures")
    page.get_by_role("link", name="mail.send").first.click()
    page.get_by_role("heading", name="For whom").wait_for()
    portray(page, "failure")


def test_ranges_narrow_the_list_and_an_own_range_is_a_form(tab: Tab, broken: None) -> None:
    page = tab("/failures")
    assert page.locator("tr[data-row]").count() == 1, "the payments failed longer ago"
    page.get_by_role("link", name="1h", exact=True).click()
    page.get_by_role("link", name="billing.charge").wait_for()
    page.get_by_text("Own range").click()
    page.get_by_label("From").fill("2020-01-01T00:00")
    page.get_by_label("to", exact=True).fill("2020-01-02T00:00")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("No failures in this range").wait_for()
    assert "since=2020-01-01T00%3A00" in page.url


def test_the_screens_work_without_script(tab: Tab, broken: None) -> None:
    page = tab("/failures?range=1h", java_script_enabled=False)
    page.get_by_role("link", name="mail.send").click()
    page.get_by_role("heading", name="For whom").wait_for()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_shown_and_not_obeyed(tab: Tab, db: psycopg.Connection, text: str) -> None:
    id_ = row(db, "dead_letter", ago=5, name=text[:900].replace("\x00", ""), error=text, queue="h",
              tags={text: text}, kwargs={text: text})  # fmt: skip
    page = tab("/failures")
    assert_fits(page)
    cause = db.execute("SELECT tasklib_fingerprint(name, error) FROM tasks WHERE id = %s", [id_]).fetchall()[0][0]
    page.goto(f"/failures/{cause}")
    page.get_by_role("heading", name="For whom").wait_for()
    assert_fits(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert_fits(page)
    db.execute("DELETE FROM tasks WHERE id = %s", [id_])
