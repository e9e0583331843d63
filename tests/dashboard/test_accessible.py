"""axe-core over every screen, in light and dark, at three widths: no violations.

The screens are found by following links from the overview: one page of each route. A route that no link of the scene
leads to is named in `NOT_LINKED`, with how the test gets there or why it can't.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import psycopg
import pytest
from starlette.routing import Match, Route

from tests.dashboard import flow_scenes, schedule_scenes
from tests.dashboard.conftest import Site
from tests.dashboard.filling import shop
from tests.dashboard.scenes import busy
from tests.dashboard.test_approvals_http import asking
from tests.server.conftest import running

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]
WIDTHS = (390, 768, 1440)
NO_PAGES = (
    "/tasks/export",
    "/charts/data",
    "/tasks/suggest",
    "/api/",
    "/docs",
    "/openapi",
    "/metrics",
    "/health",
    "/assets",
    "/live",
    "/internal",
    "/redoc",
)
SEARCHES = ("/", "/tasks", "/tasks?q=state:dead_letter", "/tasks?q=state:fialed", "/tasks?q=nothing-like-this")
NOT_LINKED = {
    "/login": "no link leads there without tokens: opened by itself",
}


@pytest.fixture(scope="module")
def seeds(site: Site) -> list[str]:
    """Pages to begin with: a task in each state, one that asks for approval, searches with and without results."""
    busy(site)
    schedule_scenes.shop(site)
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        tasks = [*shop(db).values(), asking(db, details={"invoice": "R-17", "items": [1, 2]})]
        flow_scenes.advance(db, flow_scenes.catalogue(site.client))
        flow_scenes.failed(site.client, db)
    site.client.pause(queue="media")
    site.client.set_limit("queue:mail", max_running=5)
    site.client.set_breaker("stripe")
    site.client.save_search("dead mail", "queue:mail state:dead_letter")
    site.client.start_replay(name="send_email", per_minute=1)
    return [*SEARCHES, *(f"/tasks/{id_}" for id_ in tasks)]


def routes(site: Site) -> list[Route]:
    """The routes that a browser opens as pages."""
    found = [r for r in site.url.app.routes if isinstance(r, Route) and "GET" in (r.methods or ())]
    return [r for r in found if not r.path.startswith(NO_PAGES) and not getattr(r, "include_in_schema", True)]


def route_of(site: Site, path: str) -> str | None:
    scope = {"type": "http", "path": path, "method": "GET", "root_path": ""}
    return next((r.path for r in routes(site) if r.matches(scope)[0] is Match.FULL), None)


def linked(page: Page) -> Iterator[str]:
    """The links of a page that stay on the site."""
    here = urlsplit(page.url)
    for link in page.evaluate("Array.from(document.querySelectorAll('a[href]:not([download])'), a => a.href)"):
        target = urlsplit(urljoin(page.url, link))
        if target.netloc == here.netloc:
            yield target.path + (f"?{target.query}" if target.query else "")


def found_screens(site: Site, page: Page, seeds: list[str]) -> dict[str, str]:
    """One page of each route, by its pattern."""
    waiting, seen = list(seeds), dict.fromkeys(NOT_LINKED, "")
    while waiting:
        path = waiting.pop(0)
        page.goto(path, wait_until="load")
        for link in linked(page):
            pattern = route_of(site, urlsplit(link).path)
            if pattern is not None and pattern not in seen:
                seen[pattern] = link
                waiting.append(link)
    return {pattern: path or pattern for pattern, path in seen.items()}


def violations(page: Page) -> list[str]:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed").Axe()
    options = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}  # off by default
    found = axe.run(page, options=options).response["violations"]
    return [f"{v['id']}: {node['target']} {node['failureSummary'][:300]}" for v in found for node in v["nodes"][:3]]


def looked_at(page: Page, path: str, theme: str) -> list[str]:
    """The violations of a page at each width; being wider than the window is one."""
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(path, wait_until="load")
    wrong = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found = [*violations(page), *([f"{wide} px wider than the window"] if wide > 0 else [])]
        wrong += [f"{path} at {width} in {theme}: {v}" for v in found]
    return wrong


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation_on_any_screen_at_any_width(site: Site, tab: Tab, seeds: list[str], theme: str) -> None:
    page = tab("/", expecting=("422", "404"))
    screens = found_screens(site, page, seeds)
    assert {r.path for r in routes(site)} - screens.keys() == set(), "no link leads to these"
    paths = [*seeds, *(path for path in screens.values() if path not in seeds), "/nothing-here"]
    wrong = [v for path in paths for v in looked_at(page, path, theme)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation_in_open_dialogs(tab: Tab, seeds: list[str], theme: str) -> None:
    page = tab("/tasks")
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keyboard shortcuts").wait_for()
    assert violations(page) == []


def test_axe_finds_no_violation_in_the_palette_the_suggestions_and_the_login(
    site: Site, tab: Tab, seeds: list[str]
) -> None:
    page = tab("/tasks")
    page.keyboard.press("Control+k")
    page.locator("#palette [role=option]").first.wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.locator("#palette").wait_for(state="hidden")
    page.keyboard.press("/")
    page.keyboard.type("state:")
    page.locator("#suggestions [role=option]").first.wait_for()
    assert violations(page) == []
    page.close()  # with the first token its server asks for one
    token = site.client.create_token("reader", roles=["viewer"]).text
    try:
        with running(site.config) as url:
            assert violations(tab("/login", at=url)) == []
    finally:
        site.client.revoke_token(token)
