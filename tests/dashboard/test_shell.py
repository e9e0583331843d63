"""The shell in a browser: navigation, shortcuts, themes, live updates, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.dashboard.conftest import Site, portray

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]


def test_the_theme_follows_the_system_until_the_reader_chooses(tab: Tab) -> None:
    page = tab("/", color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_shortcuts_open_help_and_lead_to_screens(site: Site, tab: Tab) -> None:
    page = tab("/?from=elsewhere")
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keyboard shortcuts").wait_for()
    page.keyboard.press("Escape")
    page.clock.set_fixed_time(0)  # the second key counts for 1.2 s after the first
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(site.url + "/")
    page.get_by_role("heading", name="Overview").wait_for()


def test_the_page_is_live(tab: Tab) -> None:
    page = tab("/")
    page.locator(".live[data-on=true]").wait_for()
    with page.expect_response(lambda r: r.request.headers.get("hx-request") == "true"):
        pass


def test_reading_needs_no_script(tab: Tab) -> None:
    page = tab("/", java_script_enabled=False)
    page.get_by_role("heading", name="Overview").wait_for()


def test_errors_look_like_the_rest(tab: Tab) -> None:
    page = tab("/nothing-here", expecting=("404",))
    page.get_by_role("heading", name="Not Found").wait_for()
    portray(page, "error")


def test_logging_in_and_out(site: Site, tab: Tab) -> None:
    from tests.server.conftest import running

    token = site.client.create_token("reader", roles=["viewer"]).text
    try:
        with running(site.config) as url:
            page = tab("/login", at=url)
            portray(page, "login")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("heading", name="Overview").wait_for()
            page.get_by_role("button", name="Log out").click()
            page.get_by_label("Token").wait_for()
    finally:
        site.client.revoke_token(token)
