"""Ids are UUIDs of version 7 that grow, whatever the clock does."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from tasklib.tasks import ids
from tasklib.tasks.ids import new_id, new_ids, shard_of, spawned_id


@pytest.fixture(autouse=True)
def _as_in_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)


def milliseconds(id_: UUID) -> int:
    return id_.int >> 80


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    id_ = new_id()
    after = time.time_ns() // 1_000_000
    assert (id_.version, id_.variant) == (7, RFC_4122)
    assert before <= milliseconds(id_) <= after


@pytest.mark.parametrize("count", [0, 1, 2, 5000])
def test_as_many_ids_as_asked_for_in_growing_order(count: int) -> None:
    made = new_ids(count)
    assert len(made) == count
    assert made == sorted(set(made))
    assert all((i.version, i.variant) == (7, RFC_4122) for i in made)


def test_more_ids_than_fit_a_millisecond_run_over_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_000 * 1_000_000)
    made = new_ids(4096 * 2 + 1)
    assert [milliseconds(made[0]), milliseconds(made[4096]), milliseconds(made[-1])] == [1000, 1001, 1002]
    assert made == sorted(set(made))


def test_ids_grow_while_the_clock_stands_still_or_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [2_000, 2_000, 1_000, 0, 2_001]
    made = []
    for now in clock:
        monkeypatch.setattr(time, "time_ns", lambda now=now: now * 1_000_000)
        made += [new_id(), *new_ids(3)]
    assert made == sorted(set(made))
    assert {milliseconds(i) for i in made} == {2_000, 2_001}


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(8) as threads:
        batches = list(threads.map(lambda _: new_ids(200), range(50)))
    assert all(batch == sorted(batch) for batch in batches)
    assert len({i for batch in batches for i in batch}) == 50 * 200


def test_two_processes_in_the_same_millisecond_differ_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5 * 10**9)
    one = new_id()
    monkeypatch.setattr(ids, "_last", 0)
    other = new_id()
    assert one.int >> 64 == other.int >> 64
    assert one != other


def test_ids_sort_in_postgresql_as_they_do_here(db: Any) -> None:
    made = new_ids(300)
    sorted_there = db.execute("SELECT array_agg(id ORDER BY id) FROM unnest(%s::uuid[]) AS id", [made[::-1]])
    assert sorted_there.fetchone()[0] == made


def test_the_ids_that_the_database_makes_are_of_the_same_kind(db: Any) -> None:
    before, *made, after = (
        row[0]
        for row in db.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text "
            "UNION ALL SELECT tasklib_new_id()::text FROM generate_series(1, 200) "
            "UNION ALL SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text"
        )
    )
    there = [UUID(i) for i in made]
    assert all((i.version, i.variant) == (7, RFC_4122) for i in there)
    assert len(set(there)) == 200
    assert all(int(before) - 1 <= milliseconds(i) <= int(after) for i in there)
    assert [i.int >> 64 for i in there] == sorted(i.int >> 64 for i in there)


@pytest.mark.parametrize("maker", ["python", "database"])
def test_ids_have_shard_0_in_ten_bits_after_the_variant_and_chance_in_the_rest(maker: str, db: Any) -> None:
    made = (
        new_ids(1000)
        if maker == "python"
        else [row[0] for row in db.execute("SELECT tasklib_new_id() FROM generate_series(1, 1000)")]
    )
    assert {(i.version, i.variant, shard_of(i)) for i in made} == {(7, RFC_4122, 0)}
    # Each of the last 52 bits is one in some ids and zero in others; those of variant and shard are the same in all.
    lower = [i.int & (1 << 64) - 1 for i in made]
    ones, always = functools.reduce(operator.or_, lower), functools.reduce(operator.and_, lower)
    assert (ones, always) == (0b10 << 62 | (1 << 52) - 1, 0b10 << 62)


@pytest.mark.parametrize("shard", [1, 682, 1023])
def test_ids_name_the_shard_they_are_made_for_and_that_of_a_spawned_task_is_its_parents(shard: int) -> None:
    made = new_ids(1000, shard)
    assert {(i.version, i.variant, shard_of(i)) for i in [*made, new_id(shard), spawned_id(made[0], "key")]} == {
        (7, RFC_4122, shard)
    }
    assert made == sorted(made), "the time comes first"


@pytest.mark.parametrize("shard", [0, 1, 682, 1023])
def test_the_shard_of_an_id_is_read_from_its_ten_bits(shard: int) -> None:
    assert shard_of(UUID(f"019a8f00-0000-7fff-{0x8000 | shard << 4 | 0xF:04x}-ffffffffffff")) == shard
    assert shard_of(UUID(f"019a8f00-0000-7000-{0x8000 | shard << 4:04x}-000000000000")) == shard


def test_an_id_is_a_uuid_like_any_other() -> None:
    made = new_id()
    other = UUID(int=made.int)
    assert type(made) is UUID
    assert (made, hash(made), str(made), repr(made)) == (other, hash(other), str(other), repr(other))
    assert made.is_safe is other.is_safe
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
