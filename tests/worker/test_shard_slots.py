"""The slots of a worker over several shards: who may ask for how many."""

from __future__ import annotations

import pytest

from tasklib.worker import shard_slots
from tasklib.worker.shard_slots import ShardSlots, SlotPool
from tasklib.worker.slots import Slots


def _slots(size: int, shards: int) -> list[ShardSlots]:
    pool = SlotPool(size)
    made = [ShardSlots(pool) for _ in range(shards)]
    for slots in made:
        slots.resting = False
    return made


def _claim(slots: ShardSlots) -> int:
    """Claim as many as it may, and have them all begin."""
    count = slots.asked = slots.room
    slots.asked = 0
    slots.take(count)
    slots.waiting -= count
    slots.running += count
    return count


def _end(slots: ShardSlots, count: int = 1) -> None:
    slots.running -= count
    slots.give_back(count)


async def test_a_shard_alone_has_what_a_worker_with_one_database_has() -> None:
    [alone], plain = _slots(10, 1), Slots(10)
    for slots in (alone, plain):
        slots.ahead = 5
        slots.take(4)
    assert (alone.room, alone.free, alone.most_running) == (plain.room, plain.free, plain.most_running) == (11, 6, 10)
    assert alone.worth_claiming is plain.worth_claiming is True


async def test_shards_that_all_have_work_get_equal_shares() -> None:
    shards = _slots(12, 4)
    assert [_claim(slots) for slots in shards] == [3, 3, 3, 3]
    assert [slots.room for slots in shards] == [0, 0, 0, 0]


async def test_one_slot_goes_round() -> None:
    shards = _slots(1, 4)
    order = []
    for _ in range(12):
        [served] = [number for number, slots in enumerate(shards) if slots.room]
        order.append(served)
        assert _claim(shards[served]) == 1
        assert not any(slots.room for slots in shards)
        _end(shards[served])
    assert order == [0, 1, 2, 3] * 3


async def test_a_shard_without_work_leaves_its_share_to_the_others() -> None:
    one, other = _slots(10, 2)
    other.resting = True
    assert _claim(one) == 10
    other.resting = False
    assert other.room == 0
    for _ in range(5):
        _end(one)
        assert (one.room, _claim(other)) == (0, 1), "until it has its share"
    _end(one)
    assert (_claim(one), other.room) == (1, 0)


async def test_a_claim_under_way_keeps_its_slots_from_the_others() -> None:
    one, other = _slots(4, 2)
    other.resting = True
    one.asked = 4
    assert other.room == 2, "its share all the same, were it awake"
    other.resting = False
    one.asked = 2
    assert other.room == 2
    one.asked = 0
    other.resting = True
    assert one.room == 4


async def test_a_silent_shard_keeps_only_what_its_functions_use(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, other = _slots(10, 2)
    other.resting = True
    assert _claim(silent) == 10
    other.resting = False
    silent.running -= 7  # they have ended, and their results can't be stored
    silent.flushing = True
    assert not silent.is_silent
    monkeypatch.setattr(shard_slots, "SILENT_SECONDS", -1.0)
    assert silent.is_silent
    assert other.room == 7
    silent.flushing = False
    assert not silent.is_silent


async def test_claimed_tasks_of_shards_below_their_share_begin_first() -> None:
    one, other = _slots(4, 2)
    one.take(4)
    one.waiting -= 3
    one.running += 3
    other.take(2)  # claimed, and no slot was free
    assert one.most_running == 2, "the other shard has nothing running, and two tasks that wait"
    assert other.most_running == 1
