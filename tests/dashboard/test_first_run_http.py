"""The overview before the first task: what to type, and what a worker that waits can run."""

from __future__ import annotations

import html
import re
import shlex

import psycopg

from tests.dashboard.conftest import HTML
from tests.dashboard.filling import row
from tests.server.conftest import Running

NOTHING_YET = "No task has run here yet"


def overview(web: Running) -> str:
    return web.http.get("/", headers=HTML).text


def worker(db: psycopg.Connection, names: list[str] | None) -> None:
    db.execute("INSERT INTO workers (id, names, heartbeat_timeout_seconds) VALUES ('w', %s, 86400)", (names,))


def test_a_database_without_workers_shows_three_steps(web: Running) -> None:
    page = overview(web)
    assert NOTHING_YET in page
    assert page.count('class="copyable"') == 3
    assert "No data in this period" not in page


def test_a_worker_that_waits_says_what_it_runs_and_how_to_submit_it(web: Running, db: psycopg.Connection) -> None:
    worker(db, ["mail.send", "it's; rm -rf <b>"])
    page = overview(web)
    assert NOTHING_YET in page
    assert 'href="/tasks/new?name=mail.send"' in page
    command = html.unescape(re.findall(r'(?s)<pre id="first-submit"[^>]*>(.*?)</pre>', page)[0]).splitlines()[-1]
    assert shlex.split(command) == ["tasklib", "submit", "it's; rm -rf <b>", "--wait"]
    assert "No data in this period" not in page


def test_the_first_task_ends_it_and_so_does_one_that_was_deleted_since(web: Running, db: psycopg.Connection) -> None:
    worker(db, ["mail.send"])
    done = row(db, "completed")
    assert NOTHING_YET not in overview(web)
    db.execute("DELETE FROM tasks WHERE id = %s", (done,))
    assert NOTHING_YET in overview(web)
    counted = "INSERT INTO stats_deltas (name, queue, level, outcome, count) VALUES ('a', 'b', 'high', %s, 1)"
    db.execute(counted, ("completed",))
    assert NOTHING_YET not in overview(web)
