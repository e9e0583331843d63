"""Jumping by Ctrl-K and without script, suggestions while typing, trouble in the tab, the rate of the refresh."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tasklib import Config
from tasklib.testing import databases
from tests.dashboard.conftest import Site, portray
from tests.dashboard.filling import HOSTILE, row, shop
from tests.server.conftest import running

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]
BEAT = 60_000


@pytest.fixture(scope="module")
def ids(site: Site) -> dict[str, str]:
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        found = shop(db)
        for evil in HOSTILE[:6]:
            row(db, name=evil[:200], queue=evil[:200])
    return found


def option(page: Page, text: str) -> None:
    """Wait until this is offered first."""
    page.locator("#palette [role=option][aria-selected=true]", has_text=text).wait_for()


def test_ctrl_k_leads_to_a_pasted_id_a_screen_a_name_and_an_action(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/")
    page.keyboard.press("Control+k")
    page.keyboard.insert_text(ids["dead"])
    option(page, ids["dead"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/tasks/{ids['dead']}")
    page.keyboard.press("Control+k")
    page.keyboard.type("queues")
    option(page, "Queues")
    portray(page, "palette")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues")
    page.keyboard.press("Control+k")
    page.keyboard.type("charge_c")
    option(page, "billing.charge_card")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/tasks\?q=name%3Abilling\.charge_card$"))
    page.goto(f"/tasks/{ids['dead']}")
    page.keyboard.press("Control+k")
    page.keyboard.type("replay")
    option(page, "Replay")
    page.keyboard.press("Enter")
    # What a button asks, it asks here, too.
    page.get_by_role("button", name="Keep as it is").click()


def test_jumping_needs_no_script(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/", java_script_enabled=False)
    page.get_by_role("link", name="Jump to").click()
    page.locator("main").get_by_label("Jump to").fill(ids["running"])
    page.get_by_role("button", name="Go").click()
    page.wait_for_url(f"**/tasks/{ids['running']}")
    page.goto("/jump?q=sync")
    page.get_by_role("link", name="sync_inventory").wait_for()
    assert page.goto("/jump?q=%3Cscript%3E").ok  # type: ignore[union-attr]
    assert page.locator("main script").count() == 0


def test_suggestions_come_with_counts_and_are_taken_by_keys(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/tasks")
    page.keyboard.press("/")
    page.keyboard.type("state:dead")
    page.get_by_role("option", name="state:dead_letter").wait_for()
    assert "13" in page.get_by_role("option", name="state:dead_letter").inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("name:res")
    page.get_by_role("option", name="name:resize_image").wait_for()
    portray(page, "suggestions")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"q=state%3Adead_letter\+name%3Ares$"))
    page.goto("/tasks")
    page.keyboard.press("/")
    page.keyboard.type("queue:")
    page.get_by_role("option", name="<script>alert(1)</script>").wait_for()


def test_title_and_icon_of_the_tab_say_that_something_is_wrong(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/tasks")
    # Tasks wait, and there is no worker: the doctor's finding comes with the next tick.
    page.wait_for_function("/^\\(\\d+\\) Tasks/.test(document.title)", timeout=BEAT)
    assert "icon-critical" in (page.locator("#icon").get_attribute("href") or "")
    page.goto("/queues")
    assert re.match(r"\(\d+\) Queues", page.title())


def test_the_rate_of_the_refresh_is_chosen_and_kept(tab: Tab, ids: dict[str, str]) -> None:
    page = tab("/tasks")
    page.get_by_label("How often this page refreshes").select_option("60")
    page.reload()
    assert page.get_by_label("How often this page refreshes").input_value() == "60"
    with page.expect_response(lambda r: r.request.headers.get("hx-request") == "true"):
        page.keyboard.press("r")


def test_the_help_names_every_key_that_the_scripts_know(tab: Tab, ids: dict[str, str]) -> None:
    assets = Path(__file__).parents[2] / "src/tasklib/server/dashboard/assets"
    scripts = "".join((assets / name).read_text() for name in ("dashboard.js", "tasks.js"))
    keys = {key.lower() for key in re.findall(r'event\.key === "([^"]+)"', scripts)} - {"escape", "enter"}
    page = tab("/tasks")
    page.keyboard.press("?")
    named = set(page.locator("#help kbd").all_inner_texts())
    assert keys <= named, keys - named
    assert {"enter", "esc", "Ctrl"} <= named


def test_the_commands_of_the_first_run_work_as_they_are(
    tab: Tab, server_url: str, template_database: str, tmp_path: Path
) -> None:
    with databases.database(server_url, template_database) as url, running(Config(url)) as empty:
        page = tab("/", at=empty)
        page.get_by_text("No task has run here yet").wait_for()
        portray(page, "first-run")
        (tmp_path / "hello_tasks.py").write_text(page.locator("#first-tasks").inner_text())
        start, submit = (page.locator(f"#first-{name}").inner_text() for name in ("worker", "submit"))
        bin_ = Path(sys.executable).parent
        password = url.partition("//")[2].partition(":")[2].partition("@")[0]
        env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "PGPASSWORD": password}
        env.pop("TASKLIB_DATABASE_URL", None)
        worker = subprocess.Popen(
            ["bash", "-c", start.replace("tasklib worker", "exec tasklib worker")], cwd=tmp_path, env=env
        )
        try:
            done = subprocess.run(
                ["bash", "-c", submit], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
            )
            assert "Hello, Ada!" in done.stdout, done.stderr
            page.get_by_text("No task has run here yet").wait_for(state="detached")
        finally:
            worker.terminate()
            worker.wait(60)
        page.close()  # before its server ends
