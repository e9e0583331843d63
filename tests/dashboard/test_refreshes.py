"""What pages left open fetch: one answer for all viewers with the same rights, none if nothing has changed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tasklib import Client, Config
from tasklib.db.database import Database
from tasklib.server.access import PRINCIPAL, Principal, Role
from tasklib.server.dashboard import live
from tasklib.server.dashboard.live import Ticker
from tasklib.server.dashboard.refreshes import CSRF_MARK, SHARED_SECONDS, Refreshes
from tasklib.server.dashboard.shell import SCREENS
from tasklib.server.sessions import Sessions
from tasklib.store import dashboard
from tests.dashboard.conftest import HTML
from tests.dashboard.filling import row
from tests.eventually import eventually
from tests.server.conftest import Running, running

TICK = {"HX-Request": "true", "TaskLib-Tick": "1"}
VIEWER, OTHER_VIEWER = Principal("token:a", frozenset({Role.VIEWER})), Principal("token:b", frozenset({Role.VIEWER}))
OPERATOR = Principal("token:c", frozenset({Role.VIEWER, Role.OPERATOR}))
SUBMITTERS = [Principal(f"token:{name}", frozenset({Role.SUBMITTER})) for name in "de"]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """A handler that counts how often it makes its page."""

    def __init__(self) -> None:
        self.made = 0
        self.asked, self.finish = asyncio.Event(), asyncio.Event()
        self.finish.set()

    async def __call__(self, request: Request) -> Response:
        self.made += 1
        self.asked.set()
        await self.finish.wait()
        return HTMLResponse(f"<p>{CSRF_MARK}</p>")


def asked(principal: Principal, session: str = "", path: str = "/queues", tick: bool = True) -> Request:
    headers = [(b"cookie", f"tasklib_session={session}".encode())] if session else []
    app = SimpleNamespace(state=SimpleNamespace(sessions=SESSIONS))
    return Request(
        {
            "type": "http", "method": "GET", "path": path, "query_string": b"", "scheme": "http",
            "server": ("localhost", 80), "app": app, PRINCIPAL: principal,
            "headers": [*headers, *([(b"tasklib-tick", b"1")] if tick else [])],
        }
    )  # fmt: skip


SESSIONS = Sessions()


async def test_pages_that_hear_of_a_tick_at_once_get_one_answer_each_with_its_own_form_token() -> None:
    screen, refreshes = Screen(), Refreshes(Clock())
    screen.finish.clear()
    both = [asyncio.create_task(refreshes.answer(asked(who, str(who)), screen)) for who in (VIEWER, OTHER_VIEWER)]
    await screen.asked.wait()
    screen.finish.set()
    answers = [await each for each in both]
    late = await refreshes.answer(asked(VIEWER, "late"), screen)
    assert screen.made == 1
    tokens = [SESSIONS.csrf(session) for session in (str(VIEWER), str(OTHER_VIEWER), "late")]
    assert [bytes(answer.body).decode() for answer in (*answers, late)] == [f"<p>{token}</p>" for token in tokens]


async def test_the_first_viewer_may_leave_before_the_answer_is_made() -> None:
    screen, refreshes = Screen(), Refreshes(Clock())
    screen.finish.clear()
    first, second = (asyncio.create_task(refreshes.answer(asked(VIEWER), screen)) for _ in range(2))
    await screen.asked.wait()
    first.cancel()
    screen.finish.set()
    assert (await second).status_code == 200
    assert screen.made == 1


async def test_an_answer_is_shared_for_a_moment_and_never_with_other_rights_or_a_reader_who_asks() -> None:
    screen, clock = Screen(), Clock()
    refreshes = Refreshes(clock)
    for number, request in enumerate(
        [
            asked(VIEWER), asked(OPERATOR), *map(asked, SUBMITTERS), asked(VIEWER, path="/workers"),
            asked(VIEWER, tick=False),
        ]
    ):  # fmt: skip
        await refreshes.answer(request, screen)
        assert screen.made == number + 1
    clock.now += SHARED_SECONDS
    await refreshes.answer(asked(VIEWER), screen)
    assert screen.made == 7


@pytest.mark.parametrize("path", ["/", "/tasks", "/queues", "/workers", "/failures", "/dead-letters", "/schedules"])
def test_a_screen_that_has_not_changed_is_not_sent_again(web: Running, db: psycopg.Connection, path: str) -> None:
    row(db, "dead_letter", error="Traceback\nValueError: no")
    first = web.http.get(path, headers=TICK)
    again = web.http.get(path, headers={**TICK, "If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert "data-live" in first.text
    assert "Keyboard shortcuts" not in first.text, "a refresh has no frame"


def test_a_changed_list_is_sent_though_the_page_names_what_it_shows(web: Running, db: psycopg.Connection) -> None:
    row(db, "completed", ago=3600)
    seen = web.http.get("/tasks", headers={"HX-Request": "true"}).headers["etag"]
    known = {"HX-Request": "true", "If-None-Match": seen}
    assert web.http.get("/tasks", headers=known).status_code == 304, "ages count by themselves"
    row(db, "completed", name="another")
    changed = web.http.get("/tasks", headers=known)
    assert changed.status_code == 200
    assert "another" in changed.text


def test_a_refresh_has_the_form_token_of_its_session(config: Config) -> None:
    with Client(config) as client:
        token = client.create_token("op", roles=["operator"]).text
        client.pause(queue="mail")
    with running(config) as url:

        def logged_in() -> httpx.Client:
            browser = httpx.Client(base_url=url, headers=HTML, timeout=60)
            csrf = re.findall(r'name="csrf" value="(\w+)"', browser.get("/login").text)[0]
            browser.post("/login", data={"csrf": csrf, "token": token})
            return browser

        for browser in (logged_in(), logged_in()):
            shown, refreshed = (
                set(re.findall(r'name="csrf" value="(\w+)"', browser.get("/queues", headers=headers).text))
                for headers in (None, TICK)
            )
            browser.close()
            assert len(refreshed) == 1
            assert refreshed == shown


def test_a_refresh_leaves_the_word_about_an_action_to_the_page(web: Running) -> None:
    form = {"csrf": web.app.state.sessions.csrf(None), "kind": "queue", "value": "mail"}
    web.http.post("/queues/pause", data=form)
    web.http.get("/queues", headers=TICK)
    assert "Paused queue mail" in web.http.get("/queues").text


def test_no_refreshed_screen_names_the_viewer() -> None:
    """Their answers are shared by all with the same roles."""
    templates = list(files("tasklib.server.dashboard").joinpath("templates").iterdir())
    lively = [each for each in templates if "data-live" in (text := each.read_text()) or "ui.live(" in text]
    assert len(lively) >= len(SCREENS)
    assert [each.name for each in lively if each.name != "base.html" and "principal.actor" in each.read_text()] == []


# ---- ticks ----


class Quiet:
    """A notifier that hears nothing."""

    is_stopped = False
    waited = 0

    def mark(self) -> int:
        return 0

    async def wait(self, seconds: float, *, since: int | None = None) -> bool:
        self.waited += 1
        await asyncio.sleep(0)
        return False


def ticker(monkeypatch: pytest.MonkeyPatch, answers: Iterator[str | None]) -> tuple[Ticker, Quiet]:
    monkeypatch.setattr(live, "AT_MOST_EVERY", 0.0)
    notifier = Quiet()

    async def run(query: Any) -> str | None:
        return next(answers)

    services: Any = SimpleNamespace(notifier=notifier, run=run)
    return Ticker(services), notifier


async def test_all_pages_hear_of_one_tick_when_something_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made, notifier = ticker(monkeypatch, iter(["1", "1", "1", "2"]))
    await made.next()
    assert notifier.waited == 1, "what was written before isn't known"
    await asyncio.gather(*(made.next() for _ in range(10)))
    assert notifier.waited == 4


async def test_pages_tick_if_postgresql_does_not_count_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made, notifier = ticker(monkeypatch, iter([None, None]))
    await made.next()
    await made.next()
    assert notifier.waited == 2


def test_tasks_change_the_counters_and_heartbeats_do_not(config: Config, db: psycopg.Connection) -> None:
    database = Database(config)
    db.execute("INSERT INTO workers (id, capacity, heartbeat_timeout_seconds) VALUES ('w', 4, 60)")

    def counted(text: str) -> str | None:
        db.execute(text.encode())
        db.execute("SELECT pg_stat_force_next_flush()")
        return database.run(dashboard.written())

    eventually(lambda: counted("SELECT 1") == counted("SELECT 1"), "what was written so far is counted")
    before = counted("SELECT 1")
    assert counted("UPDATE workers SET last_heartbeat = now()") == before
    assert counted("INSERT INTO tasks (name) VALUES ('x')") != before
    database.close()


def test_the_page_says_how_often_screens_are_refreshed() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/use-the-dashboard.md").read_text(encoding="utf-8")
    for words in (
        f"at most every {live.AT_MOST_EVERY:.0f} seconds", f"every {live.AT_LEAST_EVERY:.0f} seconds without a change",
        f"counters of written rows every {live.LOOK_EVERY:.0f} seconds",
    ):  # fmt: skip
        assert words in page
