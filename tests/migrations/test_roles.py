"""The roles of `tasklib migrate --roles`, on a real server: each can do its own work, and no other role's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from tasklib import Client, Config, Schedule, Worker, task
from tasklib.client.submissions import COPY_FROM
from tasklib.config import Retention
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import DutyFailed, Event
from tasklib.maintenance.calendar import duties_of
from tasklib.migrations import ROLES, migrate, roles
from tasklib.server.app import create_app
from tasklib.server.settings import ServerSettings
from tasklib.store import fleet
from tasklib.testing import databases

As = Callable[[str], Config]


@pytest.fixture
def add() -> Any:
    """A task function."""

    @task(name="roles.add")
    async def add(a: int = 1, b: int = 2) -> int:
        return a + b

    return add


@pytest.fixture(scope="module")
def database(server_url: str) -> Iterator[tuple[str, str]]:
    """A database of its own with TaskLib in a schema, and the script run; roles belong to the whole server."""
    schema = f"roles_{secrets.token_hex(4)}"
    with databases.database(server_url) as url:
        migrate(Config(url, schema=schema))
        with psycopg.connect(url, autocommit=True) as admin:
            for _ in range(2):  # it can be run again
                admin.execute(roles(schema).encode())
            yield url, schema
            for role in ROLES:
                admin.execute(f'DROP OWNED BY "{schema}_{role}" CASCADE'.encode())
        with psycopg.connect(server_url, autocommit=True) as admin:
            for role in ROLES:
                admin.execute(f'DROP ROLE "{schema}_{role}"'.encode())


@pytest.fixture
def as_(database: tuple[str, str]) -> Iterator[As]:
    """`as_("reader")`: a configuration that acts in this role."""
    url, schema = database
    yield lambda role: Config(make_conninfo(url, options=f"-c role={schema}_{role}"), schema=schema)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"TRUNCATE {schema}.tasks, {schema}.worker_registrations".encode())


def refused(config: Config, *statements: str) -> None:
    """None of these statements is allowed."""
    with psycopg.connect(config.database_url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {config.schema}".encode())
        for statement in statements:
            with pytest.raises(InsufficientPrivilege):
                connection.execute(statement.encode())


NOT_FOR_PROGRAMS = (
    "SELECT * FROM api_tokens",
    "INSERT INTO api_tokens (name, prefix, hash, roles, created_by) VALUES ('a', 'b', sha256('c'), '{admin}', 'd')",
    "UPDATE api_tokens SET roles = '{admin}'",
    "SELECT * FROM audit",
    "INSERT INTO audit (actor, action) VALUES ('somebody else', 'pause')",
    "ALTER TABLE audit DISABLE TRIGGER ALL",
    "DROP TABLE tasks",
    "CREATE TABLE mine ()",
    "TRUNCATE tasks",
    "UPDATE settings SET promote_to_high_after_seconds = 1",
    "INSERT INTO pauses (kind, value) VALUES ('queue', 'default')",
    "INSERT INTO schedules (name, task, spec, template) VALUES ('s', 't', '{}', '{}')",
    "DELETE FROM schedules",
)
NOT_FOR_PRODUCERS = (
    "UPDATE tasks SET state = 'completed'",
    "UPDATE tasks SET priority = 100",
    "UPDATE tasks SET kwargs = '{}'",
    "DELETE FROM tasks",
    "INSERT INTO worker_registrations (id) VALUES ('w')",
    "UPDATE leadership SET holder = 'me'",
)


def test_a_producer_submits_in_every_way_and_does_nothing_else(as_: As, add: Any) -> None:
    config = as_("producer")
    with Client(config) as client:
        first = client.submit_task(add, idempotency_key="k")
        assert client.submit_task(add, idempotency_key="k") == first
        with psycopg.connect(config.database_url) as connection:
            client.submit_task(add, delay_seconds=60, connection=connection)
        keyed = [add.options(idempotency_key=str(n)).bind() for n in range(3)]
        assert len(client.submit_many(keyed)) == 3
        assert len(client.submit_many(add, [{}] * 3)) == 3
        assert len(client.submit_many(add, [{}] * COPY_FROM)) == COPY_FROM
        for calls in (client.list_tasks, lambda: client.get_task(first), lambda: client.cancel_task(first)):
            with pytest.raises(InsufficientPrivilege):
                calls()
    refused(
        config,
        *NOT_FOR_PROGRAMS,
        *NOT_FOR_PRODUCERS,
        "SELECT kwargs FROM tasks",
        "SELECT result FROM tasks",
        "INSERT INTO tasks (name, state) VALUES ('a', 'completed')",
        "SELECT * FROM workers",
    )


def test_a_producer_whose_key_has_expired_frees_it(as_: As, add: Any, database: tuple[str, str]) -> None:
    with Client(as_("producer")) as client:
        first = client.submit_task(add, idempotency_key="k")
        with psycopg.connect(database[0], autocommit=True) as admin:
            admin.execute(f"UPDATE {database[1]}.tasks SET idempotency_expires_at = now()".encode())
        assert client.submit_task(add, idempotency_key="k") != first


def test_a_reader_looks_and_changes_nothing(as_: As, add: Any) -> None:
    with Client(as_("producer")) as client:
        task_id = client.submit_task(add)
    with Client(as_("reader")) as client:
        assert [t.id for t in client.list_tasks()] == [task_id]
        assert client.explain_task(task_id).reasons
        assert client.queue_position(task_id)
        assert client.search_tasks("name:roles.add").tasks
        assert client.dead_letters() == client.dead_letter_groups() == client.workers() == client.pauses() == []
        assert client.settings()
        with pytest.raises(InsufficientPrivilege):
            client.cancel_task(task_id)
        with pytest.raises(InsufficientPrivilege):
            client.submit_task(add)
    refused(as_("reader"), *NOT_FOR_PROGRAMS, *NOT_FOR_PRODUCERS, "INSERT INTO tasks (name) VALUES ('a')")


def test_a_worker_runs_tasks_leads_and_has_no_say_over_the_fleet(as_: As, add: Any) -> None:
    config = as_("worker").with_changes(retention=(Retention("completed", days=30),))
    with Client(as_("producer")) as client:
        ids = client.submit_many(add, [{"a": n} for n in range(20)])
    Worker(config, burst=True).run_sync()
    with Client(config) as client:
        assert [client.wait_for(i, timeout=120) for i in ids] == [n + 2 for n in range(20)]
        client.submit_task(add)
        with pytest.raises(InsufficientPrivilege):
            client.pause(queue="default")
        with pytest.raises(InsufficientPrivilege):
            client.tokens()
    lead(config)
    refused(config, *NOT_FOR_PROGRAMS)


def test_a_worker_that_may_not_store_schedules_says_what_to_do_and_goes_on(as_: As, add: Any) -> None:
    heard: list[Event] = []
    scheduled = task(name="roles.scheduled", schedule=Schedule("@daily", name="roles.daily"))(scheduled_function)

    def run_once() -> list[str]:
        heard.clear()
        with Client(as_("producer")) as client:
            task_id = client.submit_task(scheduled)
        worker = Worker(as_("worker"), burst=True)
        worker.events.subscribe(heard.append)
        worker.run_sync()
        with Client(as_("worker")) as client:
            assert client.wait_for(task_id, timeout=120) == 7
        return [event.reason for event in heard if isinstance(event, DutyFailed)]

    [reason] = run_once()
    assert "permission denied" in reason
    assert "tasklib schedule sync" in reason
    with Client(as_("server")) as client:
        assert client.sync_schedules().created == ["roles.daily"]
        assert run_once() == [], "what the deploy has stored is only read"
        client.delete_schedule("roles.daily")


def scheduled_function() -> int:
    return 7


def lead(config: Config) -> None:
    """Every duty of the leader, once."""

    async def all_duties() -> None:
        link = ReconnectingConnection(config, "control")
        term = await link.run(fleet.lead("the test", 60))
        assert term is not None
        for duty in duties_of(config):
            await duty.perform(link, config, term)
        await link.run(fleet.resign("the test"))
        link.drop()

    asyncio.run(all_duties())


async def test_a_server_serves_everything_and_keeps_the_audit(as_: As) -> None:
    config = as_("server")
    with Client(config) as client:
        admin = client.create_token("admin", roles=["admin", "worker"])
    app = create_app(config, ServerSettings())
    headers = {"Authorization": f"Bearer {admin.text}"}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http,
    ):

        async def call(method: str, path: str, body: Any = None) -> Any:
            answer = await http.request(method, path, json=body)
            assert answer.is_success, (method, path, answer.text)
            is_json = answer.content and answer.headers.get("content-type") == "application/json"
            return answer.json() if is_json else None

        made = await call("POST", "/api/v1/tasks", {"task_type": "roles.add", "idempotency_key": "k"})
        await call("POST", "/api/v1/tasks/batch", {"tasks": [{"task_type": "roles.add"}] * 3})
        for path in ("tasks", "queue/stats", "dead-letters", "workers", "pauses", "settings", "tokens", "audit"):
            await call("GET", f"/api/v1/{path}")
        await call("GET", "/metrics")
        await call("GET", "/")
        await call("POST", "/api/v1/pauses", {"queue": "mail"})
        await call("DELETE", "/api/v1/pauses?queue=mail")
        await call("PATCH", "/api/v1/settings", {"promote_to_medium_after_seconds": 300})
        spare = await call("POST", "/api/v1/tokens", {"name": "spare", "roles": ["viewer"]})
        await call("DELETE", f"/api/v1/tokens/{spare['prefix']}")
        worker = (await call("POST", "/internal/workers/register", {"task_types": ["roles.add"]}))["worker_id"]
        [polled] = (await call("POST", f"/internal/workers/{worker}/poll", {"available_capacity": 1}))["tasks"]
        lease = {"task_id": polled["task_id"], "lease_token": polled["lease_token"]}
        await call("POST", f"/internal/workers/{worker}/progress", {**lease, "progress": 1})
        await call("POST", f"/internal/workers/{worker}/heartbeat", {"running": [lease]})
        await call("POST", f"/internal/workers/{worker}/result", {**lease, "status": "completed", "result": 3})
        await call("POST", f"/api/v1/tasks/{made['task_id']}/replay")
        await call("DELETE", f"/api/v1/tasks/{made['task_id']}")
        await call("DELETE", "/api/v1/dead-letters?everything=true")
        await call("DELETE", f"/internal/workers/{worker}")
    refused(
        config,
        "UPDATE audit SET actor = 'x'",
        "DELETE FROM audit",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "DELETE FROM api_tokens",
        "UPDATE api_tokens SET roles = '{admin}'",
        "DROP TABLE tasks",
        "CREATE TABLE mine ()",
    )


def test_the_owner_migrates(as_: As) -> None:
    assert migrate(as_("owner")) == ()
    with psycopg.connect(as_("owner").database_url) as connection:
        connection.execute(f"ALTER TABLE {as_('owner').schema}.tasks ADD COLUMN one_day int".encode())
        connection.rollback()


def test_names_can_not_break_out_of_the_script() -> None:
    script = roles("a\"b'c {owner}; DROP TABLE tasks; --")
    assert """'a"b''c {owner}; DROP TABLE tasks; --_owner'""" in script
    assert '"a""b\'c {owner}; DROP TABLE tasks; --"' in script
    assert '"public"' in roles()
    assert '"tasklib_reader"' in roles()
