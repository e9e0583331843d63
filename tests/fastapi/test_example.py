"""The heroes of FastAPI's tutorial among the examples: their tests, and the dashboard in a browser."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request

import pytest

from proof.ports import free_port
from tests.docs.pages import ROOT

HEROES = ROOT / "examples/fastapi_heroes"

pytestmark = pytest.mark.long


def environment(url: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(HEROES)])
    return {**os.environ, "TASKLIB_DATABASE_URL": url, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_tests_of_the_example_pass(database_url: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    ran = subprocess.run(
        command, cwd=HEROES, env=environment(database_url), capture_output=True, text=True, check=False
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_its_dashboard_shows_the_task_behind_its_own_login(database_url: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("needs chromium")
    port = free_port()
    site, variables = f"http://127.0.0.1:{port}", {**environment(database_url), "DASHBOARD_SECRET": "sesame"}
    command = [sys.executable, "-m", "uvicorn", "main:app", "--port", str(port)]
    server = subprocess.Popen(command, cwd=HEROES, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        assert any("Uvicorn running" in line for line in server.stderr)
        body = b'{"name": "Rusty-Man", "secret_name": "Tommy Sharp"}'
        ask = urllib.request.Request(f"{site}/heroes/", body, {"content-type": "application/json"})
        urllib.request.urlopen(ask, timeout=60).close()
        with sync_api.sync_playwright() as browsers:
            browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"{site}/tasklib/tasks")
            assert page.url == f"{site}/docs"
            page.context.add_cookies([{"name": "secret", "value": "sesame", "url": site}])
            page.goto(f"{site}/tasklib/tasks")
            sync_api.expect(page.get_by_role("link", name="welcome").first).to_be_visible(timeout=60_000)
            browser.close()
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)
