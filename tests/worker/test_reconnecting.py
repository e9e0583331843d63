"""A worker's connection: when its answers are handed on, and what happens when somebody stops waiting."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.abc import PQGen
from psycopg.waiting import Wait

from tasklib import Config
from tasklib.db.fast_path import _Walk
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import DatabaseUnavailable
from tasklib.store import claim
from tasklib.store.claim import Claimed, Lane
from tests.eventually import soon
from tests.loops import LOOPS


@pytest.fixture(scope="module", params=LOOPS)
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Each of these tests runs on asyncio's own loop and on uvloop."""
    policy: asyncio.AbstractEventLoopPolicy = request.param()
    return policy


def next_task() -> Query[list[Claimed]]:
    lane = Lane("default", "", "{}", 0)
    return claim.claim_next(lane, ("work",), "w", lease_seconds=60.0, medium_after=300.0, high_after=900.0)


@pytest.fixture
def reconnecting(config: Config) -> Iterator[ReconnectingConnection]:
    made = ReconnectingConnection(config, "tasks")
    yield made
    made.drop()


def is_claiming(db: psycopg.Connection) -> bool:
    """The reconnecting's statement waits behind a lock."""
    found = db.execute("""SELECT FROM pg_stat_activity
                          WHERE datname = current_database() AND application_name = 'tasklib worker tasks'
                            AND wait_event_type = 'Lock'""")
    return found.fetchone() is not None


async def test_an_answer_is_handed_on_before_the_waiting_caller_is_resumed(
    reconnecting: ReconnectingConnection, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    happened: list[str] = []

    def hand_on(claimed: list[Claimed]) -> None:
        happened.append(claimed[0].name)
        asyncio.get_running_loop().call_soon(happened.append, "a turn of the loop")

    [claimed] = await reconnecting.run(next_task(), hand_on)
    happened.append(f"{claimed.name} for who waited")
    await asyncio.sleep(0)
    assert happened == ["work", "a turn of the loop", "work for who waited"]


async def test_an_error_of_the_function_an_answer_is_handed_to_is_raised(reconnecting: ReconnectingConnection) -> None:
    def hand_on(claimed: list[Claimed]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await reconnecting.run(next_task(), hand_on)
    assert await reconnecting.run(next_task()) == []


async def test_an_answer_without_a_waiting_caller_is_not_handed_on(
    reconnecting: ReconnectingConnection, config: Config, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    handed_on: list[list[Claimed]] = []
    with psycopg.connect(config.database_url) as other:
        other.execute("LOCK TABLE tasks")
        asking = asyncio.create_task(reconnecting.run(next_task(), handed_on.append))
        await soon(lambda: is_claiming(db), "the claim waits")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert handed_on == []
    assert len(await reconnecting.run(next_task())) == 1, "the statement was stopped, the next one has a new connection"


async def test_a_lost_socket_is_out_of_the_loop_before_its_number_can_be_another_ones() -> None:
    """libpq closes it while it reads; whoever waits is resumed a turn later, and others may connect before that."""
    ours, theirs = socket.socketpair()
    number, loop = ours.fileno(), asyncio.get_running_loop()
    new: list[socket.socket] = []

    def connect() -> None:
        new.extend(socket.socketpair())
        loop.add_writer(number, loop.remove_writer, number)

    def lose() -> PQGen[None]:
        yield Wait.R
        loop.call_soon(connect)
        ours.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    failures: list[object] = []
    loop.set_exception_handler(lambda loop, context: failures.append(context))
    theirs.close()
    with pytest.raises(psycopg.OperationalError):
        await _Walk(number, lose()).end()
    assert number in [s.fileno() for s in new], "else this test shows nothing"
    assert failures == []
    loop.remove_writer(number)  # libuv doesn't bear that a socket is closed which it watches
    for made in new:
        made.close()


async def test_a_connection_lost_in_the_middle_of_an_answer_is_said_and_replaced(
    reconnecting: ReconnectingConnection, config: Config, db: psycopg.Connection
) -> None:
    with psycopg.connect(config.database_url) as other:
        other.execute("LOCK TABLE tasks")
        asking = asyncio.create_task(reconnecting.run(next_task()))
        await soon(lambda: is_claiming(db), "the claim waits")
        db.execute("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE datname = current_database() AND application_name = 'tasklib worker tasks'""")
        with pytest.raises(DatabaseUnavailable):
            await asking
    assert await reconnecting.run(next_task()) == []


async def test_what_the_server_said_before_it_hung_up_does_not_hide_that_it_did() -> None:
    """libuv ends a watch in which it saw an error: what was read then must not be the last that is read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    theirs.sendall(b"FATAL")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()  # by a reset, not a farewell

    def converse() -> PQGen[bytes]:
        yield Wait.R
        said = ours.recv(100)
        yield Wait.R
        with pytest.raises(ConnectionResetError):
            ours.recv(100)
        return said

    with ours:
        assert await _Walk(ours.fileno(), converse()).end() == b"FATAL"


async def test_a_connection_lost_while_idle_is_replaced_before_anything_is_sent(
    config: Config, db: psycopg.Connection
) -> None:
    told: list[str] = []
    reconnecting = ReconnectingConnection(
        config, "tasks", on_lost=lambda *_: told.append("lost"), on_back=lambda _: told.append("back")
    )
    await reconnecting.run(next_task())
    db.execute("""SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'tasklib worker tasks'""")
    assert await reconnecting.run(next_task()) == []
    assert told == ["lost", "back"]
    reconnecting.drop()


async def test_transactions_that_keep_meeting_are_tried_again_a_bounded_number_of_times(
    reconnecting: ReconnectingConnection, db: psycopg.Connection
) -> None:
    db.execute("CREATE SEQUENCE tries")
    db.execute("""CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                      PERFORM nextval('tries');
                      RAISE EXCEPTION USING ERRCODE = 'serialization_failure';
                  END $$""")
    db.execute("CREATE TRIGGER meet BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION meet()")
    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    with pytest.raises(DatabaseUnavailable, match="blocked by other transactions"):
        await reconnecting.run(next_task())
    assert db.execute("SELECT last_value FROM tries").fetchone() == (10,)
