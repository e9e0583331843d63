"""What is wrong with the database is told with what to check, and never with the password."""

from __future__ import annotations

import re
import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import tasklib
from tasklib import AsyncClient, Client, Config
from tasklib.errors import (
    ConfigError,
    DatabaseUnavailable,
    NotInitialized,
    SchemaError,
)
from tasklib.migrations import check, migrate
from tests.client.bad_input.saying import saying


async def test_without_init_the_error_says_what_to_call(greet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    expected = saying(
        "TaskLib is not initialised. Call tasklib.init('postgresql://user@host/db') once at start-up, "
        "or set TASKLIB_DATABASE_URL, or use tasklib.Client / tasklib.AsyncClient."
    )
    with pytest.raises(NotInitialized, match=expected):
        await tasklib.submit_task(greet, name="a")
    with pytest.raises(RuntimeError, match=expected):
        tasklib.sync.submit_task(greet, name="a")
    with pytest.raises(NotInitialized, match=expected):
        await greet.submit(name="a")
    with pytest.raises(NotInitialized, match=expected):
        greet.submit_sync(name="a")
    with pytest.raises(ConfigError, match=r"no database is configured\. Set TASKLIB_DATABASE_URL="):
        tasklib.init()


async def refused_at(url: str, greet: Any) -> str:
    """What both clients and the migration say about this address; they must agree."""
    said = set()
    with pytest.raises(DatabaseUnavailable) as caught:
        Client(url).submit_task(greet, name="a")
    said.add(str(caught.value))
    with pytest.raises(ConnectionError) as caught_too:
        await AsyncClient(url).submit_task(greet, name="a")
    said.add(str(caught_too.value))
    with pytest.raises(DatabaseUnavailable) as caught:
        migrate(Config(url))
    said.add(str(caught.value))
    assert len({re.sub(r"connection timeout.*", "", text) for text in said}) == 1, said
    assert all("hunter2" not in text for text in said)
    return said.pop()


async def test_a_server_that_isnt_there_is_named_without_the_password(greet: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses connections, and stays taken
        port = taken.getsockname()[1]
        said = await refused_at(f"postgresql://app:hunter2@127.0.0.1:{port}/shop", greet)
    assert said.startswith(f"can't connect to PostgreSQL at app@127.0.0.1:{port}/shop: ")
    assert "Connection refused" in said
    assert said.endswith("Check that the server runs and that the URL, user and password are right.")


async def test_a_socket_that_isnt_there_is_named(greet: Any, tmp_path: Path) -> None:
    said = await refused_at(f"host={tmp_path} user=app password=hunter2 dbname=shop", greet)
    assert said.startswith(f"can't connect to PostgreSQL at app@{tmp_path}/shop: ")
    assert "No such file or directory" in said


async def test_a_database_that_isnt_there_is_named(greet: Any, server_url: str) -> None:
    said = await refused_at(make_conninfo(server_url, dbname="no_such_database"), greet)
    assert "/no_such_database: " in said
    assert 'database "no_such_database" does not exist' in said


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that gives everybody the same answer to their first words."""

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.recv(65536)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(120)


async def test_a_password_that_the_server_refuses_is_explained_and_never_shown(greet: Any) -> None:
    # The words of PostgreSQL itself, in its protocol: an ErrorResponse with severity, SQLSTATE and message.
    fields = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "app"\0\0'
    with answering(b"E" + struct.pack("!i", 4 + len(fields)) + fields) as port:
        url = f"postgresql://app:hunter2@127.0.0.1:{port}/shop?sslmode=disable&gssencmode=disable"
        said = await refused_at(url, greet)
    assert 'password authentication failed for user "app"' in said
    assert said.startswith(f"can't connect to PostgreSQL at app@127.0.0.1:{port}/shop: ")


async def test_a_real_server_refuses_a_wrong_password(greet: Any, server_url: str) -> None:
    role = f"tasklib_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'right'").format(sql.Identifier(role)))
        try:
            wrong = make_conninfo(server_url, user=role, password="hunter2")
            try:
                psycopg.connect(wrong).close()
            except psycopg.OperationalError:
                said = await refused_at(wrong, greet)
            else:
                pytest.skip("this server trusts everybody; the embedded one asks for the password")
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    assert f'password authentication failed for user "{role}"' in said


async def test_what_isnt_postgresql_is_refused(greet: Any) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        url = f"postgresql://app:hunter2@127.0.0.1:{port}/shop?sslmode=disable&gssencmode=disable"
        said = await refused_at(url, greet)
    assert said.startswith(f"can't connect to PostgreSQL at app@127.0.0.1:{port}/shop: ")


async def test_an_unmigrated_database_says_what_to_run(greet: Any, empty_database_url: str) -> None:
    expected = r'TaskLib\'s tables are missing .*relation "tasks" does not exist.* Run: tasklib migrate'
    with Client(empty_database_url) as client:
        for call in (
            lambda: client.submit_task(greet, name="a"),
            lambda: client.submit_task(greet, name="a", idempotency_key="k"),
            lambda: client.submit_many(greet, [{"name": "a"}] * 200),
            lambda: client.get_task(uuid.uuid4()),
            lambda: client.list_tasks(),
            lambda: client.wait_for(uuid.uuid4()),
        ):
            with pytest.raises(SchemaError, match=expected):
                call()
    async with AsyncClient(empty_database_url) as async_client:
        with pytest.raises(SchemaError, match=expected):
            await async_client.submit_task(greet, name="a")
        with pytest.raises(SchemaError, match=expected):
            await async_client.submit_many(greet, [{"name": "a"}] * 200)
    with pytest.raises(
        SchemaError, match=saying("TaskLib's tables are not in this database. Create them with: tasklib migrate")
    ):
        check(Config(empty_database_url))


def test_a_schema_that_isnt_there_is_named(greet: Any, config: Config) -> None:
    there = config.with_changes(schema="nowhere")
    with Client(there) as client, pytest.raises(SchemaError, match=r'"nowhere\.tasks" does not exist'):
        client.submit_task(greet, name="a")
    with pytest.raises(SchemaError, match="TaskLib's tables are not in schema 'nowhere'"):
        check(there)


def test_a_newer_database_asks_for_an_upgrade(empty_database_url: str) -> None:
    config = Config(empty_database_url)
    migrate(config)
    check(config)
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("UPDATE tasklib_version SET version_num = '9999'")
    expected = saying(
        "this database is at revision 9999, newer than this TaskLib knows "
        f"({sorted(p.name[:4] for p in VERSIONS.glob('[0-9]*.py'))[-1]}). "
        "Upgrade tasklib-pg in this program; nothing was changed."
    )
    with pytest.raises(SchemaError, match=expected):
        check(config)
    with pytest.raises(SchemaError, match=expected):
        migrate(config)


VERSIONS = Path(tasklib.__file__).parent / "migrations" / "versions"
