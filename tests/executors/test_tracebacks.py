"""What is stored of an exception: its last line is what lists show and what dead letters are grouped by."""

from __future__ import annotations

import asyncio

import psycopg

from tasklib.executors.tracebacks import error_text
from tasklib.formatting import last_line


def group(*errors: Exception) -> str:
    return error_text(ExceptionGroup("unhandled errors in a TaskGroup", errors), 100_000)


def fingerprint(db: psycopg.Connection, error: str) -> str:
    row = db.execute("SELECT tasklib_fingerprint('mail.send', %s)", (error,)).fetchone()
    assert row is not None
    return str(row[0])


async def test_failure_out_of_a_task_group_is_named_by_what_failed_in_it() -> None:
    async def fetch() -> None:
        raise ConnectionError("no route to db1")

    async def parse() -> None:
        raise ValueError("not JSON")

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(parse())
            tasks.create_task(fetch())
    except ExceptionGroup as e:
        text = error_text(e, 100_000)
    assert "in parse" in text, "the tracebacks of all that failed"
    assert "in fetch" in text
    assert last_line(text) == (
        "ExceptionGroup: unhandled errors in a TaskGroup: ConnectionError: no route to db1; ValueError: not JSON"
    )


def test_groups_with_the_same_causes_have_one_fingerprint_and_others_have_another(db: psycopg.Connection) -> None:
    refused = fingerprint(db, group(ConnectionError("no route to db1"), ValueError("line 7")))
    assert fingerprint(db, group(ValueError("line 12"), ConnectionError("no route to db2"))) == refused, "in any order"
    many = [ConnectionError(f"no route to db{n}") for n in range(100)]
    assert fingerprint(db, group(*many, ValueError("line 1"))) == refused, "however many of a kind"
    assert fingerprint(db, group(ConnectionError("no route to db1"))) != refused
    assert fingerprint(db, group(ConnectionError("no route to db1"), KeyError("line 7"))) != refused


def test_leaves_of_nested_groups_are_named_once_and_only_so_many_of_them() -> None:
    inner = ExceptionGroup("inner", [ValueError("same"), ValueError("same"), *[OSError(c * 500) for c in "abcdefgh"]])
    line = group(ValueError("same"), inner, KeyError("first\nsecond")).splitlines()[-1]
    assert line.startswith("ExceptionGroup: unhandled errors in a TaskGroup: KeyError: 'first\\nsecond'; OSError: aaa")
    assert line.endswith("…; and 5 more")
    assert len(line) < 1000, "what a fingerprint looks at"


def test_error_caused_by_a_group_is_named_by_itself() -> None:
    error = RuntimeError("the batch failed")
    error.__cause__ = ExceptionGroup("many", [ValueError("x")])
    assert last_line(error_text(error, 100_000)) == "RuntimeError: the batch failed"
