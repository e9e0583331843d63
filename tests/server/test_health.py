"""Whether the server lives, and whether it can serve."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tasklib import Config
from tests.server.conftest import Running


def test_a_server_is_live_and_ready(server: Callable[..., Running], config: Config) -> None:
    url = server(config)
    assert url.http.get("/health/live").json()["status"] == "live"
    ready = url.http.get("/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


def test_a_server_on_an_older_schema_is_live_but_not_ready(
    server: Callable[..., Running], config: Config, db: psycopg.Connection
) -> None:
    url = server(config)
    db.execute("UPDATE tasklib_version SET version_num = '0001'")
    answer = url.http.get("/health/ready")
    assert (answer.status_code, answer.json()["code"]) == (503, "schema_not_current")
    assert answer.headers["content-type"] == "application/problem+json"
    assert url.http.get("/health/live").status_code == 200
