"""The failures on the overview, without a browser."""

from __future__ import annotations

import psycopg

from tasklib import Client
from tests.dashboard.conftest import HTML
from tests.dashboard.filling import row
from tests.dashboard.test_tasks_http import text_of
from tests.server.conftest import Running


def test_recent_failures_are_shown_once_per_cause_with_their_number(
    web: Running, client: Client, db: psycopg.Connection
) -> None:
    for n in range(12):
        row(db, "dead_letter", ago=100 + n, error=f"Traceback\nTimeoutError: mx{n} said nothing for 3{n} s")
    latest = row(db, "dead_letter", ago=50, error="Traceback\nTimeoutError: mx99 said nothing for 7 s")
    row(db, "failed", ago=20, name="charge", error="Traceback\nValueError: password=hunter22 is wrong")
    other = row(db, "dead_letter", ago=400, name="silent")
    page = web.http.get("/", headers=HTML)
    text = text_of(page)
    assert "13 tasks, the latest" in text
    assert text.count("TimeoutError:") == 1
    assert "mx99 said nothing" in text
    assert "among the latest 15 tasks that failed" in text
    assert "hunter22" not in page.text
    mail = next(g for g in client.dead_letter_groups() if g.name == "send_email")
    assert f'href="/failures/{mail.fingerprint}"' in page.text
    assert f'href="/tasks/{latest}"' in page.text
    assert f'href="/tasks/{other}"' in page.text
    assert web.http.get(f"/failures/{mail.fingerprint}", headers=HTML).status_code == 200
