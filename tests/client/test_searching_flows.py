"""Searching the tasks of a flow: by its index, whatever is newer, page by page."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.client.search_terms import SearchError
from tasklib.sql import statement
from tasklib.store import search
from tasklib.store.search import Part, Search
from tests.dashboard import flow_scenes


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


def test_the_tasks_of_a_flow_and_of_a_node_are_found(client: Client, db: psycopg.Connection) -> None:
    flow, other = flow_scenes.catalogue(client), flow_scenes.catalogue(client)
    flow_scenes.advance(db, flow)
    db.execute("INSERT INTO tasks (name) VALUES ('plain')")

    def count(text: str) -> int:
        return len(client.search_tasks(text, limit=200).tasks)

    assert count(f"flow:{flow}") == 49
    assert count(f"flow:{flow.upper()} node:parse") == 40
    assert count(f"flow:{flow} node:pa*") == 40
    assert count(f"flow:{flow} state:dead_letter") == 1
    assert count(f"flow:{flow},{other}") == 98
    assert count("flow:*") == 98
    assert count("-flow:*") == 1
    assert count(f"flow:* -flow:{flow}") == 49
    assert count(f"flow:{flow} -node:parse") == 9
    assert count(f"flow:{flow} parse -state:completed") == 21
    with pytest.raises(SearchError, match="not a flow's id"):
        client.search_tasks("flow:import")


def test_an_old_flow_is_found_behind_any_number_of_newer_tasks(client: Client, db: psycopg.Connection) -> None:
    flow = flow_scenes.catalogue(client)
    db.execute("INSERT INTO tasks (name) SELECT 'newer' FROM generate_series(1, 50)")
    found = client.search_tasks(f"flow:{flow} state:pending", limit=100, look=10)
    assert (len(found.tasks), found.looked_at) == (49, None)


def test_pages_of_a_flow_lead_there_and_back(client: Client) -> None:
    flow = flow_scenes.catalogue(client)
    first = client.search_tasks(f"flow:{flow} node:parse", limit=15)
    second = client.search_tasks(f"flow:{flow} node:parse", limit=15, older_than=first.older)
    third = client.search_tasks(f"flow:{flow} node:parse", limit=15, older_than=second.older)
    assert [len(page.tasks) for page in (first, second, third)] == [15, 15, 10]
    back = client.search_tasks(f"flow:{flow} node:parse", limit=15, newer_than=third.newer)
    assert [task.id for task in back.tasks] == [task.id for task in second.tasks]


def test_a_flow_is_read_by_its_index(db: psycopg.Connection, client: Client) -> None:
    flow = flow_scenes.catalogue(client)
    db.execute("INSERT INTO tasks (name) SELECT 'newer' FROM generate_series(1, 3000)")
    db.execute("ANALYZE tasks")
    query = search.in_flows(Search(flows=(flow,)), Part(20, 1000))
    plan = db.execute(b"EXPLAIN " + statement(query.name, None).encode(), query.parameters).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "tasks_flow" in text
    assert "tasks_pkey" in text
    assert "Seq Scan on tasks" not in text
