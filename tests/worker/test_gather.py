"""`gather`: a durable function waits for other tasks without a slot, and gets their results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import tasklib
from tasklib import (
    Client,
    Config,
    InvalidOption,
    SettledTask,
    TaskCancelled,
    TaskFailed,
    chain,
    gather,
    group,
    sleep,
    step,
    sync,
    task,
    wait_for_signal,
)
from tasklib.config import Retention
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.maintenance.gates import sweep_gates
from tasklib.maintenance.retention import delete_expired
from tasklib.store import fleet, settle
from tasklib.store.settle import Completion, Lease
from tasklib.tasks.durable_effects import (
    FoundChildren,
)
from tasklib.testing import drain, drain_sync
from tasklib.worker.journal import AttemptJournal
from tests.client.proxy import proxy
from tests.flows.rows import Rows


@pytest.fixture(autouse=True)
def initialised(config: Config) -> None:
    tasklib.init(config)


def functions() -> tuple[Any, Any, Any]:
    @task(name="g.square")
    async def square(x: int) -> int:
        return x * x

    @task(name="g.day")
    def day(n: int) -> date:
        return date(2026, 1, n)

    @task(name="g.reject")
    async def reject() -> int:
        raise tasklib.Reject("no")

    return square, day, reject


async def sweep(config: Config) -> None:
    db = ReconnectingConnection(config, "leader")
    term = await db.run(fleet.lead("leader", 60))
    assert term is not None
    await sweep_gates(db, config, term)
    db.drop()


async def test_a_durable_function_gets_the_results_of_tasks_in_the_types_they_declare(db: psycopg.Connection) -> None:
    square, day, _ = functions()
    runs = []

    @task(durable=True)
    async def parent() -> list[str]:
        runs.append(1)
        one, two = await gather(square.s(3), day.s(4))
        many = await gather([square.s(n) for n in range(5)], name="many")
        nothing = await gather([], name="nothing")
        return [str(one), two.isoformat(), str(many), str(nothing)]

    task_id = await parent.submit()
    assert (await drain()).counts == {"completed": 8}
    assert await task_id.result(timeout=1) == ["9", "2026-01-04", "[0, 1, 4, 9, 16]", "[]"]
    assert len(runs) == 3, "one run for each suspension"
    ((steps,),) = db.execute("SELECT array_agg(kind || ' ' || name ORDER BY kind, name) FROM steps").fetchall()
    assert steps == ["children gather", "children many", "gather gather", "gather many"]
    assert db.execute("SELECT count(*) FROM arrivals").fetchall() == [(0,)]
    assert db.execute("SELECT retry_count FROM tasks WHERE id = %s", [task_id]).fetchall() == [(0,)]


def test_sync_functions_gather_too() -> None:
    square, day, _ = functions()

    @task(durable=True)
    def parent() -> str:
        one, two = sync.gather(square.s(2), day.s(1))
        return f"{one} {two} {sync.gather([square.s(3)], name='list')}"

    task_id = parent.submit_sync()
    drain_sync()
    assert task_id.result(timeout=1) == "4 2026-01-01 [9]"


async def test_chains_groups_and_flows_can_be_gathered(db: psycopg.Connection) -> None:
    square, _, _ = functions()

    @task(name="g.total")
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @task(durable=True)
    async def parent() -> list[Any]:
        joined = group(square.s(n) for n in (1, 2)).then(total.s())
        return list(await gather(chain(square.s(2), square.s()), joined, group(square.s(5), square.s(6)), square.s(7)))

    task_id = await parent.submit()
    await drain()
    assert await task_id.result(timeout=1) == [16, 5, [25, 36], 49]


async def test_while_it_waits_it_has_no_slot_and_can_do_other_things(db: psycopg.Connection) -> None:
    square, _, _ = functions()

    @task(durable=True)
    async def parent() -> list[Any]:
        import asyncio

        async with asyncio.TaskGroup() as branches:
            results = branches.create_task(gather(square.options(delay_seconds=3600).bind(2), square.s(3)))
            signal = branches.create_task(wait_for_signal("go"))
        return [results.result(), signal.result()]

    task_id = await parent.submit()
    assert (await drain()).counts == {"completed": 1, "pending": 1}
    ((awaited,),) = db.execute("SELECT awaited_signals FROM tasks WHERE id = %s", [task_id]).fetchall()
    assert sorted(awaited) == [":children", "go"]
    await task_id.signal("go", 1)
    await drain(with_delayed=True)
    assert await task_id.result(timeout=1) == [[4, 9], 1]


async def test_a_failed_child_raises_once_all_have_ended_and_may_be_handled() -> None:
    square, _, reject = functions()

    @task(durable=True)
    async def parent() -> str:
        try:
            await gather(square.s(1), reject.s())
        except TaskFailed as e:
            return f"{e.name} failed"
        return "unexpected"

    task_id = await parent.submit()
    await drain()
    assert await task_id.result(timeout=1) == "g.reject failed"


async def test_settled_gives_states_and_errors() -> None:
    square, _, reject = functions()

    @task(durable=True)
    async def parent() -> list[str]:
        ends: Sequence[SettledTask[int]] = await gather([square.s(2), reject.s()], when="settled")
        return [f"{end.state} {end.result} {bool(end.error)}" for end in ends]

    task_id = await parent.submit()
    await drain()
    assert await task_id.result(timeout=1) == ["completed 4 False", "dead_letter None True"]


async def test_after_the_repair_of_a_child_its_replayed_parent_goes_on(config: Config, db: psycopg.Connection) -> None:
    broken = [True]

    @task(name="g.shaky")
    async def shaky() -> int:
        if broken:
            raise tasklib.Reject("broken")
        return 7

    @task(durable=True, max_retries=0)
    async def parent() -> int:
        return sum(await gather([shaky.s()]))

    task_id = await parent.submit()
    await drain()
    assert (await task_id.get()).state == "dead_letter"
    broken.clear()
    with Client(config) as client:
        ((flow,),) = db.execute("SELECT id FROM flows").fetchall()
        await tasklib.replay_task(task_id)
        client.replay_flow(flow)
    await drain()
    assert await task_id.result(timeout=1) == 7
    assert db.execute("SELECT count(*) FROM tasks").fetchall() == [(2,)]


@pytest.mark.parametrize(("policy", "state"), [("cancel", "cancelled"), ("abandon", "pending")])
async def test_children_are_cancelled_with_their_parent_by_policy(
    config: Config, db: psycopg.Connection, policy: Any, state: str
) -> None:
    square, _, _ = functions()

    @task(durable=True)
    async def parent() -> None:
        await gather([square.options(delay_seconds=3600).bind(2)], if_cancelled=policy)

    task_id = await parent.submit()
    await drain()
    await task_id.cancel()
    await sweep(config)
    assert db.execute("SELECT state FROM tasks WHERE name = 'g.square'").fetchall() == [(state,)]
    assert db.execute("SELECT finished_at IS NOT NULL FROM flows").fetchall() == [(state == "cancelled",)]


async def test_a_cancelled_child_raises_with_the_reason() -> None:
    square, _, reject = functions()

    @task(durable=True)
    async def parent() -> str:
        try:
            await gather(chain(reject.s(), square.s()))
        except TaskCancelled as e:
            return e.__notes__[0]
        return "unexpected"

    task_id = await parent.submit()
    await drain()
    assert "UpstreamFailed: cancelled because g.reject" in await task_id.result(timeout=1)


async def test_the_results_are_on_record_so_that_the_children_may_be_deleted(
    config: Config, db: psycopg.Connection
) -> None:
    square, _, _ = functions()

    @task(durable=True)
    async def parent() -> int:
        (result,) = await gather([square.s(3)])
        await sleep(3600)
        return result

    task_id = await parent.submit()
    await drain()
    db.execute("UPDATE flows SET finished_at = now() - interval '1 year'")
    keeping = config.with_changes(retention=(Retention("completed", days=1),), dead_letter_days=1)
    leader = ReconnectingConnection(config, "leader")
    term = await leader.run(fleet.lead("leader", 60))
    assert term is not None
    await delete_expired(leader, keeping, term)
    assert db.execute("SELECT count(*) FROM flows").fetchall() == [(1,)], "not before the parent has ended"
    db.execute("DELETE FROM tasks WHERE name = 'g.square'")
    await drain(with_delayed=True)
    assert await task_id.result(timeout=1) == 9
    await delete_expired(leader, keeping, term)
    assert db.execute("SELECT count(*) FROM flows").fetchall() == [(0,)]
    leader.drop()


async def test_results_that_take_too_much_room_are_refused(db: psycopg.Connection) -> None:
    @task(name="g.large")
    async def large() -> str:
        return "x" * 200_000

    @task(durable=True, max_retries=0)
    async def parent() -> None:
        await gather([large.s(), large.s()])

    task_id = await parent.submit()
    await drain()
    assert "store large data elsewhere" in str((await task_id.get()).error)


async def test_waiting_for_another_task_in_a_running_one_is_refused_with_what_to_write() -> None:
    square, _, _ = functions()

    @task(max_retries=0)
    async def impatient() -> int:
        child: tasklib.TaskId[int] = await square.submit(3)
        return await child.result()

    @task(max_retries=0)
    def impatient_sync() -> int:
        child: tasklib.SyncTaskId[int] = square.submit_sync(3)
        return child.result()

    ids = [await impatient.submit(), await impatient_sync.submit()]
    await drain()
    for id_ in ids:
        error = str((await id_.get()).error)
        assert "await gather(other.s(...))" in error
        assert "spawned(" in error


async def test_wrong_options_of_a_gather_are_named() -> None:
    square, _, _ = functions()
    with pytest.raises(InvalidOption, match="if_cancelled"):
        await gather([square.s(1)], if_cancelled="maybe")  # type: ignore[call-overload]  # that is the point
    with pytest.raises(RuntimeError, match="outside of a task"):
        await gather([square.s(1)])
    with pytest.raises(InvalidOption, match="10,000 is the most"):
        await gather([square.s(1)] * 10_001)


async def test_a_step_that_was_done_before_is_not_done_again(db: psycopg.Connection) -> None:
    square, _, _ = functions()
    calls = []

    @task(durable=True)
    async def parent() -> int:
        await step("once", calls.append, 1)
        (first,) = await gather([square.s(2)], key="a")
        (second,) = await gather([square.s(first)], key="b")
        return second

    task_id = await parent.submit()
    await drain()
    assert await task_id.result(timeout=1) == 16
    assert calls == [1]


async def test_tasks_whose_submission_was_committed_and_not_answered_are_gathered_once(
    config: Config, db: psycopg.Connection
) -> None:
    square, _, _ = functions()
    at: dict[str, Any] = {"port": 5432, **conninfo_to_dict(config.database_url)}
    with proxy(at["host"], int(at["port"])) as way:
        at |= {"host": "127.0.0.1", "port": way.port, "sslmode": "disable", "gssencmode": "disable"}

        @task(durable=True)
        async def parent() -> list[int]:
            if not way.lost:
                way.lose_answer_to(b"COMMIT\0")  # not that of READ COMMITTED
            return await gather([square.s(n) for n in range(3)])

        task_id = await parent.submit()
        await drain(config.with_changes(database_url=make_conninfo("", **at)))
        assert way.lost == 1
    assert await task_id.result(timeout=1) == [0, 1, 4]
    assert db.execute("SELECT count(*) FROM flows").fetchall() == [(1,)]
    assert db.execute("SELECT count(*) FROM tasks WHERE name = 'g.square'").fetchall() == [(3,)]


async def test_gathering_an_empty_group_waits_for_nothing() -> None:
    @task(durable=True)
    async def parent() -> list[Any]:
        return await gather([group([])])

    task_id = await parent.submit()
    assert (await drain()).counts == {"completed": 1}
    assert await task_id.result(timeout=1) == [[]]


async def test_a_task_that_gathers_and_ends_in_one_attempt_is_counted_by_the_gate_of_its_children(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    square, _, _ = functions()
    look, rows = AttemptJournal._look, Rows(db)

    async def late(self: AttemptJournal, record: dict[str, Any]) -> FoundChildren:
        ((child,),) = db.execute("SELECT id FROM tasks WHERE name = 'g.square'").fetchall()
        rows.run(settle.complete([Completion(Lease(str(child), rows.hold(child, "another")), "9")], "another"))
        rows.fold()
        return await look(self, record)

    monkeypatch.setattr(AttemptJournal, "_look", late)

    @task(durable=True)
    async def parent() -> int:
        return (await gather(square.s(3)))[0]

    task_id = await parent.submit()
    await drain()
    assert await task_id.result(timeout=1) == 9
    assert db.execute("SELECT lease_token FROM tasks WHERE id = %s", [task_id]).fetchall() == [(1,)]
    assert db.execute("SELECT completed, failed FROM gates WHERE kind = 'parent'").fetchall() == [(1, 0)]


async def test_a_child_that_is_replayed_while_its_result_is_read_is_waited_for(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    square, _, _ = functions()
    look, looks = AttemptJournal._look, []

    async def replayed(self: AttemptJournal, record: dict[str, Any]) -> FoundChildren:
        found = await look(self, record)
        if found.ends is not None and not looks:
            looks.append(1)
            return found._replace(ends=[[end for end in found.ends[0] if end["result"] != 4]])
        return found

    monkeypatch.setattr(AttemptJournal, "_look", replayed)

    @task(durable=True)
    async def parent() -> list[int]:
        return await gather([square.s(n) for n in range(4)])

    task_id = await parent.submit()
    await drain()
    assert await task_id.result(timeout=1) == [0, 1, 4, 9]
    assert looks
