"""Every screen in a browser: what it shows, what its buttons do, and pictures of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import Site, portray
from tests.dashboard.scenes import busy
from tests.server.conftest import running

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]
SCREENS = ("/", "/queues", "/workers")


@pytest.fixture(scope="module", autouse=True)
def _busy(site: Site) -> None:
    busy(site)


def test_the_overview_shows_the_range_that_is_chosen(tab: Tab) -> None:
    page = tab("/")
    page.get_by_role("img", name="Attempts by outcome").locator("rect.completed").first.wait_for()
    page.get_by_role("img", name="Run time").locator("path.p95").wait_for()
    assert page.get_by_role("img", name="Waiting tasks").locator("rect.high").count() > 30
    page.get_by_text("smtp.example didn't answer").first.wait_for()
    page.get_by_text("led by web-1-4107-c0ffee00").wait_for()
    portray(page, "overview")
    for name in ("15m", "6h", "24h"):
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_url(f"**/?range={name}")
    page.get_by_role("img", name="Attempts by outcome").locator("g.col").last.hover()
    page.locator(".chart .tip:visible", has_text="UTC").wait_for()


def test_a_queue_and_a_name_are_paused_and_resumed(site: Site, tab: Tab) -> None:
    page = tab("/queues")
    portray(page, "queues")
    for kind, value in (("queue", "media"), ("name", "mail.send")):
        line = page.locator("tr", has=page.locator(f'input[name=value][value="{value}"]'))
        line.get_by_role("button", name="Pause").click()
        page.get_by_text(f"Paused {kind} {value}.").wait_for()
        assert [(p.kind, p.value) for p in site.client.pauses()] == [(kind, value)]
        line.get_by_text("paused", exact=True).wait_for()
        line.get_by_role("button", name="Resume").click()
        page.get_by_text(f"Resumed {kind} {value}.").wait_for()
        assert site.client.pauses() == []
    page.reload()
    assert page.get_by_text("Resumed").count() == 0


def test_a_worker_is_drained_once_that_is_confirmed(site: Site, tab: Tab) -> None:
    page = tab("/workers")
    page.locator(".slots rect.running").first.wait_for()
    page.locator(".slots rect.failed").first.wait_for()
    portray(page, "workers")
    card = page.locator(".worker", has_text="web-2-4117-c0ffee01")
    card.get_by_role("button", name="Drain").click()
    page.get_by_role("button", name="Keep as it is").click()
    assert all(w.drain_requested_at is None for w in site.client.workers())
    card.get_by_role("button", name="Drain").click()
    page.locator("dialog#confirm [data-yes]").click()
    page.get_by_text("Asked web-2-4117-c0ffee01 to drain").wait_for()
    assert [w.id for w in site.client.workers() if w.drain_requested_at] == ["web-2-4117-c0ffee01"]
    card.get_by_text("asked to drain").wait_for()


def test_settings_are_changed_and_given_back(site: Site, tab: Tab) -> None:
    page = tab("/settings")
    page.get_by_label("counts as medium after").fill("90")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("It applies from each worker").wait_for()
    assert site.client.settings().promote_to_medium_after_seconds == 90
    portray(page, "settings")
    page.get_by_label("counts as medium after").fill("")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("from the configuration").first.wait_for()
    assert site.client.settings().changed == ()
    page.get_by_label("counts as medium after").fill("0")
    page.get_by_role("button", name="Save").click()
    page.locator(".notice.bad").wait_for()


def test_what_is_done_is_in_the_audit(site: Site, tab: Tab) -> None:
    site.client.pause(queue="mail")
    site.client.resume(queue="mail")
    page = tab("/audit?target=queue:mail")
    page.get_by_text("queue:mail").first.wait_for()
    portray(page, "audit")
    page.get_by_label("Action").select_option("resume")
    page.wait_for_url("**/audit?action=resume*")
    assert page.locator("tbody tr").count() == 1


def test_an_empty_database_says_what_to_do(tab: Tab, server_url: str, template_database: str) -> None:
    from tasklib import Config
    from tasklib.testing import databases

    with databases.database(server_url, template_database) as url, running(Config(url)) as empty:
        page = tab("/", at=empty)
        page.get_by_text("No task has run here yet").wait_for()
        portray(page, "overview-empty")
        page.goto("/queues")
        page.goto("/workers")
        page.get_by_text("Start one: tasklib worker").wait_for()
        page.close()  # before its server ends


@pytest.fixture
def locked(site: Site) -> Iterator[tuple[str, Callable[[str], str]]]:
    """The same database behind a server that asks for tokens, and `login(role)` tokens for it."""
    made: list[str] = []

    def token(role: str) -> str:
        made.append(site.client.create_token(role, roles=[role]).text)
        return made[-1]

    token("admin")
    with running(site.config) as url:
        yield url, token
    for text in made:
        site.client.revoke_token(text)


def _log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Overview").wait_for()


def test_a_viewer_sees_no_buttons_and_no_settings(locked: tuple[str, Callable[[str], str]], tab: Tab) -> None:
    url, token = locked
    page = tab("/login", at=url, expecting=("403",))
    _log_in(page, token("viewer"))
    for path in SCREENS:
        page.goto(path)
        assert page.locator("main button:not(.live)").count() == 0, path
        assert page.locator("main form").count() == 0, path
    assert page.get_by_role("link", name="Settings").count() == 0
    page.goto("/settings")
    page.locator(".error-page .code", has_text="403").wait_for()
    refused = page.evaluate("fetch('/queues/pause', {method: 'POST'}).then(r => r.status)")
    assert refused == 403


def test_a_token_is_shown_once_used_and_revoked(locked: tuple[str, Callable[[str], str]], site: Site, tab: Tab) -> None:
    url, token = locked
    page = tab("/login?next=/tokens", at=url)
    page.get_by_label("Token").fill(token("admin"))
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("Name").fill("ci <b>robot</b>")
    page.get_by_label("operator").check()
    page.get_by_label("Expires").select_option("30")
    page.get_by_role("button", name="Create token").click()
    text = page.locator("#new-token").inner_text()
    portray(page, "tokens")
    found = next(t for t in site.client.tokens() if t.name == "ci <b>robot</b>")
    assert set(found.roles) == {"viewer", "operator"}
    assert found.expires_at is not None
    assert found.prefix in text
    page.goto("/tokens")
    assert text not in page.content()

    # Without script: a page that reloads itself when its session ends would race with the test.
    theirs = tab("/login", at=url, java_script_enabled=False)
    _log_in(theirs, text)
    page.locator("tr", has_text="ci <b>robot</b>").get_by_role("button", name="Revoke").click()
    page.locator("dialog#confirm [data-yes]").click()
    page.get_by_text("It can't be used any more").wait_for()
    theirs.goto("/queues")
    theirs.get_by_label("Token").wait_for()
