"""What a submission costs, counted and not timed: statements, round trips, copies in memory."""

from __future__ import annotations

import re
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from tasklib import Client, Config, TaskFunction, task
from tasklib.client.call_arguments import Alike
from tasklib.client.effects import MOST_IN_JSON, InTransaction
from tasklib.client.submissions import COPY_FROM, new_tasks
from tasklib.store.submit import COPY_CHUNK
from tasklib.tasks.options import MAX_NAME_BYTES, NOTHING_SAID, Options
from tests.client.conftest import Either


@pytest.fixture
def greet() -> TaskFunction[Any, Any]:
    @task
    def greet(name: str) -> None: ...

    return greet


# ---- on the wire ----


@contextmanager
def sent(client: Any) -> Iterator[Counter[str]]:
    """Counts the messages the client sends meanwhile, on the one connection it has, by their kind."""
    (connection,) = client.database._idle
    messages = Counter[str]()
    with tempfile.TemporaryFile() as trace:
        connection.pgconn.trace(trace.fileno())
        yield messages
        connection.pgconn.untrace()
        trace.seek(0)
        messages.update(re.findall(r"^.*?\tF\t\d+\t(\w+)", trace.read().decode(), re.MULTILINE))


ONE_ROUND_TRIP = {"Bind": 1, "Describe": 1, "Execute": 1, "Sync": 1}


@pytest.mark.direct(reason="nothing is prepared behind a pooler")
@pytest.mark.parametrize("options", [{}, {"delay_seconds": 5, "tags": {"a": 1}}, {"idempotency_key": "k"}])
async def test_one_task_is_one_prepared_statement_and_one_commit(
    options: dict[str, Any], either: Either, greet: Any, db: Any
) -> None:
    for _ in range(2):  # it is prepared at its second use
        await either.submit_task(greet, name="a", **options)
    with sent(either.client) as messages:
        await either.submit_task(greet, name="a", **options)
    assert messages == ONE_ROUND_TRIP
    rows, commits = db.execute("SELECT count(*), count(DISTINCT xmin::text) FROM tasks").fetchone()
    assert rows == commits


async def test_the_first_task_is_one_round_trip_too(either: Either, greet: Any) -> None:
    await either.list_tasks()
    with sent(either.client) as messages:
        await either.submit_task(greet, name="a")
    assert messages == {"Parse": 1, **ONE_ROUND_TRIP}


def test_without_prepared_statements_every_task_is_one_round_trip(config: Config, greet: Any) -> None:
    with Client(config.with_changes(prepared_statements=False)) as client:
        client.list_tasks()
        with sent(client) as messages:
            for _ in range(4):
                client.submit_task(greet, name="a")
    assert messages == {kind: 4 for kind in ["Parse", *ONE_ROUND_TRIP]}


@pytest.mark.direct(reason="nothing is prepared behind a pooler")
async def test_a_small_batch_is_one_statement(either: Either, greet: Any) -> None:
    batch = [{"name": "a"}] * (COPY_FROM - 1)
    for _ in range(2):
        await either.submit_many(greet, batch)
    with sent(either.client) as messages:
        await either.submit_many(greet, batch)
    assert messages == ONE_ROUND_TRIP


async def test_a_large_batch_is_one_copy_in_large_pieces(either: Either, greet: Any) -> None:
    await either.list_tasks()
    with sent(either.client) as messages:
        await either.submit_many(greet, [{"name": "a"}] * (3 * COPY_CHUNK + 1))
    # BEGIN, COPY and COMMIT.
    assert messages["Query"] + messages["Execute"] == 3
    assert (messages["CopyDone"], messages["CopyData"]) == (1, 4)


# ---- in memory ----


def test_a_batch_is_held_once(greet: Any) -> None:
    class Nowhere(Client):
        def _do(self, effect: Any) -> None:
            assert isinstance(effect, InTransaction)

    count = 20_000
    arguments = [{"name": "a"}] * count
    client = Nowhere("postgresql://nowhere/none")
    client.submit_many(greet, arguments[:COPY_FROM])
    tracemalloc.start()
    try:
        ids = client.submit_many(greet, arguments)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ids) == count
    # Of each task its id, its arguments as text, and the pair of them.
    assert most / count < 400


def test_what_is_said_once_is_not_remembered(client: Client, greet: Any) -> None:
    for n in range(5):
        client.submit_task(greet, name="a", idempotency_key=str(n))
    assert len(client.calls.defaults._known) == 0
    for n in range(3000):
        client.calls.defaults.terms(greet, Options(queue=f"q{n}"))
    assert len(client.calls.defaults._known) <= 1000


def test_a_copy_whose_answer_was_lost_is_repeated_in_parts(client: Client, greet: Any, db: Any) -> None:
    count = MOST_IN_JSON + 1
    tasks = new_tasks(Alike(greet, [{"name": "a"}] * count, NOTHING_SAID), client.calls.defaults)
    work = InTransaction(tasks, ())
    client._do(work)
    again = work.again()
    assert (len(again.copied), len(again.queries)) == (0, 2)
    client._do(again)
    assert again.again() == again
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (count,)


# ---- the same row by every statement ----

_character = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
hostile = st.lists(
    st.sampled_from(
        ["\\", "\\.", "\\N", "\t", "\n", "\r", "\r\n", '"', "'", "{", "}", ",", "\\t", "$1", "%s", "é", "😀"]
    )
    | _character,
    max_size=6,
).map("".join)
names = hostile.filter(lambda s: 1 <= len(s.encode()) <= MAX_NAME_BYTES)
options = st.fixed_dictionaries(
    {},
    optional={
        "queue": names,
        "tags": st.dictionaries(hostile, hostile, max_size=2),
        "required_capabilities": st.lists(names, max_size=3),
        "trace_context": st.dictionaries(hostile, hostile, min_size=1, max_size=2),
        "timeout_seconds": st.integers(1, 2**31 - 1),
        "max_retries": st.integers(0, 2**31 - 1),
        "priority": st.integers(-10, 100),
    },
)


@settings(max_examples=120)
@given(name=names, arguments=st.dictionaries(hostile, hostile, max_size=2), said=options)
def test_one_insert_many_inserts_and_copy_write_the_same_row(
    name: str, arguments: dict[str, str], said: dict[str, Any], client: Client, db: Any
) -> None:
    chosen = Options(**said)
    ways: list[Callable[[], Any]] = [
        lambda: client.submit_task(name, registered_elsewhere=True, kwargs=arguments, **said),
        lambda: client.submit_many(name, [arguments] * 2, registered_elsewhere=True, **said),
        lambda: client._do(InTransaction(new_tasks(Alike(name, [arguments] * 2, chosen), client.calls.defaults), ())),
    ]
    written = []
    for way in ways:
        db.execute("DELETE FROM tasks")
        way()
        # Everything but the id and the times.
        written.append(db.execute("SELECT DISTINCT " + COMPARED + " FROM tasks").fetchall())
    assert len(written[0]) == 1
    assert written[0] == written[1] == written[2]
    row = dict(zip(COMPARED.split(", "), written[0][0], strict=True))
    expected = {"name": name, "kwargs": arguments, "tags": {}, "required_capabilities": [], **said}
    expected["required_capabilities"] = sorted(set(expected["required_capabilities"]))
    assert {column: row[column] for column in expected} == expected


COMPARED = (
    "name, queue, kwargs, args, state, max_retries, timeout_seconds, priority, tags, required_capabilities, "
    "trace_context, idempotency_key, idempotency_expires_at"
)


async def test_text_arrives_whatever_the_encoding_of_the_connection(
    either: Either, config: Config, greet: Any, db: Any
) -> None:
    latin = make_conninfo(config.database_url, client_encoding="latin1")
    client = Either(type(either.client)(config.with_changes(database_url=latin)))
    for _ in range(3):
        await client.submit_task(greet, name="é", queue="ü")
    await client.submit_task(greet, name="é", queue="ü", idempotency_key="ñ")
    await client.submit_many(greet, [{"name": "é"}] * COPY_FROM, queue="ü")
    client.client.close()
    assert db.execute("SELECT DISTINCT kwargs, queue FROM tasks").fetchall() == [({"name": "é"}, "ü")]


async def test_an_error_of_the_server_is_psycopgs_own(either: Either, greet: Any, db: Any) -> None:
    db.execute("ALTER TABLE tasks ADD CONSTRAINT no_bob CHECK (kwargs ->> 'name' <> 'bob')")
    try:
        for _ in range(3):  # before, while and after it is prepared
            with pytest.raises(psycopg.errors.CheckViolation, match="no_bob") as caught:
                await either.submit_task(greet, name="bob")
            assert caught.value.diag.constraint_name == "no_bob"
    finally:
        db.execute("ALTER TABLE tasks DROP CONSTRAINT no_bob")
    await either.submit_task(greet, name="a")
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
