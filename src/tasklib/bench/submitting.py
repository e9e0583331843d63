"""W1, W2 and W10: how fast tasks are submitted, and how fast the bare driver would be."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

from tasklib.bench.producers import PRODUCERS, Producers, started_producers
from tasklib.bench.rounds import Round, Sample, Side
from tasklib.bench.schema import SCHEMA, BenchSchema
from tasklib.bench.tasks import nap, noop
from tasklib.bench.workers import start_workers
from tasklib.tasks.ids import new_ids

COLUMNS = "id, name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context"
INSERT = f"INSERT INTO {SCHEMA}.tasks ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
COPY = f"COPY {SCHEMA}.tasks ({COLUMNS}) FROM STDIN"

BUSY_WORKERS, BUSY_SLOTS, BACKLOG = 2, 10, 1_000
"""Slots that nap: they get through fewer tasks a second than the producers add, so the backlog only grows."""


def one_by_one(round_: Round) -> Sample:
    """W1: `submit_task`, one after the other, against an INSERT of the same columns without NOTIFY."""
    schema = round_.schema
    schema.fresh()
    for warm_up in (_submit_each(schema)(10), _insert_each(schema)(10)):
        warm_up()
    return Sample(*round_.rates(round_.plan.size("W1"), _submit_each(schema), _insert_each(schema)))


def many(round_: Round) -> Sample:
    """W2: `submit_many`, against a COPY of the same columns without NOTIFY."""
    schema = round_.schema
    schema.fresh()
    return Sample(*round_.rates(round_.plan.size("W2"), _submit_many(schema), _copy(schema)))


def by_eight_producers(round_: Round) -> Sample:
    """W10: eight processes submit one by one while workers are busy, against the same without any notification."""
    schema = round_.schema
    producers = schema.lasting("producers", lambda: started_producers(schema))
    schema.fresh()
    schema.submit(nap, BACKLOG)
    schema.calm()
    with start_workers(schema, BUSY_WORKERS, concurrency=BUSY_SLOTS) as workers_running:
        schema.await_running(BUSY_WORKERS * BUSY_SLOTS, workers_running.look)
        notified, silent = (_produce(schema, producers, notify=notify) for notify in (True, False))
        ours, theirs = round_.rates(round_.plan.size("W10") // PRODUCERS, notified, silent)
    return Sample(PRODUCERS * ours, PRODUCERS * theirs)


def _produce(schema: BenchSchema, producers: Producers, *, notify: bool) -> Side:
    def prepare(each: int) -> Callable[[], None]:
        schema.notify(notify)
        return lambda: producers.submit(each)

    return prepare


def _submit_each(schema: BenchSchema) -> Side:
    def prepare(count: int) -> Callable[[], None]:
        schema.notify(True)

        def timed() -> None:
            for number in range(count):
                schema.client.submit_task(noop, number=number)

        return timed

    return prepare


def _insert_each(schema: BenchSchema) -> Side:
    def prepare(count: int) -> Callable[[], None]:
        schema.notify(False)
        rows = _rows(count)

        def timed() -> None:
            for row in rows:
                schema.db.execute(INSERT, row)

        return timed

    return prepare


def _submit_many(schema: BenchSchema) -> Side:
    def prepare(count: int) -> Callable[[], None]:
        schema.notify(True)
        arguments = [{"number": number} for number in range(count)]

        def timed() -> None:
            schema.client.submit_many(noop, arguments)

        return timed

    return prepare


def _copy(schema: BenchSchema) -> Side:
    def prepare(count: int) -> Callable[[], None]:
        schema.notify(False)
        rows = _rows(count)

        def timed() -> None:
            with schema.db.cursor() as cursor, cursor.copy(COPY) as copy:
                for row in rows:
                    copy.write_row(row)

        return timed

    return prepare


def _rows(count: int) -> list[tuple[UUID, str, str, str, int, None, int, str, list[str], None]]:
    """What `submit` writes, ready to be sent."""
    return [
        (id_, noop.name, "default", json.dumps({"number": number}), 3, None, 0, "{}", [], None)
        for number, id_ in enumerate(new_ids(count))
    ]
