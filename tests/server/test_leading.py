"""A server leads like a worker: a fleet of workers over HTTP alone is recovered, counted and kept in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.doctor.run import examine
from tasklib.server.settings import ServerSettings
from tasklib.tasks import registry
from tests.eventually import eventually
from tests.server.conftest import Running
from tests.worker import fleet_tasks
from tests.worker.fleet import Fleet, fleet_of

QUICK = {
    "heartbeat_interval_seconds": 1.0,
    "heartbeat_timeout_seconds": 3.0,
    "sweep_interval_seconds": 0.2,
    "upkeep_interval_seconds": 0.2,
    "leader_lease_seconds": 1.0,
}
LEADER = "SELECT holder FROM leadership WHERE expires_at > now()"


@pytest.fixture
def fleet(database_url: str, db: psycopg.Connection, tmp_path: Path) -> Iterator[Fleet]:
    registry.register(fleet_tasks.hold)
    with fleet_of(database_url, db, tmp_path) as fleet:
        yield fleet


def test_tasks_of_a_killed_worker_over_http_run_on_another_though_no_worker_has_a_database(
    config: Config, fleet: Fleet, server: Callable[..., Running]
) -> None:
    quick = config.with_changes(**QUICK)
    url = str(server(quick, lead=True))
    with Client(config) as client:
        client.submit_many(fleet_tasks.hold, [{"until": "go"} for _ in range(10)])
        victim = fleet.start(server=url, concurrency=10)
        fleet.wait_for_value(10, "SELECT count(*) FROM tasks WHERE state = 'running'")
        survivor = fleet.start(server=url, concurrency=10)
        fleet.wait_for_value(2, "SELECT count(*) FROM workers WHERE status = 'active'")
        victim.kill()
        fleet.db.execute("INSERT INTO notes (what) VALUES ('go')")
        fleet.wait_for_value(10, "SELECT count(*) FROM tasks WHERE state = 'completed' AND lease_token = 2")
        done = fleet.db.execute("SELECT DISTINCT result ->> 'value' FROM tasks").fetchall()
        assert done == [(f"by {survivor.pid}",)]
        assert str(fleet.value(LEADER)).startswith("server-")


def test_server_alone_counts_folds_and_expires(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    db.execute("INSERT INTO tasks (name) SELECT 'waiting' FROM generate_series(1, 2500)")
    db.execute(
        "INSERT INTO tasks (name, state, completed_at) VALUES ('letter', 'dead_letter', now() - interval '90 days')"
    )
    db.execute("INSERT INTO stats_deltas (outcome, count) VALUES ('completed', 7)")
    server(config.with_changes(**QUICK), lead=True)
    depth = "SELECT (figures -> 'queues' -> 'medium' ->> 'depth')::int FROM snapshots"
    eventually(lambda: db.execute(depth).fetchone() == (2500,), "a snapshot")
    total = "SELECT count FROM stats WHERE span = 0 AND outcome = 'completed'"
    eventually(lambda: db.execute(total).fetchone() == (7,), "the counts are folded")
    eventually(lambda: db.execute("SELECT FROM tasks WHERE name = 'letter'").fetchone() is None, "it expires")


def test_server_hands_the_lead_over_when_it_ends(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    leading = server(config, lead=True)
    eventually(lambda: db.execute(LEADER).fetchone() is not None, "it leads")
    leading.stop()
    assert db.execute(LEADER).fetchone() is None, "its lease would have lasted for 30 s"


def test_server_told_not_to_lead_takes_no_part_in_the_election(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    assert ServerSettings().lead, "it leads unless it is told not to"
    follower = server(config, lead=False)
    assert follower.app.state.services.leading is None
    follower.stop()
    assert db.execute("SELECT count(*) FROM leadership").fetchone() == (0,)


def test_every_place_that_names_the_leader_names_a_server(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    leading = server(config, lead=True)
    eventually(lambda: db.execute(LEADER).fetchone() is not None, "it leads")
    db.execute("INSERT INTO workers (id, capacity) VALUES ('over-http', 4)")
    db.execute("INSERT INTO tasks (name) VALUES ('first')")  # before it, the overview shows the first steps
    name = leading.app.state.services.leading.id
    assert leading.http.get("/api/v1/workers").json()["leader"] == name
    for page in ("/", "/workers"):
        assert name[:30] in leading.http.get(page).text
    assert "leader_present 1.0" in leading.http.get("/metrics").text
    with Client(config) as client:
        codes = {finding.code: finding for finding in examine(client, thorough=False)}
    assert "no_leader" not in codes
    assert name in codes["workers"].seen


def test_idle_server_that_does_not_lead_holds_no_connection_for_it(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    db.execute("INSERT INTO leadership (holder, expires_at) VALUES ('another', now() + interval '1 hour')")
    server(config.with_changes(**QUICK), lead=True)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
    eventually(lambda: db.execute(sessions, ["tasklib worker tasks"]).fetchone() == (1,), "it asked for the lead")
    assert db.execute(sessions, ["tasklib worker maintenance"]).fetchone() == (0,)
