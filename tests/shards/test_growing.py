"""Shards are added and closed while programs run: keys keep their one task."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasklib import Client, Config, Shard
from tasklib.sharding import placement
from tasklib.sharding.placement import SETTLING_SECONDS, by_chance, former_owners, owner_of, settling, weight_at
from tasklib.shards import PastWeight
from tasklib.tasks.ids import shard_of

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def shard(number: int, weight: float = 1.0, *past: PastWeight) -> Shard:
    return Shard(number, f"postgresql://app@db{number}.example/app", weight=weight, past=past)


def test_keys_are_spread_by_weight_and_move_only_to_a_new_shard() -> None:
    before = [shard(0), shard(1), shard(2, 2.0)]
    keys = [f"key {n}" for n in range(4000)]
    counts = Counter(owner_of(key, before, NOW).number for key in keys)
    assert [round(counts[n] / 1000) for n in range(3)] == [1, 1, 2]
    after = [*before, shard(3)]
    moved = {
        owner_of(key, after, NOW).number for key in keys if owner_of(key, after, NOW) != owner_of(key, before, NOW)
    }
    assert moved == {3}
    assert 600 < sum(owner_of(key, after, NOW).number == 3 for key in keys) < 1000


def test_a_key_is_looked_for_where_it_went_before_for_its_window() -> None:
    shards = [shard(0), shard(1, 1.0, PastWeight(NOW - HOUR, 0.0))]
    keys = [f"key {n}" for n in range(100)]
    moved = [key for key in keys if owner_of(key, shards, NOW).number == 1]
    assert moved
    for key in moved:
        assert [(s.number, end) for s, end in former_owners(key, shards, NOW, NOW - 2 * HOUR)] == [(0, NOW - HOUR)]
        assert former_owners(key, shards, NOW, NOW - HOUR / 2) == []
    for key in set(keys) - set(moved):
        assert former_owners(key, shards, NOW, None) == []


def test_a_weight_that_lies_ahead_is_not_in_force_yet() -> None:
    coming = shard(1, 1.0, PastWeight(NOW + HOUR, 0.0))
    assert (weight_at(coming, NOW), weight_at(coming, NOW + HOUR)) == (0.0, 1.0)
    assert {owner_of(f"{n}", [shard(0), coming], NOW).number for n in range(50)} == {0}
    chosen = by_chance([coming], NOW)
    assert chosen is None
    assert settling(NOW, NOW + timedelta(seconds=4)) == SETTLING_SECONDS - 4


def write(file: Path, *shards: Shard) -> None:
    """As `tasklib shard` writes it: whole, in one step."""
    texts = []
    for each in shards:
        past = ", ".join(f"{{until = {until.isoformat()}, weight = {weight}}}" for until, weight in each.past)
        texts.append(
            f'[[shard]]\nnumber = {each.number}\ndatabase_url = "{each.database_url}"\nschema = "{each.schema}"\n'
            f"weight = {each.weight}\npast = [{past}]\n"
        )
    new = file.with_suffix(".new")
    new.write_text("\n".join(texts))
    new.replace(file)


def added(shards: tuple[Shard, ...], until: datetime) -> list[Shard]:
    """The first two as they were, the others new."""
    return [
        s if s.number < 2 else Shard(s.number, s.database_url, s.schema, past=(PastWeight(until, 0.0),)) for s in shards
    ]


@pytest.fixture
def file(tmp_path: Path, shards: tuple[Shard, ...]) -> Path:
    file = tmp_path / "shards.toml"
    write(file, *shards[:2])
    return file


@pytest.fixture
def growing(file: Path) -> Iterator[Client]:
    with Client(Config(shards_file=str(file))) as client:
        yield client


def submit(client: Client, key: str, **options: object) -> object:
    return client.submit_task("work", registered_elsewhere=True, **{"idempotency_key": key, **options})  # type: ignore[arg-type]


def test_a_program_sees_a_shard_that_is_added_to_its_file_and_finds_its_keys_again(
    growing: Client, file: Path, shards: tuple[Shard, ...]
) -> None:
    keys = [f"key {n}" for n in range(20)]
    first = {key: submit(growing, key) for key in keys}
    unique = [
        submit(growing, None, unique="unfinished", merge_key=key)  # type: ignore[arg-type]
        for key in keys
    ]
    write(file, *added(shards, datetime.now(UTC) - timedelta(seconds=60)))
    growing.database.shards.look()  # type: ignore[attr-defined]
    assert {key: submit(growing, key) for key in keys} == first
    again = [submit(growing, None, unique="unfinished", merge_key=key) for key in keys]  # type: ignore[arg-type]
    assert again == unique
    new = {shard_of(submit(growing, f"new {n}")) for n in range(40)}  # type: ignore[arg-type]
    assert new == {0, 1, 2, 3}


def test_a_file_that_cant_be_read_leaves_the_shards_as_they_were(growing: Client, file: Path) -> None:
    file.write_text("[[shard]]\nnumber = ")
    growing.database.shards.look()  # type: ignore[attr-defined]
    assert len(growing.database.shards.all()) == 2  # type: ignore[attr-defined]
    assert "can't be read" in growing.database.shards.trouble  # type: ignore[attr-defined]
    assert submit(growing, "key") == submit(growing, "key")


def test_a_closed_shard_takes_nothing_new_and_keeps_what_it_has(
    growing: Client, file: Path, shards: tuple[Shard, ...]
) -> None:
    ids = [submit(growing, f"key {n}") for n in range(20)]
    one, other = shards[:2]
    ago = datetime.now(UTC) - timedelta(seconds=60)
    write(file, one, Shard(1, other.database_url, other.schema, weight=0, past=(PastWeight(ago, 1.0),)))
    growing.database.shards.look()  # type: ignore[attr-defined]
    assert {shard_of(submit(growing, f"new {n}")) for n in range(20)} == {0}  # type: ignore[arg-type]
    assert [submit(growing, f"key {n}") for n in range(20)] == ids
    assert len(growing.list_tasks()) == 40


@pytest.mark.long
def test_no_key_has_two_tasks_while_shards_are_added(file: Path, shards: tuple[Shard, ...]) -> None:
    found: dict[str, set[object]] = {f"key {n}": set() for n in range(30)}
    over = threading.Event()
    errors: list[BaseException] = []

    def keep_submitting() -> None:
        try:
            with Client(Config(shards_file=str(file))) as client:
                while not over.is_set():
                    for key, ids in found.items():
                        ids.add(submit(client, key))
                for key, ids in found.items():
                    ids.add(submit(client, key))
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=keep_submitting) for _ in range(4)]
    for thread in threads:
        thread.start()
    write(file, *added(shards, datetime.now(UTC)))
    over.wait(2.0)
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [ids for ids in found.values() if len(ids) != 1] == []
    with Client(Config(shards_file=str(file))) as client:
        assert len(client.list_tasks(limit=1000)) == len(found)
    assert placement.SETTLING_SECONDS == 10.0
