"""One worker over several shards: each gets its tasks done, and none waits for another's database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from tasklib import Config, Shard, Worker, current_task, on_shutdown, on_startup, task
from tasklib.errors import ConfigError, DatabaseUnavailable, SchemaError
from tasklib.events import DutyFailed, LeadershipTaken, TaskEnded, TaskStarted, WorkerStarted, WorkerStopped
from tasklib.migrations import migrate
from tasklib.tasks import registry
from tasklib.tasks.ids import shard_of
from tasklib.testing import drain_sync
from tests.eventually import soon
from tests.worker import process_tasks
from tests.worker.sharded import Sharded, sharded, write_shards
from tests.worker.watching import burst, working


@pytest.fixture
def three(server_url: str, template_database: str) -> Iterator[Sharded]:
    with sharded(server_url, template_database) as made:
        yield made


async def test_tasks_of_all_shards_run_each_where_it_is(three: Sharded) -> None:
    @task
    async def work(n: int) -> int:
        return n

    ids = {number: client.submit_task(work, n=number) for number, client in three.clients.items()}
    async with working(three.config) as watched:
        for number, task_id in ids.items():
            await watched.ended(task_id, "completed")
            assert shard_of(task_id) == number
        assert watched.worker.id
        assert {three.rows(number, "SELECT id FROM workers") for number in ids} == {watched.worker.id}
    assert three.counts() == {0: 1, 1: 1, 2: 1}
    assert [e.shards for e in watched.all(WorkerStarted)] == [(0, 1, 2)]
    assert len(watched.all(WorkerStopped)) == 1
    assert not any(three.rows(number, "SELECT count(*) FROM workers") for number in ids)
    counted = [stat for stat in watched.worker.collector.totals() if stat.key.outcome == "completed"]
    assert sum(stat.count for stat in counted) == 3
    assert len({stat.key for stat in counted}) == len(counted)


async def test_each_shard_has_a_leader(three: Sharded) -> None:
    @task
    async def work() -> None: ...

    async with working(three.config) as watched:
        for number in three.clients:
            await watched.until(LeadershipTaken, lambda e, number=number: e.shard == number)
        assert {three.rows(n, "SELECT holder FROM leadership") for n in three.clients} == {watched.worker.id}


async def test_a_worker_that_is_told_its_shards_serves_no_other(three: Sharded) -> None:
    @task
    async def work() -> None: ...

    for client in three.clients.values():
        client.submit_task(work)
    watched = await burst(three.config, shards=[0, 2])
    assert three.counts() == {0: 1, 1: 0, 2: 1}
    assert [e.shards for e in watched.all(WorkerStarted)] == [(0, 2)]


async def test_a_worker_that_is_told_its_shards_leaves_one_alone_that_comes_into_the_file(
    three: Sharded, tmp_path: Path
) -> None:
    @task
    async def work() -> None: ...

    file = tmp_path / "shards.toml"
    write_shards(file, three.config.shards[:2])
    async with working(Config(shards_file=str(file)), shards=[1]) as watched:
        write_shards(file, three.config.shards[1:])
        three.clients[2].submit_task(work)
        ours = watched.worker._shards
        assert ours is not None
        ours._take(three.config.shards)  # as it does a second after the change
        await watched.ended(three.clients[1].submit_task(work), "completed")
        assert list(ours._workers) == [1]
    assert three.counts() == {0: 0, 1: 1, 2: 0}


@pytest.mark.parametrize("numbers", [[], [3], [0, 7]])
def test_shards_that_there_are_not_are_refused(three: Sharded, numbers: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"numbers of the configured shards \(0, 1, 2\)"):
        Worker(three.config, shards=numbers)


def test_a_worker_without_shards_refuses_to_be_told_some(config: Config) -> None:
    with pytest.raises(ConfigError, match="there are none"):
        Worker(config, shards=[0])


async def test_a_backlog_in_one_shard_does_not_keep_the_others_waiting(three: Sharded) -> None:
    gates = {number: asyncio.Event() for number in three.clients}
    order: list[int] = []

    @task
    async def work() -> None:
        number = shard_of(current_task().id)
        order.append(number)
        await gates[number].wait()

    three.clients[0].submit_many(work, [{} for _ in range(20)])
    async with working(three.config, concurrency=2) as watched:
        await soon(lambda: len(order) == 2, "both slots are taken")
        for number in (1, 2):
            three.clients[number].submit_task(work)
        workers = watched.worker._shards._workers
        await soon(lambda: all(not w.slots.resting for w in workers.values()) and len(workers) == 3, "all want slots")
        gates[0].set()
        await soon(lambda: {1, 2} <= set(order), "the others get a slot")
        assert Counter(order)[0] <= 8, "long before the backlog is done"
        for gate in gates.values():
            gate.set()
        await watched.until(TaskEnded, count=22)


async def test_never_more_functions_run_than_there_are_slots(three: Sharded) -> None:
    running, most = 0, 0

    @task
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    for client in three.clients.values():
        client.submit_many(work, [{} for _ in range(100)])
    watched = await burst(three.config, concurrency=4)
    assert len(watched.all(TaskEnded)) == 300
    assert most <= 4
    assert three.counts() == {0: 100, 1: 100, 2: 100}


async def test_a_silent_shard_disturbs_no_other_and_its_results_are_stored_when_it_is_back(
    server_url: str, template_database: str
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @task
    async def slow() -> str:
        began.set()
        await go_on.wait()
        return "kept"

    @task
    async def quick() -> None: ...

    with sharded(server_url, template_database, (0, 1), ways=[1]) as two:
        held = two.clients[1].submit_task(slow)
        async with working(two.config, concurrency=1) as watched:
            await began.wait()
            two.ways[1].fall_silent()
            go_on.set()
            two.clients[0].submit_many(quick, [{} for _ in range(50)])
            await watched.until(TaskEnded, lambda e: e.name == "quick", count=50)
            assert two.counts() == {0: 50, 1: 0}
            two.ways[1].speak()
            await watched.ended(held, "completed")
        assert two.clients[1].get_task(held).result == "kept"


async def test_a_shard_that_is_down_at_the_start_is_served_when_it_is_there(
    server_url: str, template_database: str
) -> None:
    @task
    async def work() -> None: ...

    with sharded(server_url, template_database, (0, 1), ways=[1]) as two:
        two.ways[1].refuse()
        here, there = (two.clients[number].submit_task(work) for number in (0, 1))
        async with working(two.config.with_changes(startup_timeout_seconds=0)) as watched:
            await watched.ended(here, "completed")
            failed = await watched.until(DutyFailed, lambda e: e.duty == "serving")
            assert failed.shard == 1
            two.ways[1].speak()
            await watched.ended(there, "completed")


async def test_a_worker_that_reaches_no_shard_says_so_and_ends(server_url: str, template_database: str) -> None:
    with sharded(server_url, template_database, (0, 1), ways=[0, 1]) as two:
        for way in two.ways.values():
            way.refuse()
        with pytest.raises(DatabaseUnavailable):
            await Worker(two.config.with_changes(startup_timeout_seconds=0)).run()


async def test_a_shard_without_tables_is_refused_by_its_number(three: Sharded, empty_database_url: str) -> None:
    wrong = three.config.with_shards([*three.config.shards, Shard(7, empty_database_url)])
    with pytest.raises(SchemaError, match=r"shard 7: .*tasklib migrate"):
        await Worker(wrong).run()


async def test_stop_lets_the_tasks_of_all_shards_end(three: Sharded) -> None:
    began: list[UUID] = []
    go_on = asyncio.Event()

    @task
    async def work() -> None:
        began.append(current_task().id)
        await go_on.wait()

    for client in three.clients.values():
        client.submit_task(work)
    async with working(three.config) as watched:
        await soon(lambda: len(began) == 3, "all have begun")
        assert watched.worker.taken == 3
        watched.worker.stop()
        go_on.set()
    assert three.counts() == {0: 1, 1: 1, 2: 1}


async def test_a_second_stop_gives_the_tasks_of_all_shards_back(three: Sharded) -> None:
    @task
    async def work() -> None:
        await asyncio.Event().wait()

    for client in three.clients.values():
        client.submit_task(work)
    async with working(three.config) as watched:
        await watched.until(TaskStarted, count=3)
        watched.worker.stop()
        watched.worker.stop()
    assert three.counts("pending") == {0: 1, 1: 1, 2: 1}


async def test_a_worker_that_one_shard_asks_to_drain_drains(three: Sharded) -> None:
    @task
    async def work() -> None: ...

    async with working(three.config.with_changes(heartbeat_interval_seconds=0.5)) as watched:
        await watched.until(LeadershipTaken, lambda e: e.shard == 1)
        three.clients[1].drain_worker(watched.worker.id)
        await watched.until(WorkerStopped)


async def test_shards_that_come_into_the_file_are_served_and_others_left(three: Sharded, tmp_path: Path) -> None:
    @task
    async def work() -> None: ...

    shards, file = three.config.shards, tmp_path / "shards.toml"
    write_shards(file, shards[:2])
    async with working(Config(shards_file=str(file), retry_jitter=0.0)) as watched:
        await watched.ended(three.clients[0].submit_task(work), "completed")
        later = three.clients[2].submit_task(work)
        write_shards(file, shards[1:])
        await watched.ended(later, "completed")
        await soon(lambda: set(watched.worker._shards._workers) == {1, 2}, "shard 0 is left")
        await watched.ended(three.clients[1].submit_task(work), "completed")
        file.write_text("nonsense")
        failed = await watched.until(DutyFailed, lambda e: e.duty == "shards_file")
        assert "stay as they were" in failed.reason
        await watched.ended(three.clients[1].submit_task(work), "completed")


async def test_a_shard_whose_address_changes_in_the_file_is_served_at_the_new_one(
    server_url: str, template_database: str, tmp_path: Path
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @task
    async def work() -> None:
        began.set()
        await go_on.wait()

    with sharded(server_url, template_database, (0, 1), ways=[1]) as two:
        before, after = two.clients[1].config.database_url, two.ways[1].config.database_url
        file = tmp_path / "shards.toml"
        write_shards(file, [two.config.shards[0], Shard(1, before)])
        async with working(Config(shards_file=str(file), retry_jitter=0.0)) as watched:
            first = two.clients[1].submit_task(work)
            await began.wait()
            old = watched.worker._shards._workers[1]
            write_shards(file, [two.config.shards[0], Shard(1, after)])
            await old._stop_asked.wait()
            go_on.set()
            await watched.ended(first, "completed")
            await watched.ended(two.clients[1].submit_task(work), "completed")
            assert watched.worker._shards._workers[1].config.database_url == after


async def test_one_shard_is_a_worker_as_without_shards(config: Config) -> None:
    @task
    async def work() -> None: ...

    one = Config(shards=(Shard(5, config.database_url),))
    migrate(one.for_shard(5))
    worker = Worker(one)
    assert worker.config.shard == 5
    assert not worker.config.shards


async def test_a_worker_over_shards_runs_beside_a_block(three: Sharded) -> None:
    done = asyncio.Event()

    @task
    async def work() -> None:
        done.set()

    three.clients[2].submit_task(work)
    async with Worker(three.config) as worker:
        await done.wait()
        assert worker.taken <= 1
    assert three.counts() == {0: 0, 1: 0, 2: 1}


async def test_a_worker_over_shards_that_is_cancelled_gives_its_tasks_back(three: Sharded) -> None:
    began: list[UUID] = []

    @task
    async def work() -> None:
        began.append(current_task().id)
        await asyncio.Event().wait()

    for client in three.clients.values():
        client.submit_task(work)
    running = asyncio.create_task(Worker(three.config).run())
    await soon(lambda: len(began) == 3, "all have begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert three.counts("pending") == {0: 1, 1: 1, 2: 1}
    assert not any(three.rows(number, "SELECT count(*) FROM workers") for number in three.clients)


async def test_hooks_are_called_once_and_their_state_is_that_of_tasks_of_all_shards(three: Sharded) -> None:
    calls: list[str] = []

    @on_startup
    def begin(state: SimpleNamespace) -> None:
        calls.append("start")
        state.known = "to all"

    @on_shutdown
    def end() -> None:
        calls.append("stop")

    @task
    async def work() -> str:
        return str(current_task().state.known)

    ids = {number: client.submit_task(work) for number, client in three.clients.items()}
    await burst(three.config)
    assert calls == ["start", "stop"]
    assert {three.clients[number].get_task(task_id).result for number, task_id in ids.items()} == {"to all"}


async def test_child_processes_are_those_of_all_shards(three: Sharded) -> None:
    registry.register(process_tasks.add)
    for client in three.clients.values():
        client.submit_many(process_tasks.add, [{"a": n, "b": n} for n in range(3)])
    watched = await burst(three.config, concurrency=1, modules=[process_tasks.__name__])
    ids = [UUID(event.id) for event in watched.all(TaskEnded)]
    results = [three.clients[shard_of(id_)].get_task(id_).result for id_ in ids]
    assert len(results) == 9
    assert len({result["pid"] for result in results}) == 1, "one slot, one child"


def test_drain_of_the_tests_asks_for_one_shard(three: Sharded) -> None:
    with pytest.raises(ConfigError, match="one shard at a time"):
        drain_sync(three.config)
