"""The screens about failures in a browser: what broke and for whom, in how many clicks; hostile texts; no script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard.conftest import Site, assert_fits, portray
from tests.dashboard.filling import HOSTILE, TRACEBACK, row

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
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
        row(db, "dead_letter", ago=660 - n * 40, name="mail.send", error=TRACEBACK, tags=tags, kwargs=kwargs)
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
    assert page.get_by_role("heading", name="For whom").is_visible()


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
