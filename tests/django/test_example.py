"""The Django projects among the examples: their tests, a complete migration state, and one of them in a browser."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

from proof.ports import free_port
from tests.docs.pages import ROOT

_VARIABLES = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
POLLS = ROOT / "examples/django_polls"
PATIENCE_MS = 120_000
PEOPLE = """
from django.contrib.auth.models import User
from django.utils import timezone
from polls.models import Question
User.objects.create_superuser("ada", password="lovelace")
User.objects.create_user("eve", password="apple", is_staff=True)
Question.objects.create(question_text="Tea?", pub_date=timezone.now()).choice_set.create(choice_text="Milk")
"""


def environment(url: str) -> dict[str, str]:
    parts = conninfo_to_dict(url)
    variables = {variable: str(parts[name]) for name, variable in _VARIABLES.items() if parts.get(name)}
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path}


def manage(url: str, project: Path, *arguments: str) -> None:
    command = [sys.executable, "manage.py", *arguments]
    ran = subprocess.run(command, cwd=project, env=environment(url), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def running(url: str, *command: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, *command], cwd=POLLS, env=environment(url))
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.long
@pytest.mark.parametrize("command", ["makemigrations --check --dry-run", "test --noinput"])
@pytest.mark.parametrize("project", ["django_shop", "django_polls"])
def test_the_django_example_works(empty_database_url: str, project: str, command: str) -> None:
    manage(empty_database_url, ROOT / "examples" / project, *command.split())


@pytest.mark.long
def test_people_vote_and_those_who_may_see_the_dashboard_behind_djangos_login(empty_database_url: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("needs chromium")
    manage(empty_database_url, POLLS, "migrate")
    manage(empty_database_url, POLLS, "shell", "-c", PEOPLE)
    port = str(free_port())
    site = f"http://127.0.0.1:{port}"
    with (
        running(empty_database_url, "-m", "uvicorn", "mysite.asgi:application", "--port", port),
        running(empty_database_url, "manage.py", "tasklib", "worker"),
        sync_api.sync_playwright() as browsers,
    ):
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        sync_api.expect.set_options(timeout=PATIENCE_MS)
        _reach(page := _page(browser), f"{site}/polls/")
        _vote(page)
        sync_api.expect(page.get_by_text("Milk: 1 vote")).to_be_visible()
        while not page.get_by_text("has been told of 1 vote").is_visible():
            page.reload()
        _look(page, site, "ada", "lovelace")
        sync_api.expect(page.get_by_role("link", name="tell_author").first).to_be_visible()
        other = _page(browser)
        _look(other, site, "eve", "apple")
        sync_api.expect(other.get_by_text("403")).to_be_visible()
        browser.close()


def _page(browser: Any) -> Any:
    """A page of a browser that knows nobody yet."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


def _reach(page: Any, address: str) -> None:
    """Open the first page as soon as the site answers."""
    while True:
        with suppress(httpx.ConnectError):
            httpx.get(address, timeout=PATIENCE_MS / 1000)
            break
    page.goto(address)


def _vote(page: Any) -> None:
    page.get_by_role("link", name="Tea?").click()
    page.get_by_label("Milk").check()
    page.get_by_role("button", name="Vote").click()


def _look(page: Any, site: str, name: str, password: str) -> None:
    """Ask for the tasks, log in where Django sends us, and look at them."""
    page.goto(f"{site}/tasklib/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("Password").wait_for(state="detached")  # the next address would cut the login short
    page.goto(f"{site}/tasklib/tasks")
