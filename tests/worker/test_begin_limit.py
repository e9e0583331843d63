"""How many tasks may be begun before results are stored: raised on record first, lowered here first."""

from __future__ import annotations

import asyncio
import math

from tasklib.errors import DatabaseUnavailable
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.slots import Slots


class Record:
    """What is on record, and what was put there."""

    knows_order = True

    def __init__(self) -> None:
        self.written: list[tuple[str, int | None]] = []
        self.is_away = False

    async def may_begin(self, worker_id: str, count: int | None) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise DatabaseUnavailable("away")
        self.written.append((worker_id, count))


async def raised(limit: BeginLimit) -> None:
    limit.ask_for_more()
    if limit._raising is not None:
        await limit._raising


async def test_it_is_the_slots_until_a_higher_one_is_on_record() -> None:
    record = Record()
    limit = BeginLimit(Slots(10), record, lambda: "w")
    assert limit.most == 10
    limit.ask_for_more()
    assert limit.most == 10, "asked for, and not on record yet"
    await raised(limit)
    assert (limit.most, record.written) == (1000, [("w", 1000)])


async def test_it_stays_where_it_is_when_the_record_cant_be_reached() -> None:
    record = Record()
    record.is_away = True
    limit = BeginLimit(Slots(10), record, lambda: "w")
    await raised(limit)
    assert limit.most == 10


async def test_a_record_under_an_id_that_is_not_ours_any_more_raises_nothing() -> None:
    record, ids = Record(), ["old"]
    limit = BeginLimit(Slots(10), record, lambda: ids[-1])
    limit.ask_for_more()
    await asyncio.sleep(0)
    ids.append("new")
    limit.reset()
    await raised(limit)
    assert record.written[0] == ("old", 1000)
    assert limit.most in (10, 1000)
    assert limit.most == 10 or record.written[-1] == ("new", 1000)


async def test_it_is_lowered_only_when_no_more_is_held_than_there_are_slots() -> None:
    record, slots = Record(), Slots(10)
    limit = BeginLimit(slots, record, lambda: "w")
    await raised(limit)
    slots.taken = 11
    await limit.lower()
    assert limit.most == 1000
    slots.taken = 10
    await limit.lower()
    assert (limit.most, record.written[-1]) == (10, ("w", 10))


async def test_after_a_lost_answer_there_is_none_and_it_is_not_lowered_soon() -> None:
    record = Record()
    limit = BeginLimit(Slots(10), record, lambda: "w")
    await limit.lift()
    await limit.lower()
    assert (limit.most, record.written) == (math.inf, [("w", None)])


async def test_over_http_there_is_none() -> None:
    record = Record()
    record.knows_order = False
    limit = BeginLimit(Slots(10), record, lambda: "w")
    await limit.lift()
    await limit.lower()
    assert (limit.most, record.written) == (math.inf, [])
