"""The calls of the documents that TaskLib was designed from, as they write them.

Their REST API and worker protocol are tested in tests/server, their metrics in tests/metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasklib
from tasklib import Client, Config, Worker, get_task, list_tasks, submit_task, task
from tasklib.exceptions import TaskExecutionError, TaskNotFound
from tasklib.models import Task


@pytest.fixture
def initialised(config: Config) -> Iterator[None]:
    tasklib.init(config)
    yield
    tasklib.close()


@pytest.fixture
def my_task() -> Any:
    @task
    def my_task(x: int) -> int:
        return x * 2

    return my_task


# ---- a minimal library: @task, submit_task, get_task, list_tasks, Config ----


async def test_submit_task_takes_options_and_arguments_side_by_side(my_task: Any, initialised: None) -> None:
    task_id = await submit_task(
        my_task,
        delay_seconds=60,
        max_retries=5,
        timeout_seconds=30,
        priority=10,
        tags={"batch": "daily"},
        x=5,
    )
    stored = await get_task(task_id)
    assert stored is not None
    assert (stored.max_retries, stored.timeout_seconds, stored.priority) == (5, 30, 10)
    assert (stored.kwargs, stored.tags, stored.args) == ({"x": 5}, {"batch": "daily"}, {})
    assert (stored.scheduled_at - stored.created_at).total_seconds() == pytest.approx(60)
    assert [t.id for t in await list_tasks(state="pending", name="my_task", limit=100)] == [task_id]


def test_the_decorator_is_bare_or_takes_options() -> None:
    @task(max_retries=5, timeout_seconds=30)
    def slow_task(path: str) -> dict[str, Any]:
        return {"path": path}

    assert slow_task("a") == {"path": "a"}
    assert (slow_task.defaults.max_retries, slow_task.defaults.timeout_seconds) == (5, 30)


def test_config_has_the_documented_settings_and_defaults(database_url: str) -> None:
    config = Config(
        database_url=database_url,
        max_retries=3,
        base_retry_delay_seconds=5.0,
        retry_backoff_multiplier=2.0,
        lock_timeout_seconds=600,
        default_task_timeout_seconds=None,
        worker_id=None,
    )
    assert config == Config(database_url)
    assert Worker(config, concurrency=10, poll_interval_seconds=1).concurrency == 10


async def test_errors_come_at_submission(my_task: Any, initialised: None) -> None:
    with pytest.raises(TaskNotFound, match="no task named 'my_tsak'"):
        await submit_task("my_tsak", x=5)
    with pytest.raises(TaskExecutionError, match="x: Input should be a valid integer"):
        await submit_task(my_task, x="five")


async def test_without_init_the_error_says_what_to_call(my_task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TASKLIB_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match=r"Call tasklib\.init\("):
        await submit_task(my_task, x=5)


# ---- the story of a task: where the document calls without await, the error says what to write ----


async def test_the_story_of_a_task(config: Config, initialised: None, db: psycopg.Connection) -> None:
    @task
    def send_email(to: str, subject: str) -> bool:
        return True

    task_id = await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")
    assert isinstance(task_id, UUID)
    await Worker(config, burst=True, signals=False).run()

    found: Any = tasklib.get_task(task_id)
    with pytest.raises(AttributeError, match=r"Write `await tasklib\.get_task\(\.\.\.\)`, or `tasklib\.sync\.get_task"):
        tasklib.is_completed(found)
    task_row = await found
    assert tasklib.is_completed(task_row)
    assert task_row.result is True
    assert db.execute("SELECT result FROM tasks").fetchone() == ({"value": True},)  # as the document shows the row


def test_in_synchronous_code_the_story_is_the_same(config: Config, initialised: None) -> None:
    @task
    def send_email(to: str, subject: str) -> bool:
        return True

    task_id = tasklib.sync.submit_task(send_email, to="user@example.com", subject="Hello")
    Worker(config, burst=True, signals=False).run_sync()
    task_row = tasklib.sync.get_task(task_id)
    assert task_row is not None
    assert tasklib.is_completed(task_row)
    assert [t.id for t in tasklib.sync.list_tasks(state="completed")] == [task_id]


def test_list_tasks_without_await_says_what_to_write(initialised: None) -> None:
    tasks: Any = tasklib.list_tasks(state="pending", limit=100)
    with pytest.raises(TypeError, match=r"Write `await tasklib\.list_tasks\(\.\.\.\)`, or `tasklib\.sync\.list_tasks"):
        for _ in tasks:
            pass
    tasks.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM tasks WHERE state='pending' ORDER BY priority DESC",
        "SELECT COUNT(*) FROM tasks WHERE state='failed'",
        "SELECT AVG(completed_at - started_at) FROM tasks WHERE state='completed'",
        "SELECT name, COUNT(*), AVG(EXTRACT(EPOCH FROM (completed_at - started_at))) FROM tasks "
        "WHERE state = 'completed' GROUP BY name",
        "SELECT id, name, error FROM tasks WHERE state = 'failed' AND completed_at > NOW() - INTERVAL '1 hour'",
        "DELETE FROM tasks WHERE state = 'completed' AND completed_at < NOW() - INTERVAL '30 days'",
        "DELETE FROM tasks WHERE state = 'failed' AND completed_at < NOW() - INTERVAL '90 days' "
        "AND retry_count >= max_retries",
    ],
)
def test_the_documented_statements_work_on_the_table(statement: str, db: psycopg.Connection) -> None:
    db.execute(statement)


def test_the_model_has_the_documented_columns() -> None:
    documented = "id name args kwargs state result error retry_count max_retries next_retry_at scheduled_at started_at "
    documented += "completed_at created_at worker_id locked_until timeout_seconds priority tags"
    assert set(documented.split()) <= Task.model_fields.keys()


# ---- a service started with a DSN: tasks are enqueued by SQL, handlers have names ----


async def test_a_handler_by_name_runs_what_sql_has_inserted(
    database_url: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def webhook_handler(url: str, method: str) -> str:
        return f"{method} {url}"

    task(name="webhook.outbound")(webhook_handler)
    db.execute(
        """INSERT INTO tasks (name, kwargs)
           VALUES ('webhook.outbound', '{"url": "https://example.com", "method": "POST"}')"""
    )
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    monkeypatch.setenv("DATABASE_URL", database_url)
    await Worker(burst=True, signals=False).run()
    assert db.execute("SELECT result FROM tasks").fetchone() == ({"value": "POST https://example.com"},)


# ---- an orchestrator: enqueue in a transaction, once for each type and key ----


def test_enqueueing_is_part_of_the_transaction_and_happens_once_for_each_key(
    my_task: Any, initialised: None, database_url: str, db: psycopg.Connection
) -> None:
    with psycopg.connect(database_url) as connection:
        my_task.on(connection).submit(x=1)
        connection.rollback()
        first = my_task.options(idempotency_key="k").on(connection).submit(x=2)
    assert my_task.options(idempotency_key="k").submit_sync(x=3) == first
    assert db.execute("SELECT id FROM tasks").fetchall() == [(first,)]


# ---- a queue with levels ----


def test_a_level_a_capability_a_key_and_a_cancellation(my_task: Any, config: Config) -> None:
    options: dict[str, Any] = {
        "priority": "high",
        "required_capabilities": ["gpu"],
        "timeout_seconds": 600,
        "idempotency_key": "optional-key",
    }
    with Client(config) as client:
        task_id = client.submit_task(my_task, x=1, **options)
        assert client.submit_task(my_task, x=1, **options) == task_id
        row = task_id.get()
        assert (row.priority, row.max_retries, row.timeout_seconds, row.required_capabilities) == (100, 5, 600, ["gpu"])
        assert client.cancel_task(task_id) == "cancelled"
