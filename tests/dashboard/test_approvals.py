"""Approvals in a browser: found, filled in, answered; also without script. Pictures in light, dark and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard.conftest import Site, portray
from tests.dashboard.test_approvals_http import INSERT, asking

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]


@pytest.fixture
def db(site: Site) -> Iterator[psycopg.Connection]:
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        yield db
        db.execute("DELETE FROM tasks")


@pytest.mark.parametrize("with_script", [True, False])
def test_an_approval_is_found_filled_in_and_approved(
    site: Site, tab: Tab, db: psycopg.Connection, with_script: bool
) -> None:
    asking(db, "ship", "Ship order 12 without payment?", form=None, expires_at="2040-01-01T00:00:00+00:00")
    task_id = asking(db, details={"invoice": "R-17", "vendor": "ACME GmbH", "items": [1, 2]})
    page = tab("/approvals", java_script_enabled=with_script)
    page.get_by_role("link", name="Ship order 12").wait_for()
    if with_script:
        portray(page, "approvals")
    page.get_by_role("link", name="Pay 5 to ACME?").click()
    page.get_by_role("heading", name="Pay 5 to ACME?").wait_for()
    page.get_by_label("Account").fill("DE02 1203 0000")
    page.get_by_label("Amount").fill("250")
    page.get_by_label("Kind").select_option("urgent")
    page.get_by_label("Confirmed").check()
    page.get_by_label("Comment").fill("checked with the bank")
    if with_script:
        portray(page, "approval")
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("Approved.").wait_for()
    assert page.url.endswith(f"/tasks/{task_id}")
    [(payload,)] = db.execute("SELECT payload FROM signals").fetchall()
    assert payload["form"]["account"] == "DE02 1203 0000"
    assert payload["form"]["confirmed"] is True
    assert payload["comment"] == "checked with the bank"


def test_a_signal_is_sent_from_the_page_of_its_task(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    [(task_id,)] = db.execute(INSERT, [["paid"]]).fetchall()
    page = tab(f"/tasks/{task_id}")
    page.get_by_role("link", name="Send a signal").click()
    page.get_by_label("Payload").fill('{"amount": 5}')
    portray(page, "signal")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("The signal is sent.").wait_for()
    assert db.execute("SELECT name, payload FROM signals").fetchall() == [("paid", {"amount": 5})]
