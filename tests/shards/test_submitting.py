"""Where submissions go: by chance, by key, by the caller's connection; and what happens where a shard is gone."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, Flow, Limit, Shard, task
from tasklib.db.database import Database
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable, InvalidOption
from tasklib.tasks.ids import new_id, shard_of
from tasklib.tasks.limits import queue
from tests.shards.conftest import without


def submit(client: Client, **options: object) -> UUID:
    found: UUID = client.submit_task("work", registered_elsewhere=True, **options)  # type: ignore[arg-type]
    return found


def stored(config: Config) -> Counter[int]:
    """How many tasks each shard has; each of their ids names it."""
    counts: Counter[int] = Counter()
    for shard in config.shards:
        with psycopg.connect(shard.database_url) as connection:
            for (id_,) in connection.execute(f"SELECT id FROM {shard.schema}.tasks"):
                assert shard_of(id_) == shard.number
                counts[shard.number] += 1
    return counts


def test_submissions_go_to_every_open_shard_by_its_weight_and_ids_name_theirs(config: Config) -> None:
    shards = tuple(Shard(s.number, s.database_url, s.schema, weight=s.number) for s in config.shards)
    with Client(config.with_changes(shards=shards)) as client:
        for _ in range(60):
            submit(client)
    counts = stored(config)
    assert set(counts) <= {1, 2, 3}  # 0 is closed
    assert len(counts) > 1


def test_many_in_one_call_are_on_one_shard(client: Client, config: Config) -> None:
    ids = client.submit_many("work", [{"n": n} for n in range(150)], registered_elsewhere=True)
    assert len({shard_of(id_) for id_ in ids}) == 1
    assert sum(stored(config).values()) == 150


async def test_the_asynchronous_client_submits_and_finds_alike(config: Config) -> None:
    async with AsyncClient(config) as client:
        ids = [await client.submit_task("work", registered_elsewhere=True) for _ in range(20)]
        assert len({shard_of(id_) for id_ in ids}) > 1
        assert {t.id for t in await client.list_tasks()} == set(ids)
        assert [(await client.cancel_task(id_)).value for id_ in ids] == ["cancelled"] * 20


def test_a_key_has_one_shard(client: Client, config: Config) -> None:
    ids = {submit(client, idempotency_key=f"order {n}") for n in range(20) for _ in range(2)}
    assert len(ids) == 20
    assert len({shard_of(id_) for id_ in ids}) > 1
    assert sum(stored(config).values()) == 20


def test_what_is_unique_shares_a_limit_a_share_or_a_serial_key_is_together(client: Client) -> None:
    @task(limits=[Limit("stripe", max_running=1)])
    def charge(n: int) -> None: ...

    @task(limits=[Limit("stripe")])
    def refund(n: int) -> None: ...

    @task(limits=[Limit("account", rate=1, key="account")])
    def book(account: str) -> None: ...

    @task(serial_key="account")
    def close(account: str) -> None: ...

    @task(queue=queue("ledger", serial=True))
    def enter(n: int) -> None: ...

    def shards_of(*submissions: object) -> set[int]:
        return {shard_of(client.submit(each)) for each in submissions}  # type: ignore[call-overload]

    assert len(shards_of(*(f.bind(n) for n in range(10) for f in (charge, refund)))) == 1
    assert len(shards_of(*(enter.bind(n) for n in range(10)))) == 1
    assert len(shards_of(*(close.bind("acme") for _ in range(10)))) == 1
    assert len(shards_of(*(close.bind(f"acme {n}") for n in range(20)))) > 1
    assert len(shards_of(*(book.bind("acme") for _ in range(10)))) == 1
    assert len(shards_of(*(book.bind(f"acme {n}") for n in range(20)))) > 1
    assert len({shard_of(submit(client, share="acme")) for _ in range(10)}) == 1
    assert len({shard_of(submit(client, serial_key=7)) for _ in range(10)}) == 1
    unique = {submit(client, unique="unfinished", merge_key="report") for _ in range(5)}
    assert len(unique) == 1


def test_one_submission_with_keys_of_several_shards_is_refused(client: Client, config: Config) -> None:
    @task
    def work(n: int) -> None: ...

    items = [work.options(idempotency_key=f"{n}").bind(n) for n in range(20)]
    with pytest.raises(InvalidOption, match=r"these tasks belong on shards 0, 1, 2, 3, by their idempotency keys"):
        client.submit_many(items)
    assert sum(stored(config).values()) == 0


def test_ids_of_the_caller_are_stored_once_and_found_wherever_they_are(client: Client, config: Config) -> None:
    @task
    def work() -> None: ...

    ids = [new_id() for _ in range(12)]  # they name shard 0
    for _ in range(2):
        made = [client.submit_each([work.bind()], ids=[id_])[0] for id_ in ids]
    assert [each.id for each in made] == ids
    found = [client.get_task(id_) for id_ in ids]
    assert [t.id for t in found if t is not None] == ids
    assert [client.cancel_task(id_).value for id_ in ids] == ["cancelled"] * 12
    counts = [count_of(shard) for shard in config.shards]
    assert sum(counts) == 12
    assert counts[0] < 12
    assert client.get_task(uuid4()) is None


def count_of(shard: Shard) -> int:
    with psycopg.connect(shard.database_url) as connection:
        row = connection.execute(f"SELECT count(*) FROM {shard.schema}.tasks").fetchone()
        assert row is not None
        return int(row[0])


def test_without_a_key_another_shard_stands_in_for_one_that_cant_be_connected_to(config: Config) -> None:
    with Client(without(config, 0, 2)) as client:
        ids = [submit(client) for _ in range(10)]
    assert {shard_of(id_) for id_ in ids} <= {1, 3}
    with Client(without(config, 0, 1, 2, 3)) as client, pytest.raises(DatabaseUnavailable, match="0, 1, 2, 3"):
        submit(client)


def test_a_key_waits_for_its_own_shard(client: Client, config: Config) -> None:
    of_two = next(f"{n}" for n in range(100) if shard_of(submit(client, idempotency_key=f"{n}")) == 2)
    with Client(without(config, 2)) as cut_off, pytest.raises(DatabaseUnavailable, match=r"^shard 2: can't connect"):
        submit(cut_off, idempotency_key=of_two)


def test_after_a_lost_answer_no_other_shard_is_asked(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement may have taken effect."""
    asked: list[int] = []

    def losing(self: Database, query: Query[object]) -> object:
        asked.append(self.config.shard)
        raise DatabaseUnavailable("the answer was lost")

    monkeypatch.setattr(Database, "run", losing)
    with Client(config) as client, pytest.raises(DatabaseUnavailable, match=r"^shard \d: the answer was lost"):
        submit(client)
    assert len(asked) == 1


def test_a_flow_is_on_one_shard(client: Client, config: Config) -> None:
    @task
    def part(n: int) -> int:
        return n

    for _ in range(8):
        flow = Flow("report")
        for n in range(3):
            flow.add(part.bind(n))
        run = client.submit_flow(flow)
        found = client.get_flow(run.id)
        assert found.info.total == 3
        assert client.cancel_flow(run.id).cancelled == 3
    assert len(client.flows()) == 8
    assert client.flows()[0].id == run.id
    assert len(stored(config)) > 1


def test_a_callers_connection_chooses_the_shard_in_its_database(config: Config) -> None:
    one, other = config.shards[0], config.shards[2]
    with Client(config.with_changes(shards=(one, other), database_url="", schema=None)) as client:
        for shard in (one, other):
            with psycopg.connect(shard.database_url) as connection:
                id_ = submit(client, connection=connection)
                assert shard_of(id_) == shard.number
                assert client.get_task(id_) is None
            assert client.get_task(id_) is not None
    with (
        Client(config) as client,
        psycopg.connect(one.database_url) as connection,
        pytest.raises(InvalidOption, match="several of the configured shards"),
    ):
        submit(client, connection=connection)


def test_a_connection_to_another_database_is_refused(client: Client, server_url: str) -> None:
    with (
        psycopg.connect(server_url) as connection,
        pytest.raises(InvalidOption, match="none of the configured shards"),
    ):
        submit(client, connection=connection)
