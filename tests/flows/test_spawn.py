"""Tasks that a running task adds: once each, and joins that wait for all of them."""

from __future__ import annotations

from uuid import UUID, uuid4

import psycopg
import pytest

import tasklib
from tasklib import Config, Flow, InvalidOption, Results, SettledTask, chain, current_task, group, spawned, task
from tasklib.errors import TaskCancelled
from tasklib.store import flows, settle
from tasklib.store.settle import Completion, Lease
from tasklib.tasks import registry
from tasklib.tasks.ids import spawned_id
from tasklib.testing import drain, drain_sync
from tests.flows.rows import Rows

pytestmark = pytest.mark.usefixtures("initialised")


@task(name="spawn.square")
async def square(x: int) -> int:
    return x * x


@task(name="spawn.total")
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(name="spawn.paged")
def paged(numbers: Results[int]) -> int:
    return sum(numbers)


@task(name="spawn.count")
async def count(ends: list[SettledTask[int]]) -> dict[str, int]:
    states = [end.state for end in ends]
    return {state: states.count(state) for state in sorted(set(states))}


@task(name="spawn.fan_out", max_retries=2)
async def fan_out(n: int, failures: int = 0) -> str:
    ids = [await current_task().spawn(square.s(x), key=x) for x in range(n)]
    assert ids == [spawned_id(current_task().id, x) for x in range(n)]
    if current_task().attempt <= failures:
        raise ValueError("once more")
    return "all are there"


@task(name="spawn.fan_out_sync")
def fan_out_sync(n: int) -> None:
    current_task().spawn_sync(square.s(0), key="first")
    current_task().spawn_many_sync({x: square.s(x) for x in range(1, n)})


@task(name="spawn.nested")
async def nested(depth: int) -> int:
    if depth:
        await current_task().spawn_many({f"{side}": nested.s(depth - 1) for side in "ab"})
    return 1


@task(name="spawn.reject")
async def reject() -> int:
    raise tasklib.Reject("no")


@task(name="spawn.mixed")
async def mixed() -> None:
    await current_task().spawn(square.s(1), key="good")
    await current_task().spawn(reject.s(), key="bad")


@pytest.fixture
def initialised(config: Config) -> None:
    tasklib.init(config)
    for function in (square, total, paged, count, fan_out, fan_out_sync, nested, reject, mixed):
        registry.register(function)


async def test_a_join_waits_for_the_spawning_task_and_for_all_that_it_has_spawned(db: psycopg.Connection) -> None:
    run = await chain(spawned(fan_out.s(5), of=square), total.s()).submit()
    await drain()
    assert await run.result(timeout=1) == sum(x * x for x in range(5))
    assert db.execute("SELECT finished_at IS NOT NULL FROM flows").fetchall() == [(True,)]
    assert db.execute("SELECT expected, completed FROM gates ORDER BY kind").fetchall() == [(7, 7), (6, 6)]
    assert db.execute("SELECT count(*) FROM arrivals").fetchall() == [(0,)]


async def test_an_attempt_that_is_repeated_spawns_nothing_twice(db: psycopg.Connection) -> None:
    run = await chain(spawned(fan_out.s(3, failures=2)), total.s()).submit()
    await drain(until_done=True)
    assert await run.result(timeout=1) == 5
    assert db.execute("SELECT count(*) FROM tasks WHERE name = 'spawn.square'").fetchall() == [(3,)]


def test_sync_functions_spawn_too_and_results_come_page_by_page() -> None:
    run = chain(spawned(fan_out_sync.s(4)), paged.s()).submit_sync()
    drain_sync()
    assert run.result(timeout=1) == 14


async def test_what_spawned_tasks_spawn_belongs_to_the_same_group() -> None:
    run = await chain(spawned(nested.s(3)), total.s()).submit()
    await drain()
    assert await run.result(timeout=1) == 2 + 4 + 8


async def test_a_node_gives_its_own_result_and_those_that_it_spawned(config: Config) -> None:
    flow: Flow[int] = Flow("import")
    found = flow.add(fan_out.s(3), name="found")
    flow.add(total.s(spawned(found, of=square)), after=[found], name="report")
    run = await flow.submit()
    await drain()
    assert await run.result(timeout=1) == 5
    with tasklib.Client(config) as client:
        assert sorted(client.get_flow(run.id).edges) == [
            ("found", "found:spawned"),
            ("found", "report"),
            ("found:spawned", "report"),
        ]


async def test_a_join_that_waits_for_the_spawning_task_alone_does_not_wait_for_what_it_spawned() -> None:
    flow: Flow[str] = Flow("alone")
    found = flow.add(fan_out.options(priority=50).bind(2), name="found")
    flow.add(square.options(priority=60).bind(x=2), after=[found], name="after")
    run = await flow.submit()
    await drain()
    assert await run.tasks["after"][0].result(timeout=1) == 4


async def test_a_spawned_task_that_fails_cancels_the_join_or_is_told_to_it(db: psycopg.Connection) -> None:
    strict = await chain(spawned(mixed.s()), total.s()).submit()
    flow: Flow[object] = Flow("settled")
    flow.add(count.s(spawned(flow.add(mixed.s()))), when="settled")
    settled = await flow.submit()
    await drain()
    assert await settled.result(timeout=1) == {"completed": 1, "dead_letter": 1}
    assert (await strict.last.get()).state == "cancelled"


async def test_a_spawning_task_that_spawns_nothing_opens_its_join_with_an_empty_list() -> None:
    run = await chain(spawned(nested.s(0)), total.s()).submit()
    await drain()
    assert await run.result(timeout=1) == 0


async def test_a_group_of_spawning_tasks_is_joined_as_one() -> None:
    run = await group(spawned(fan_out.s(n)) for n in (2, 3)).then(total.s()).submit()
    await drain()
    assert await run.result(timeout=1) == 1 + 5


async def test_outside_of_flows_spawned_tasks_are_plain_ones(db: psycopg.Connection) -> None:
    await fan_out.submit(n=2, failures=1)
    assert (await drain(until_done=True)).counts == {"completed": 3}
    assert db.execute("SELECT count(flow), count(reports_to) FROM tasks").fetchall() == [(0, 0)]


def test_at_least_is_refused_where_the_number_of_tasks_is_not_known() -> None:
    flow: Flow[int] = Flow("f")
    group_of = spawned(flow.add(fan_out.s(3)))
    flow.add(total.s(group_of), at_least=2)
    with pytest.raises(InvalidOption, match="settled"):
        flow.submit_sync()


def test_spawning_is_refused_where_there_is_no_worker_with_a_database() -> None:
    context = tasklib.TaskContext(uuid4(), "n", 1, 1, 1, "default", "w")
    with pytest.raises(InvalidOption, match="child process and over HTTP"):
        context.spawn_sync(square.s(1), key=1)


@pytest.mark.parametrize("key", [True, "", 1.5, None])
async def test_a_key_is_a_number_or_a_string(key: object, db: psycopg.Connection) -> None:
    @task(name="spawn.odd")
    async def odd() -> None:
        await current_task().spawn(square.s(1), key=key)  # type: ignore[arg-type]  # that is the point

    await odd.options(max_retries=0).submit()
    await drain()
    ((error,),) = db.execute("SELECT error FROM tasks").fetchall()
    assert "the key of a spawned task" in error


# ---- the statement ----


def _child(parent: UUID, key: int) -> str:
    return (
        f'{{"id": "{spawned_id(parent, key)}", "name": "child", "queue": "default", "kwargs": {{}}, "max_retries": 3, '
        '"priority": 0, "tags": {}, "required_capabilities": []}'
    )


class Parent:
    """A running task whose spawned tasks a join waits for."""

    def __init__(self, db: psycopg.Connection) -> None:
        self.rows = rows = Rows(db)
        self.flow, self.end = rows.flow(2)
        self.gate = rows.gate(self.flow, 1)
        db.execute("UPDATE gates SET nodes = '{p,p:spawned}' WHERE id = %s", [self.gate])
        self.id = rows.task(self.flow, "p", reports_to=[self.gate, self.end])
        self.join = rows.task(self.flow, "join", waits_for=self.gate, reports_to=[self.end])
        self.lease = Lease(str(self.id), rows.hold(self.id))

    def spawn(self, *keys: int, token: int | None = None) -> flows.SpawnOutcome | None:
        lease = self.lease if token is None else Lease(str(self.id), token)
        rows = f"[{','.join(_child(self.id, key) for key in keys)}]"
        spawned: flows.SpawnOutcome | None = self.rows.run(flows.spawn(lease, "w", rows))
        return spawned

    def complete(self, *leases: Lease) -> None:
        assert self.rows.run(settle.complete([Completion(lease, "{}") for lease in leases], "w"))
        self.rows.fold()


def test_a_gate_stays_shut_until_the_spawning_task_has_ended(db: psycopg.Connection) -> None:
    parent = Parent(db)
    assert parent.spawn(1, 2) == (2, False)
    for key in (1, 2):
        child = spawned_id(parent.id, key)
        parent.complete(Lease(str(child), parent.rows.hold(child)))
    assert parent.rows.state(parent.join) == "waiting"
    assert parent.spawn(2, 3) == (1, False), "more may come as long as it runs"
    parent.complete(parent.lease)
    assert parent.rows.state(parent.join) == "waiting"
    child = spawned_id(parent.id, 3)
    parent.complete(Lease(str(child), parent.rows.hold(child)))
    assert parent.rows.state(parent.join) == "pending"


def test_an_attempt_that_has_lost_its_task_spawns_nothing(db: psycopg.Connection) -> None:
    parent = Parent(db)
    assert parent.spawn(1, token=7) is None
    parent.complete(parent.lease)
    assert parent.spawn(1) is None
    assert db.execute("SELECT count(*) FROM tasks WHERE name = 'child'").fetchall() == [(0,)]


@pytest.mark.parametrize("table", ["flows", "tasks"])
def test_a_cancelled_task_or_flow_spawns_nothing(db: psycopg.Connection, table: str) -> None:
    parent = Parent(db)
    db.execute(f"UPDATE {table} SET cancel_requested_at = now()".encode())
    assert parent.spawn(1) == (0, True)


async def test_a_task_of_a_cancelled_flow_gets_an_error_when_it_spawns(config: Config, db: psycopg.Connection) -> None:
    errors = []

    @task(name="spawn.late")
    async def late() -> None:
        db.execute("UPDATE flows SET cancel_requested_at = now()")
        try:
            await current_task().spawn(square.s(1), key=1)
        except TaskCancelled as e:
            errors.append(e)

    await chain(late.s()).submit()
    await drain()
    assert len(errors) == 1
