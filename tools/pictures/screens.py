"""The screens in the pages about the dashboard: a busy fleet in a database of its own, in Chromium at 1280 x 800."""

from __future__ import annotations

import math
import shutil
from contextlib import ExitStack
from pathlib import Path

import psycopg
from playwright.sync_api import Page, sync_playwright

from tasklib import Client, Config
from tasklib.testing import databases
from tests.dashboard import filling, flow_scenes, scenes
from tests.dashboard.conftest import Site
from tests.server.conftest import running

PICTURES = Path(__file__).parents[2] / "docs/how-to/pictures"


def draw() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(databases.server())
        template = stack.enter_context(databases.template(server))
        config = Config(stack.enter_context(databases.database(server, template)))
        client = stack.enter_context(Client(config))
        site = Site(stack.enter_context(running(config)), config, client)
        site.url.app.state.findings = (math.inf, [])  # those of a server for tests
        db = stack.enter_context(psycopg.connect(config.database_url, autocommit=True))
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        page = browser.new_page(base_url=site.url, viewport={"width": 1280, "height": 800})
        task = filling.shop(db)["dead"]
        portray(page, "/failures?range=1h", "failures")
        portray(page, f"/tasks/{task}", "task", is_whole=True)
        db.execute("DELETE FROM tasks")
        scenes.busy(site)
        portray(page, "/", "overview")
        portray(page, "/workers", "workers")
        flow_scenes.register()
        flow = flow_scenes.catalogue(client)
        flow_scenes.advance(db, flow)
        portray(page, f"/flows/{flow}", "flow", is_whole=True)
        browser.close()


def portray(page: Page, path: str, name: str, is_whole: bool = False) -> None:
    page.goto(path)
    page.locator(".live[data-on=true]").wait_for()
    page.screenshot(path=PICTURES / f"{name}.png", full_page=is_whole)
