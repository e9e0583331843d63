"""W1, W2 and W10: how fast tasks are submitted, and how fast the bare driver would be."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

from tasklib.bench.crew import crew_of
from tasklib.bench.ground import SCHEMA, Ground
from tasklib.bench.producers import PRODUCERS, started_producers
from tasklib.bench.rounds import Round, Sample
from tasklib.bench.tasks import nap, noop
from tasklib.tasks.ids import new_ids

COLUMNS = "id, name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context"
INSERT = f"INSERT INTO {SCHEMA}.tasks ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
COPY = f"COPY {SCHEMA}.tasks ({COLUMNS}) FROM STDIN"

BUSY_WORKERS, BUSY_SLOTS, BACKLOG = 2, 10, 3_000
"""Slots that nap for 20 ms each: a thousand tasks a second at most, so this backlog outlasts the producers."""


def one_by_one(round_: Round) -> Sample:
    """W1: `submit_task`, one after the other, against an INSERT of the same columns by the same driver."""
    ground = round_.ground
    ground.fresh()
    for warm_up in (_submit_each(ground)(10), _insert_each(ground)(10)):
        warm_up()
    ours, theirs = round_.seconds_of_each(round_.plan.size("W1"), _submit_each(ground), _insert_each(ground))
    return _rates(round_.plan.size("W1"), ours, theirs)


def many(round_: Round) -> Sample:
    """W2: `submit_many`, against a COPY of the same columns by the same driver."""
    ground = round_.ground
    ground.fresh()
    ours, theirs = round_.seconds_of_each(round_.plan.size("W2"), _submit_many(ground), _copy(ground))
    return _rates(round_.plan.size("W2"), ours, theirs)


def by_eight_producers(round_: Round) -> Sample:
    """W10: eight processes submit one by one while workers are busy, against the same without any notification."""
    ours, theirs = round_.in_turn(
        lambda: _produced_per_second(round_, notify=True), lambda: _produced_per_second(round_, notify=False)
    )
    return Sample(ours, theirs)


def _produced_per_second(round_: Round, *, notify: bool) -> float:
    ground = round_.ground
    producers = ground.lasting("producers", lambda: started_producers(ground))
    ground.fresh()
    ground.notify(notify)
    try:
        ground.submit(nap, BACKLOG)
        ground.calm()
        with crew_of(ground, BUSY_WORKERS, concurrency=BUSY_SLOTS, listen=notify) as crew:
            ground.await_running(BUSY_WORKERS * BUSY_SLOTS, crew.look)
            return producers.submit(round_.plan.size("W10") // PRODUCERS)
    finally:
        ground.notify(True)


def _rates(size: int, ours: float, theirs: float) -> Sample:
    return Sample(size / ours, size / theirs)


def _submit_each(ground: Ground) -> Callable[[int], Callable[[], None]]:
    def prepare(count: int) -> Callable[[], None]:
        def timed() -> None:
            for number in range(count):
                ground.client.submit_task(noop, number=number)

        return timed

    return prepare


def _insert_each(ground: Ground) -> Callable[[int], Callable[[], None]]:
    def prepare(count: int) -> Callable[[], None]:
        rows = _rows(count)

        def timed() -> None:
            for row in rows:
                ground.db.execute(INSERT, row)

        return timed

    return prepare


def _submit_many(ground: Ground) -> Callable[[int], Callable[[], None]]:
    def prepare(count: int) -> Callable[[], None]:
        arguments = [{"number": number} for number in range(count)]

        def timed() -> None:
            ground.client.submit_many(noop, arguments)

        return timed

    return prepare


def _copy(ground: Ground) -> Callable[[int], Callable[[], None]]:
    def prepare(count: int) -> Callable[[], None]:
        rows = _rows(count)

        def timed() -> None:
            with ground.db.cursor() as cursor, cursor.copy(COPY) as copy:
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
