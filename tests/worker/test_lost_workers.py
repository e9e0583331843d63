"""Workers that are killed while they drain: no task is given up that never began, and none at most once runs twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.tasks import registry
from tests.worker import fleet_tasks
from tests.worker.fleet import Fleet, fleet_of
from tests.worker.test_recovery import SHORT

TASKS = 3_000


@pytest.fixture
def beginnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "beginnings"
    path.touch()
    monkeypatch.setenv("FLEET_BEGINNINGS", str(path))
    return path


@pytest.fixture
def fleet(database_url: str, db: psycopg.Connection, tmp_path: Path, beginnings: Path) -> Iterator[Fleet]:
    for function in (fleet_tasks.never_retried, fleet_tasks.at_most_once):
        registry.register(function)
    with fleet_of(database_url, db, tmp_path) as fleet:
        yield fleet


def test_killed_while_draining_every_task_without_retries_begins_and_none_is_a_dead_letter(
    fleet: Fleet, config: Config, beginnings: Path
) -> None:
    with Client(config) as client:
        ids = client.submit_many(fleet_tasks.never_retried, [{} for _ in range(TASKS)])
    victim = fleet.start(SHORT, concurrency=100)
    fleet.wait(lambda: fleet.value("SELECT count(*) FROM tasks WHERE state = 'completed'") >= 200, "it drains")
    victim.kill()
    victim.wait()
    # A claim that was under way commits after its worker's end.
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s"
    fleet.wait(lambda: fleet.value(sessions, "tasklib worker%") == 0, "the sessions of the killed worker end")
    held = fleet.value("SELECT count(*) FROM tasks WHERE state = 'running'")
    fleet.start(SHORT, concurrency=100)
    fleet.wait_for_value(TASKS, "SELECT count(*) FROM tasks WHERE state = 'completed'")
    begun = Counter(beginnings.read_text().split())
    assert set(begun) == {str(id_) for id_ in ids}
    assert fleet.value("SELECT count(*) FROM tasks WHERE retry_count > 0") == 0
    assert fleet.value("SELECT count(*) FROM tasks WHERE crash_count > 0") <= held
    assert all(fleet.value("SELECT crash_count FROM tasks WHERE id = %s", id_) for id_, n in begun.items() if n > 1), (
        "what began twice was counted as a crash"
    )


def test_killed_while_draining_no_task_at_most_once_begins_twice(
    fleet: Fleet, config: Config, beginnings: Path
) -> None:
    with Client(config) as client:
        client.submit_many(fleet_tasks.at_most_once, [{} for _ in range(TASKS)])
    victim = fleet.start(SHORT, concurrency=100)
    fleet.wait(lambda: fleet.value("SELECT count(*) FROM tasks WHERE state = 'completed'") >= 200, "it drains")
    assert fleet.value("SELECT count(*) FROM tasks WHERE state = 'running'") <= 100, "none is claimed ahead"
    victim.kill()
    victim.wait()
    fleet.start(SHORT, concurrency=100)
    fleet.wait_for_value(0, "SELECT count(*) FROM tasks WHERE state IN ('pending', 'failed', 'running')")
    begun = Counter(beginnings.read_text().split())
    assert max(begun.values()) == 1
    dead = fleet.db.execute("SELECT id::text, error FROM tasks WHERE state = 'dead_letter'").fetchall()
    assert all("after it had begun. The task runs at most once" in error for _, error in dead)
    assert TASKS - len(begun) <= len(dead), "what never began was about to"
