"""Flows within flows, and groups with callbacks."""

from __future__ import annotations

import psycopg
import pytest

import tasklib
from tasklib import Config, Flow, InvalidOption, SettledTask, chain, current_task, group, spawned, task
from tasklib.tasks import registry
from tasklib.testing import drain

pytestmark = pytest.mark.usefixtures("initialised")


@task(name="nested.add")
async def add(x: int, y: int = 1) -> int:
    return x + y


@task(name="nested.total")
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(name="nested.states")
async def states(ends: list[SettledTask[int]]) -> list[str]:
    return [end.state for end in ends]


@task(name="nested.reject")
async def reject() -> int:
    raise tasklib.Reject("no")


@task(name="nested.fan_out")
async def fan_out(n: int) -> None:
    await current_task().spawn_many({x: add.s(x) for x in range(n)})


@pytest.fixture
def initialised(config: Config) -> None:
    tasklib.init(config)
    for function in (add, total, states, reject, fan_out):
        registry.register(function)


def ends(db: psycopg.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT node, state FROM tasks ORDER BY id").fetchall())


async def test_a_chain_and_a_group_are_nodes_of_a_flow(db: psycopg.Connection) -> None:
    flow: Flow[int] = Flow("outer")
    first = flow.add(add.s(1), name="first")
    chained = flow.add(chain(add.s(first), add.s(10)), name="chained")
    grouped = flow.add(group(add.s(chained), add.s(chained, 2)), name="grouped")
    flow.add(total.s(grouped), name="last")
    run = await flow.submit()
    await drain()
    assert await run.result(timeout=1) == 14 + 15
    assert set(ends(db)) == {
        "first",
        "chained.nested.add",
        "chained.nested.add-2",
        "grouped.nested.add",
        "last",
    }


async def test_a_group_of_chains_is_a_node_and_stands_for_the_list_of_their_results() -> None:
    flow: Flow[int] = Flow("outer")
    chains = flow.add(group(chain(add.s(n), add.s()) for n in range(3)))
    flow.add(total.s(chains))
    waits = flow.add(add.s(5), after=[chains])
    flow.add(total.s(flow.add([add.s(waits)])))
    run = await flow.submit()
    await drain()
    assert await run.tasks["nested.total"][0].result(timeout=1) == 2 + 3 + 4
    assert await run.tasks["nested.total-2"][0].result(timeout=1) == 7


async def test_a_nested_part_begins_after_the_nodes_it_waits_for(db: psycopg.Connection) -> None:
    flow: Flow[int] = Flow("outer")
    failing = flow.add(reject.s(), name="failing")
    flow.add(chain(add.s(1), add.s()), name="strict", after=[failing])
    flow.add(chain(add.s(1), add.s()), name="lenient", optional=[failing])
    flow.add(chain(add.s(1), add.s()), name="settled", after=[failing], when="settled")
    await flow.submit()
    await drain()
    assert ends(db) == {
        "failing": "dead_letter",
        "strict.nested.add": "cancelled",
        "strict.nested.add-2": "cancelled",
        "lenient.nested.add": "completed",
        "lenient.nested.add-2": "completed",
        "settled.nested.add": "completed",
        "settled.nested.add-2": "completed",
    }


async def test_a_flow_is_a_part_of_chains_groups_and_flows(db: psycopg.Connection) -> None:
    inner: Flow[int] = Flow("inner")
    numbers = inner.add([add.s(n) for n in range(3)], name="numbers")
    inner.add(total.s(numbers), name="sum")
    flow: Flow[int] = Flow("outer")
    one, two = flow.add(inner), flow.add(inner)
    flow.add(add.s(one, two), name="both")
    run = await flow.submit()
    chained = await chain(add.s(1), inner, add.s()).submit()
    await drain(concurrency=5)
    assert await run.result(timeout=1) == 12
    assert await chained.result(timeout=1) == 7
    assert {"inner.numbers", "inner.sum", "inner-2.numbers", "inner-2.sum", "both"} <= set(run.tasks)
    assert inner.nodes.keys() == {"numbers", "sum"}, "it may be used again"


async def test_a_flow_that_spawns_is_a_part_of_another() -> None:
    inner: Flow[int] = Flow("inner")
    inner.add(total.s(spawned(inner.add(fan_out.s(3)))))
    run = await chain(inner, add.s(100)).submit()
    await drain()
    assert await run.result(timeout=1) == 106


def test_a_flow_is_no_part_of_itself_and_an_empty_one_no_part_of_any() -> None:
    flow: Flow[int] = Flow("f")
    for part, why in ((flow, "can't be a part of itself"), (Flow("empty"), "the flow empty has no tasks")):
        with pytest.raises(InvalidOption, match=why):
            flow.add(part)


@pytest.mark.parametrize("fails", [False, True])
async def test_callbacks_of_a_group_run_on_success_and_on_any_end(db: psycopg.Connection, fails: bool) -> None:
    parts = [add.s(1), reject.s() if fails else add.s(2)]
    await group(parts).with_callbacks(on_success=total.s(), on_end=states.s()).submit()
    await drain()
    found = ends(db)
    assert found["nested.total"] == ("cancelled" if fails else "completed")
    assert found["nested.states"] == "completed"


async def test_callbacks_wait_for_what_a_group_spawns(db: psycopg.Connection) -> None:
    batch = group(spawned(fan_out.s(2)), add.s(5)).with_callbacks(on_end=states.s())
    run = await batch.submit()
    await drain()
    assert await run.result(timeout=1) == ["completed"] * 3
