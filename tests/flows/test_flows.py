"""Flows from submission to result, run by a real worker."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasklib
from tasklib import Config, Flow, InvalidOption, Results, SettledTask, TaskExecutionError, chain, group, task
from tasklib.client import flow_graphs
from tasklib.client.flow_graphs import graph_of
from tasklib.client.flow_plans import FlowPlan, planned
from tasklib.client.submissions import Defaults
from tasklib.tasks import registry
from tasklib.testing import drain, drain_sync

pytestmark = pytest.mark.usefixtures("initialised")


@pytest.fixture
def initialised(config: Config) -> None:
    tasklib.init(config)
    for function in (add, total, fail, clean, summary, paged, text):  # each test begins without tasks
        registry.register(function)


@task(name="flows.add")
async def add(x: int, y: int) -> int:
    return x + y


@task(name="flows.total")
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(name="flows.fail")
async def fail(x: int = 0) -> int:
    raise tasklib.Reject("no")


@task(name="flows.clean")
def clean() -> str:
    return "clean"


@task(name="flows.summary")
async def summary(ends: list[SettledTask[int]]) -> list[str]:
    return [f"{e.state}:{e.result}" for e in ends]


@task(name="flows.paged")
async def paged(numbers: Results[int]) -> int:
    return sum([n async for n in numbers])


@task(name="flows.text")
async def text() -> str:
    return "text"


def nodes(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT node, state, result -> 'value' FROM tasks ORDER BY id").fetchall()


async def test_a_chain_passes_each_result_on(db: psycopg.Connection) -> None:
    run = await chain(add.s(2, 2), add.s(4), add.s(8)).submit()
    await drain()
    assert await run.result(timeout=1) == 16
    assert [n[:2] for n in nodes(db)] == [(f"flows.add{n}", "completed") for n in ("", "-2", "-3")]
    assert db.execute("SELECT finished_at IS NOT NULL FROM flows").fetchall() == [(True,)]
    assert db.execute("SELECT count(*) FROM arrivals").fetchall() == [(0,)]


async def test_a_task_with_all_its_arguments_only_waits_for_the_one_before(db: psycopg.Connection) -> None:
    run = await chain(add.s(1, 1), clean.s(), add.s(3, 4)).submit()
    await drain()
    assert await run.result(timeout=1) == 7


async def test_a_join_gets_the_results_in_the_order_of_submission(db: psycopg.Connection) -> None:
    run = await group(add.s(n, n) for n in range(100)).then(total.s()).submit()
    await drain(concurrency=10)
    assert await run.result(timeout=1) == sum(2 * n for n in range(100))
    assert db.execute("SELECT count(*) FROM gates").fetchall() == [(2,)], "one for the join, one for the flow"


async def test_a_graph_takes_nodes_for_their_results() -> None:
    flow: Flow[int] = Flow("import")
    one = flow.add(add.s(1, 2), name="one")
    two = flow.add([add.s(one, n) for n in (10, 20)], name="two")
    flow.add(total.s(two), after=[one], name="three")
    run = await flow.submit()
    await drain()
    assert await run.result(timeout=1) == 13 + 23
    assert {name: len(ids) for name, ids in run.tasks.items()} == {"one": 1, "two": 2, "three": 1}


async def test_a_group_of_chains_joins_what_each_ends_with() -> None:
    chains = [chain(add.s(n, 0), add.s(100)) for n in (1, 2, 3)]
    run = await group(*chains).then(total.s()).submit()
    await drain()
    assert await run.result(timeout=1) == 306


async def test_an_empty_group_opens_at_once_with_an_empty_list() -> None:
    run = await group([]).then(total.s()).submit()
    await drain()
    assert await run.result(timeout=1) == 0


async def test_an_empty_group_in_a_chain_still_waits_for_what_came_before(db: psycopg.Connection) -> None:
    run = await chain(add.s(1, 1), group([]), total.s()).submit()
    assert [waits for (waits,) in db.execute("SELECT waits_for IS NOT NULL FROM tasks ORDER BY id")] == [False, True]
    await drain()
    assert await run.result(timeout=1) == 0


async def test_a_failure_cancels_what_waits_and_names_the_culprit(db: psycopg.Connection) -> None:
    run = await chain(group(add.s(1, 1), fail.s()), total.s(), add.s(1)).submit()
    await drain()
    because = (
        r"was cancelled because flows\.fail \(task .*\) of the same flow did not complete: it ended as dead_letter\."
    )
    with pytest.raises(tasklib.TaskCancelled, match=because):
        await run.result(timeout=1)
    states = db.execute("SELECT state, error FROM tasks ORDER BY id").fetchall()
    assert [s for s, _ in states] == ["completed", "dead_letter", "cancelled", "cancelled"]
    assert all("flows.fail" in error for _, error in states[2:])


async def test_settled_hands_over_results_and_errors() -> None:
    run = await group(add.s(1, 1), fail.s()).then(summary.s(), when="settled").submit()
    await drain()
    assert await run.result(timeout=1) == ["completed:2", "dead_letter:None"]


async def test_at_least_goes_on_with_those_that_completed() -> None:
    run = await group(add.s(1, 1), fail.s(), add.s(2, 2)).then(total.s(), at_least=2).submit()
    await drain()
    assert await run.result(timeout=1) == 6


async def test_an_optional_dependency_may_fail() -> None:
    flow: Flow[int] = Flow()
    good, bad = flow.add(add.s(1, 1)), flow.add(fail.s())
    flow.add(add.s(good, 5), optional=[bad])
    run = await flow.submit()
    await drain()
    assert await run.result(timeout=1) == 7


async def test_results_are_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.tasks.flow_results.PAGE", 7)
    run = await group(add.s(n, 0) for n in range(30)).then(paged.s()).submit()
    await drain(concurrency=5)
    assert await run.result(timeout=1) == sum(range(30))


def test_a_flow_is_submitted_from_synchronous_code() -> None:
    run = chain(add.s(1, 2), add.s(3)).submit_sync()
    drain_sync()
    assert run.result(timeout=1) == 6


@pytest.mark.parametrize("commits", [True, False])
async def test_a_flow_exists_if_and_only_if_the_callers_transaction_commits(
    config: Config, db: psycopg.Connection, commits: bool
) -> None:
    async with await psycopg.AsyncConnection.connect(config.database_url) as connection:
        await chain(add.s(1, 2), add.s(3)).on(connection).submit()
        await (connection.commit if commits else connection.rollback)()
    counts = db.execute(
        "SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM flows), (SELECT count(*) FROM gates)"
    )
    assert counts.fetchall() == [(2, 1, 2) if commits else (0, 0, 0)]


async def test_a_flow_of_several_statements_is_submitted_as_a_whole(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.client.flow_plans.MOST_IN_STATEMENT", 3)
    run = await group(add.s(n, 1) for n in range(7)).then(total.s()).submit()
    assert db.execute("SELECT count(DISTINCT xmin::text), count(*) FROM tasks").fetchall() == [(1, 8)]
    await drain()
    assert await run.result(timeout=10) == sum(range(1, 8))


def test_each_statement_of_a_large_flow_is_made_when_it_is_run(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr("tasklib.client.flow_plans.MOST_IN_STATEMENT", 3)
    monkeypatch.setattr(FlowPlan, "rows", lambda plan, start, end: made.append((start, end)) or "[]")
    graph = graph_of(group(add.s(n, 1) for n in range(7)))
    plan = planned(graph, Defaults(config), UUID, None)
    assert len({id(place) for place in plan.places}) == 1, "one text for all tasks without results of others"
    statements = iter(plan.statements())
    assert made == []
    next(statements)
    assert made == [(0, 3)]
    assert len([*statements]) == 2
    assert made == [(0, 3), (3, 6), (6, 7)]


async def test_a_flow_is_checked_before_anything_is_submitted(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_graphs, "MOST_IN_LIST", 3)
    other: Flow[Any] = Flow()
    stranger = other.add(add.s(1, 1))
    twice: Flow[Any] = Flow()
    twice.add(clean.s(), name="a")
    refused = [
        (lambda: chain(text.s(), add.s(1)), "flows.text returns str"),
        (lambda: chain(add.s("one", 2), add.s(1)), "don't fit flows.add"),
        (lambda: group(add.s(1, 1), fail.s()).then(total.s(), when="settled"), r"list\[SettledTask"),
        (lambda: group(add.s(n, 0) for n in range(4)).then(total.s()), r"Results\["),
        (lambda: group(add.s(1, 1)).then(total.s(), at_least=2), "at least 2"),
        (lambda: group(add.s(1, 1)).then(total.s(), at_least=0), "at_least="),
        (lambda: chain(), "at least one task"),
        (lambda: Flow(), "has no tasks"),
        (lambda: Flow().add(add.s(stranger, 1)), "not a node of the flow"),
        (lambda: twice.add(clean.s(), name="a"), "has a node 'a' already"),
        (lambda: chain(add.options(idempotency_key="k").s(1, 1)), "no idempotency_key"),
        (lambda: chain("no"), "a part of a flow"),
    ]
    for build, message in refused:
        with pytest.raises((InvalidOption, TaskExecutionError), match=message):
            await build().submit()
    assert db.execute("SELECT count(*) FROM tasks").fetchall() == [(0,)]


async def test_a_flow_without_tasks_is_finished_when_it_is_submitted(db: psycopg.Connection) -> None:
    run = await group([]).submit()
    assert db.execute("SELECT finished_at IS NOT NULL FROM flows WHERE id = %s", [run.id]).fetchall() == [(True,)]
