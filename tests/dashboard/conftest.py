"""A real browser in front of a real server: one of each per module.

Every tab is watched: a dialog, an error on the console or a breach of the content security policy fails the test.
Pictures of every screen go to tests/artefacts/dashboard.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tasklib import Client, Config
from tasklib.testing import databases
from tests.server.conftest import Running, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

ARTEFACTS = Path(__file__).parents[1] / "artefacts" / "dashboard"
PATIENCE_MS = 120_000
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
HTML = {"Accept": "text/html"}
DESKTOP, PHONE = (1280, 800), (390, 844)
_TELL_BREACHES = """
document.addEventListener("securitypolicyviolation", e => console.error("CSP breach: " + e.violatedDirective));
"""


@dataclass
class Site:
    """A running server, and a client of the same database."""

    url: Running
    config: Config
    client: Client


@dataclass
class Watched:
    """What a tab must not do."""

    troubles: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """Parts of messages that this test wants to see, such as `404`."""

    def note(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.troubles.append(text)

    def watch(self, page: Page) -> None:
        page.on("console", lambda m: self.note(f"console: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda e: self.note(f"script: {e}"))
        page.on("dialog", self._dismiss)
        page.add_init_script(_TELL_BREACHES)

    def _dismiss(self, dialog: Dialog) -> None:
        self.note(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(server_url: str, template_database: str) -> Iterator[Site]:
    """A server without tokens, and open, so everybody is anonymous, with a database of the module's own."""
    with ExitStack() as stack:
        url = stack.enter_context(databases.database(server_url, template_database))
        config = Config(url, retry_jitter=0.0)
        client = stack.enter_context(Client(config))
        yield Site(stack.enter_context(running(config)), config, client)


@pytest.fixture
def tab(browser: Browser, site: Site) -> Iterator[Callable[..., Page]]:
    """`tab(path)` opens a page of the site in a fresh browser profile; `expecting=` are errors that the test wants."""
    watched: list[Watched] = []
    with ExitStack() as stack:

        def open_(path: str = "/", *, expecting: tuple[str, ...] = (), at: str | None = None, **options: Any) -> Page:
            options = {"viewport": dict(zip(("width", "height"), DESKTOP, strict=True)), **options}
            context = stack.enter_context(browser.new_context(base_url=at or site.url, **options))
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            watched.append(Watched(expected=expecting))
            watched[-1].watch(page)
            page.goto(path, wait_until="load")
            return page

        yield open_
    assert [trouble for w in watched for trouble in w.troubles] == []


def portray(page: Page, name: str) -> None:
    """Pictures in light and dark, for desktop and phone; the page must never be wider than its window."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    for size, (width, height) in {"desktop": DESKTOP, "phone": PHONE}.items():
        page.set_viewport_size({"width": width, "height": height})
        assert_fits(page)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            # Hiding the caret would set styles, which a refresh in that moment copies: a breach of the policy.
            page.screenshot(path=ARTEFACTS / f"{name}-{size}-{theme}.png", full_page=True, caret="initial")
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})


def assert_fits(page: Page) -> None:
    """Nothing sticks out of the window to the side."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{page.url} is {wide} px wider than the window"


@pytest.fixture
def server() -> Iterator[Callable[..., Running]]:
    """`server(config, **settings)` starts one more; it ends with the test."""
    with ExitStack() as stack:
        yield lambda config, **settings: stack.enter_context(running(config, **settings))


# ---- without a browser ----


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


@pytest.fixture
def web(config: Config) -> Iterator[Running]:
    """A server without tokens, asked for pages: every request may do everything."""
    with running(config) as url:
        url.http.headers.update(HTML)
        yield url
