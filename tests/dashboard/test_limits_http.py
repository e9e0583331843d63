"""The screens of limits, shares and circuit breakers without a browser: what they show, and who changes what."""

from __future__ import annotations

import re
from typing import Any

import httpx
import psycopg

from tasklib import Client, Config
from tests.dashboard.conftest import HTML
from tests.dashboard.test_tasks_http import post, text_of
from tests.server.conftest import Running, bearer, running

HOSTILE = "stripe:<img src=x onerror=alert(1)>"


def place(db: psycopg.Connection[Any], limit: str, key: str = "") -> None:
    """A running task that holds a place."""
    db.execute(
        "WITH task AS (INSERT INTO tasks (name, state, worker_id, locked_until, started_at, lease_token, lane) "
        "VALUES ('charge', 'running', 'w', now() + interval '1 hour', now(), 1, "
        "E'\\x01l' || %s || E'\\x02') RETURNING id) "
        "INSERT INTO places (task, limit_name, key, token) SELECT id, %s, %s, 1 FROM task",
        (limit, limit, key),
    )


def get(web: Running, path: str) -> httpx.Response:
    found = web.http.get(path)
    assert found.status_code == 200, found.text
    return found


def test_limits_are_shown_with_what_runs_waits_and_is_held(
    web: Running, client: Client, db: psycopg.Connection[Any]
) -> None:
    assert "No limits" in text_of(get(web, "/limits"))
    client.set_limit("stripe", max_running=5)
    place(db, "stripe", "acme")
    db.execute("INSERT INTO tasks (name, lane) SELECT 'charge', E'\\x01lstripe\\x02acme' FROM generate_series(1, 3)")
    db.execute("INSERT INTO limit_states (limit_name, blocked_until) VALUES ('stripe', now() + interval '1 hour')")
    text = text_of(get(web, "/limits"))
    assert "5 tasks at a time" in text
    assert "1 of 5" in text
    assert "held until" in text
    one = text_of(get(web, "/limits/show?name=stripe"))
    assert "charge" in one
    assert "acme" in one
    assert re.search(r"Waiting 3 ", one)
    assert web.http.get("/limits/show?name=unknown").status_code == 404


def test_an_operator_sets_resets_and_removes_a_limit(web: Running, client: Client, db: psycopg.Connection[Any]) -> None:
    assert post(web, "/limits/set", name="queue:mail", max_running="3").status_code == 303
    assert [(i.name, i.max_running) for i in client.limits()] == [("queue:mail", 3)]
    post(web, "/limits/set", name="queue:mail", rate="10", per="60", burst="2", serial="")
    assert [(i.max_running, i.rate, i.per, i.burst) for i in client.limits()] == [(None, 10.0, 60.0, 2)]
    post(web, "/limits/set", name="queue:mail", max_running="many")
    post(web, "/limits/set", name="queue", max_running="1")
    assert len(client.limits()) == 1, "what can't be is refused"
    asked = post(web, "/limits/remove", name="queue:mail", ask="Remove it?", yes="Remove")
    assert asked.status_code == 200
    assert "Remove it?" in text_of(asked)
    post(web, "/limits/remove", name="queue:mail", ask="Remove it?", yes="Remove", confirmed="yes")
    assert client.limits() == []
    db.execute("INSERT INTO limits (name, declared) VALUES ('code', '{\"max_running\": 7}')")
    post(web, "/limits/reset", name="code")
    assert [(i.name, i.max_running, i.source) for i in client.limits()] == [("code", 7, "code")]


def test_circuit_breakers_are_shown_opened_and_closed(
    web: Running, client: Client, db: psycopg.Connection[Any]
) -> None:
    assert post(web, "/limits/breaker/set", name="charge", failures="25", at_least="8").status_code == 303
    assert [(b.name, b.failures, b.at_least, b.probes) for b in client.breakers()] == [("charge", 0.25, 8, 3)]
    post(web, "/limits/breaker/set", name="charge", failures="200")
    assert [b.failures for b in client.breakers()] == [0.25]
    post(web, "/limits/breaker", name="charge", action="open")
    assert "until it is closed" in text_of(get(web, "/limits"))
    db.execute("UPDATE breakers SET until = now() + interval '1 min', seen_attempts = 9, seen_failures = 8")
    assert "8 of 9 attempts failed" in text_of(get(web, "/limits"))
    post(web, "/limits/breaker", name="charge", action="close")
    assert [b.state for b in client.breakers()] == ["closed"]
    post(web, "/limits/breaker", name="charge", action="remove")
    assert client.breakers() == []


def test_the_deepest_shares_come_first_with_their_weights(
    web: Running, client: Client, db: psycopg.Connection[Any]
) -> None:
    assert "No share has tasks" in text_of(get(web, "/limits/shares"))
    for share, number in (("small", 1), ("big", 5)):
        db.execute(
            "INSERT INTO tasks (name, lane) SELECT 'n', E'\\x01s' || %s FROM generate_series(1, %s)", (share, number)
        )
    db.execute(
        "INSERT INTO tasks (name, lane, state, worker_id, locked_until) "
        "VALUES ('n', E'\\x01ssmall', 'running', 'w', now() + interval '1 hour')"
    )
    client.set_limit("share:big", weight=3)
    client.set_limit("share", max_running=4)
    text = text_of(get(web, "/limits/shares"))
    assert text.index("big") < text.index("small")
    rows = re.findall(r"(?s)<tr data-row>.*?</tr>", get(web, "/limits/shares").text)
    assert [re.findall(r">(?:≥)?(\d+)(?:</a>)?</td>|>(\d+)</a>", row)[:2] for row in rows] == [
        [("0", ""), ("5", "")],
        [("1", ""), ("1", "")],
    ]


def test_a_viewer_sees_all_of_it_and_changes_nothing(config: Config, client: Client) -> None:
    token = client.create_token("v", roles=["viewer"]).text
    client.set_limit("stripe", max_running=5)
    client.set_breaker("charge")
    with running(config) as web:
        for path in ("/limits", "/limits/show?name=stripe", "/limits/shares"):
            page = web.http.get(path, headers={**HTML, **bearer(token)})
            assert page.status_code == 200
            assert not re.search(r">(Remove|Reset|Open|Set the limit|Set the breaker)<", page.text)
        for path in ("/limits/set", "/limits/remove", "/limits/reset", "/limits/breaker/set"):
            refused = post(web, path, bearer(token), name="stripe")
            assert (refused.status_code, refused.json()["code"]) == (403, "role_missing"), path
        refused = post(web, "/limits/breaker", bearer(token), name="charge", action="open")
        assert refused.status_code == 403
    assert [(i.name, i.max_running) for i in client.limits()] == [("stripe", 5)]


def test_names_and_keys_from_elsewhere_are_text(web: Running, client: Client, db: psycopg.Connection[Any]) -> None:
    client.set_limit(HOSTILE, max_running=1)
    client.set_breaker("<script>alert(1)</script>")
    place(db, HOSTILE, "<script>alert(2)</script>")
    db.execute("INSERT INTO tasks (name, lane) VALUES ('n', E'\\x01s<script>alert(3)</script>')")
    for path in ("/limits", "/limits/shares", f"/limits/show?name={HOSTILE}"):
        assert "<script>alert" not in get(web, path).text
        assert "<img src=x" not in get(web, path).text


def test_the_bounds_of_a_queue_and_of_a_name_are_set_on_their_pages(web: Running, client: Client) -> None:
    assert "Set the bounds" in text_of(get(web, "/queues/mail"))
    post(web, "/limits/bounds", kind="queue", value="mail", max_wait="60", max_pending="")
    post(web, "/limits/bounds", kind="name", value="a/b c", max_wait="", max_pending="500")
    assert [(b.queue, b.max_wait, b.max_pending) for b in client.queue_bounds()] == [("mail", 60.0, None)]
    assert [(b.name, b.max_wait, b.max_pending) for b in client.name_bounds()] == [("a/b c", None, 500)]
    assert "more than 500 wait" in text_of(get(web, "/names/a%2Fb%20c"))
    post(web, "/limits/bounds", kind="queue", value="mail", max_wait="-1")
    assert [b.max_wait for b in client.queue_bounds()] == [60.0]
    post(web, "/limits/bounds", kind="queue", value="mail", max_wait="", max_pending="")
    assert client.queue_bounds() == []
