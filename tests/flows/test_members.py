"""The tasks of a flow are found whatever their ids: by the primary key, or by the index of flows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasklib import Client, Config, group, task
from tasklib.store import flows
from tasklib.tasks.ids import new_ids, spawned_id, start_of_millisecond
from tests.flows.rows import Rows

FIRST = UUID("01938e5c-a123-7000-8000-000000000000")
LAST = UUID("01938e5c-afff-7fff-bfff-ffffffffffff")
FLOW = UUID("01938e5c-b000-7000-8000-000000000000")
LATER = UUID("01938e5c-b001-7000-8000-000000000000")
BY_HAND = UUID("9b2e0d5c-1111-4222-8333-444444444444")


@task(name="members.work")
def work(n: int) -> int:
    return n


@task(name="members.total")
def total(parts: list[int]) -> int:
    return sum(parts)


@pytest.fixture
def rows(db: psycopg.Connection) -> Rows:
    return Rows(db)


def insert(rows: Rows, *ids: UUID, first: UUID | None = None) -> None:
    rows.db.execute("INSERT INTO flows (id, name, first_task) VALUES (%s, 'f', %s)", [FLOW, first])
    rows.gate(FLOW, len(ids), kind="flow")
    for id_ in ids:
        rows.db.execute(
            "INSERT INTO tasks (id, name, flow, node, state, result, completed_at) "
            """VALUES (%s, 'work', %s, 'a', 'completed', '{"value": 1}', now())""",
            [id_, FLOW],
        )
    rows.db.execute("INSERT INTO tasks (id, name) VALUES ('01938e5c-a124-7000-8000-000000000000', 'of no flow')")
    rows.db.execute(
        "INSERT INTO tasks (id, name, flow, node) VALUES ('01938e5c-a125-7000-8000-000000000000', 'other', %s, 'a')",
        [LATER],
    )


@pytest.mark.parametrize("first", [None, FIRST], ids=["first not known", "first known"])
def test_every_task_is_found_once_however_its_id_was_made(rows: Rows, first: UUID | None) -> None:
    ids = SPREAD
    insert(rows, *ids, first=first)
    assert rows.run(flows.task_ids(FLOW)) == {"a": ids}
    assert [(node.name, node.count) for node in rows.run(flows.nodes_of(FLOW))] == [("a", 5)]
    page = rows.run(flows.node_results(str(FLOW), ["a", "a"], False, None, 4))
    assert [id_ for id_, _ in page] == [str(id_) for id_ in ids[:4]]
    page = rows.run(flows.node_results(str(FLOW), ["a"], False, page[-1][0], 4))
    assert [id_ for id_, _ in page] == [str(BY_HAND)]
    assert rows.run(flows.cancel_rest(FLOW)) == []


SPREAD = [FIRST, LAST, FLOW, LATER, BY_HAND]
"""Some below the id of the flow, and some in the index of flows."""


def paged(rows: Rows, query: Any, limit: int) -> list[list[str]]:
    """What a call that goes through the flow page by page does in each."""
    found: list[list[str]] = []
    place: flows.MemberPlace | None = flows.FIRST_MEMBER
    while place is not None:
        states, place = rows.run(query(FLOW, limit, place))
        found.append(states)
    return found


def spread(rows: Rows) -> None:
    """Tasks in three nodes, and some without one, which wait; the flow is to stop."""
    insert(rows, *SPREAD)
    more = [UUID(int=BY_HAND.int + n) for n in range(1, 5)]
    for id_, node in zip(more, ("b", "c", None, None), strict=True):
        rows.db.execute("INSERT INTO tasks (id, name, flow, node) VALUES (%s, 'work', %s, %s)", [id_, FLOW, node])
    rows.db.execute("UPDATE tasks SET state = 'pending', result = NULL, completed_at = NULL WHERE flow = %s", [FLOW])
    rows.db.execute("UPDATE flows SET cancel_requested_at = now()")


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_all_tasks_of_a_flow_are_cancelled_and_replayed_whatever_the_size_of_a_page(rows: Rows, limit: int) -> None:
    spread(rows)
    pages = paged(rows, flows.cancel_tasks, limit)
    assert sorted(state for page in pages for state in page) == ["cancelled"] * 9
    assert len(pages) <= 9 / limit + 2
    pages = paged(rows, flows.replay_tasks, limit)
    assert sorted(state for page in pages for state in page) == ["cancelled"] * 9


def test_the_next_page_begins_behind_the_last_one(rows: Rows) -> None:
    spread(rows)
    states, place = rows.run(flows.cancel_tasks(FLOW, 1))
    assert (states, place) == (
        ["cancelled"] * 3,
        flows.MemberPlace(str(FIRST), "a", str(FLOW), str(BY_HAND)[:-1] + "7"),
    )
    rows.db.execute("UPDATE tasks SET state = 'pending', completed_at = NULL WHERE id = ANY (%s)", [[FIRST, FLOW]])
    while place is not None:
        _, place = rows.run(flows.cancel_tasks(FLOW, 1, place))
    assert rows.run(flows.cancel_rest(FLOW)) == [str(FIRST), str(FLOW)]


def test_tasks_are_found_whose_flow_has_no_row(rows: Rows, config: Config) -> None:
    insert(rows, FIRST, BY_HAND)
    rows.db.execute("DELETE FROM flows")
    assert rows.run(flows.task_ids(FLOW)) == {"a": [FIRST, BY_HAND]}
    with Client(config) as client:
        assert {found.id for found in client.search_tasks(f"flow:{FLOW}").tasks} == {FIRST, BY_HAND}


def test_tasks_of_a_client_are_not_in_the_index_of_flows(rows: Rows, config: Config) -> None:
    with Client(config) as client:
        run = client.submit_flow(group(work.s(n) for n in range(5)).then(total.s()))
    by_node = rows.run(flows.task_ids(run.id))
    ids = sorted(id_ for node in by_node.values() for id_ in node)
    ((first,),) = rows.db.execute("SELECT first_task FROM flows WHERE id = %s", [run.id]).fetchall()
    assert len(ids) == 6
    assert first <= ids[0] < ids[-1] < run.id, "as the condition of the index says"


def test_what_a_task_spawns_has_no_lower_id_than_the_first_of_its_flow() -> None:
    ids = new_ids(5000)
    spawned = [spawned_id(ids[0], key) for key in range(200)]
    spawned += [spawned_id(parent, "again") for parent in spawned]
    assert start_of_millisecond(ids[0]) <= min(*ids, *spawned)
