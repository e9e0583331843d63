"""A worker that has been silent for longer than its timeout is dead to every reader, also while there is no leader."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tasklib import Client, Config, task
from tasklib.cli import top_figures
from tasklib.db.database import Database
from tasklib.doctor.run import examine
from tasklib.store import fleet, maintenance
from tests.eventually import eventually
from tests.metrics.test_families import at, samples
from tests.server.conftest import Running
from tests.worker.fleet import Fleet, fleet_of

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


def register(config: Config, id_: str, *, timeout: float, names: tuple[str, ...] = ("silent_work",)) -> None:
    database = Database(config)
    database.run(
        fleet.register(
            id_, queues=None, names=names, capabilities=(), capacity=4, version="1", host="h", pid=1,
            heartbeat_timeout=timeout,
        )
    )  # fmt: skip
    database.close()


@pytest.fixture
def silent(config: Config, db: psycopg.Connection) -> None:
    """Two workers that said they were active, and have both been silent for a minute: too long for one of them."""
    register(config, "gone", timeout=30)
    register(config, "late", timeout=90, names=())
    db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 minute'")


def by_table(config: Config, db: psycopg.Connection, running: Running) -> Any:
    return dict(db.execute("SELECT id, status FROM workers").fetchall())


def by_client(config: Config, db: psycopg.Connection, running: Running) -> Any:
    with Client(config) as client:
        return {w.id: w.status for w in client.workers()}


def by_http(config: Config, db: psycopg.Connection, running: Running) -> Any:
    return {w["worker_id"]: w["status"] for w in running.http.get("/api/v1/workers").json()["workers"]}


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("read", [by_table, by_client, by_http])
def test_list_of_workers_shows_the_silent_one_as_dead(
    config: Config, db: psycopg.Connection, server: Callable[..., Running], read: Callable[..., Any]
) -> None:
    assert read(config, db, server(config, lead=False)) == {"gone": "dead", "late": "active"}


@pytest.mark.usefixtures("silent")
def test_figures_of_the_server_count_the_silent_one_as_dead(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    running = server(config, lead=False)
    found = samples(running.http.get("/metrics").content)
    assert [at(found, "workers_total", status) for status in ("active", "draining", "dead")] == [1, 0, 1]
    assert at(found, "worker_slots") == 4
    stats = running.http.get("/api/v1/queue/stats").json()["workers"]
    assert (stats["active"], stats["dead"], stats["total_capacity"]) == (1, 1, 4)
    page = running.http.get("/workers").text
    assert "gone" in page.partition('id="dead-workers"')[2]


@pytest.mark.usefixtures("silent")
def test_explain_doctor_and_top_take_the_silent_one_for_dead(config: Config, db: psycopg.Connection) -> None:
    @task
    async def silent_work() -> None: ...

    with Client(config) as client:
        task_id = client.submit_task(silent_work)
        reasons = [reason.code for reason in client.explain_task(task_id).reasons]
        assert reasons == ["name_not_known"]
        found = {finding.code: finding for finding in examine(client, thorough=False)}
        assert found["unserved_tasks"].details["count"] == 1
        figures = client.perform(top_figures.look(config))
        assert [w.id for w in figures.workers] == ["late"]


@pytest.mark.usefixtures("silent")
def test_snapshot_of_the_leader_counts_the_silent_one_as_dead(config: Config, db: psycopg.Connection) -> None:
    database = Database(config)
    term = database.run(fleet.lead("one", 30))
    assert term is not None
    database.run(maintenance.take_snapshot(term, 1000))
    database.close()
    counted = "SELECT (figures -> 'workers' -> 'dead' ->> 'count')::int FROM snapshots"
    assert db.execute(counted).fetchone() == (1,)


@pytest.fixture
def processes(database_url: str, db: psycopg.Connection, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(database_url, db, tmp_path) as started:
        yield started


@promtool
def test_alert_of_no_active_workers_fires_for_a_fleet_that_was_killed(
    config: Config, processes: Fleet, server: Callable[..., Running], tmp_path: Path
) -> None:
    running = server(config, lead=False)

    def scraped(status: str) -> int:
        return int(at(samples(running.http.get("/metrics").content), "workers_total", status))

    quick = {"heartbeat_interval_seconds": 0.5, "heartbeat_timeout_seconds": 2.0}
    workers = [processes.start(quick) for _ in range(2)]
    eventually(lambda: scraped("active") == 2, "both are active")
    alive = scraped("active")
    for worker in workers:
        worker.kill()
    eventually(lambda: scraped("dead") == 2, "both are dead")
    rules = files("tasklib.metrics").joinpath("alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(rules)
    (tmp_path / "killed.yml").write_text(_KILLED.format(alive=alive, after=scraped("active")))
    ran = subprocess.run(
        ["promtool", "test", "rules", "killed.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


_KILLED = """
rule_files: [alerts.yml]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      - {{series: 'workers_total{{instance="a",status="active"}}', values: "{alive}x2 {after}x20"}}
    alert_rule_test:
      - {{eval_time: 3m, alertname: TaskLibNoActiveWorkers, exp_alerts: []}}
      - eval_time: 4m
        alertname: TaskLibNoActiveWorkers
        exp_alerts:
          - exp_labels: {{severity: critical}}
            exp_annotations:
              summary: No worker is active
              description: Nothing has been run for 2 minutes. Start workers, or see why they ended; tasks wait and are not lost.
"""  # noqa: E501


def test_heartbeat_that_waits_keeps_no_worker_alive_that_has_hung_up(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    running = server(config)
    worker = running.http.post("/internal/workers/register", json={"task_types": ["x"]}).json()["worker_id"]
    waiting = running.app.state.services.notifier._waiting_for_orders
    connections = running.server.server_state.connections
    others = len(connections)
    body = json.dumps({"wait_seconds": 30}).encode()
    head = (
        f"POST /internal/workers/{worker}/heartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    )
    with socket.create_connection(("127.0.0.1", urlsplit(str(running)).port)) as killed:
        killed.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        eventually(lambda: waiting, "the heartbeat waits")
    eventually(lambda: len(connections) == others, "the worker has hung up")
    last = "SELECT last_heartbeat FROM workers"
    before = db.execute(last).fetchone()
    db.execute("SELECT pg_notify('tasklib_public', %s)", [fleet.DRAIN])
    eventually(lambda: not waiting, "the server looks again")
    eventually(lambda: not running.server.server_state.tasks, "the request is over")
    assert db.execute(last).fetchone() == before
