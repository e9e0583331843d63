"""Conditions as keyword arguments, as a value, and both."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import Client, DeadLetterFilter, TaskFilter
from tasklib.client.filters import DeadLetterConditions, TaskConditions
from tasklib.errors import InvalidOption
from tasklib.sql import statement
from tasklib.store import lookup
from tasklib.store.filters import SET_BY_CALLS
from tasklib.testing import databases
from tests.store.test_claim import nodes

PAGE = Path(__file__).parents[2] / "docs/how-to/search-tasks.md"


@pytest.fixture(autouse=True)
def tasks(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, queue, tags) VALUES ('mail', 'a', '{\"n\": 1}'), ('mail', 'b', '{}')")
    db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until, started_at) "
        "VALUES ('mail', 'running', 'w1', now() + interval '1 hour', now())"
    )


def test_a_filter_and_keyword_arguments_are_met_both(client: Client) -> None:
    mails = TaskFilter(name="mail")
    assert [t.queue for t in client.list_tasks(mails, queue="a")] == ["a"]
    assert [t.queue for t in client.list_tasks(TaskFilter(name="mail", queue="a"))] == ["a"]
    assert len(client.list_tasks(mails)) == 3


def test_a_keyword_argument_replaces_the_filters_own_condition(client: Client) -> None:
    assert [t.queue for t in client.list_tasks(TaskFilter(queue="a"), queue="b")] == ["b"]


def test_a_misspelt_condition_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="nmae"):
        client.list_tasks(nmae="mail")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nmae"):
        client.dead_letters(nmae="mail")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "chosen",
    [
        TaskFilter(state="gone"),
        TaskFilter(name=""),
        TaskFilter(queue=""),
        TaskFilter(tags={"a": object()}),
        TaskFilter(worker="\x00"),
        TaskFilter(ids=["?"]),
        TaskFilter(created_after=datetime(2030, 1, 1)),
    ],
)
def test_a_filters_conditions_are_checked_like_keyword_arguments(client: Client, chosen: TaskFilter) -> None:
    with pytest.raises(InvalidOption):
        client.list_tasks(chosen)
    with pytest.raises(InvalidOption):
        client.cancel_tasks(chosen)


def test_cancel_tasks_asks_only_what_one_worker_runs(client: Client) -> None:
    assert client.cancel_tasks(worker="w1", dry_run=True).asked == 1
    done = client.cancel_tasks(worker="w1")
    assert (done.cancelled, done.asked) == (0, 1)


def test_tasks_are_listed_by_their_ids(client: Client) -> None:
    first, _, last = client.list_tasks()
    assert [t.id for t in client.list_tasks(ids=[last.id, str(first.id)])] == [first.id, last.id]


def test_a_filter_without_a_condition_does_not_cancel_everything(client: Client) -> None:
    with pytest.raises(InvalidOption, match="everything=True"):
        client.cancel_tasks(TaskFilter())
    with pytest.raises(InvalidOption, match="everything=True"):
        client.cancel_tasks(TaskFilter(tags={}))
    with pytest.raises(InvalidOption, match="everything=True"):
        client.purge_dead_letters(DeadLetterFilter())


@pytest.mark.parametrize(
    ("value", "keywords"), [(TaskFilter, TaskConditions), (DeadLetterFilter, DeadLetterConditions)]
)
def test_every_condition_of_a_filter_is_a_keyword_argument_too(value: Any, keywords: Any) -> None:
    assert set(value.__dataclass_fields__) - set(SET_BY_CALLS) == set(keywords.__annotations__)


def test_what_a_worker_runs_is_listed_by_an_index(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name) SELECT 'w' FROM generate_series(1, 5000)")
    db.execute("ANALYZE tasks")
    query = lookup.list_(TaskFilter(worker="w1"), None, 100)
    plan = db.execute(("EXPLAIN " + statement(query.name, None)).encode(), query.parameters).fetchall()
    assert not any("Seq Scan" in row[0] for row in plan)


@pytest.mark.parametrize(
    ("conditions", "indexes"),
    [
        pytest.param(TaskFilter(name="rare"), {"tasks_by_name"}, id="with the index that the page advises"),
        pytest.param(TaskFilter(name="rare", state="pending"), {"tasks_claimable", "tasks_waiting"}, id="waiting"),
    ],
)
def test_a_rare_name_is_listed_without_reading_the_other_tasks(
    server_url: str, template_database: str, conditions: TaskFilter, indexes: set[str]
) -> None:
    [advised] = re.findall(r"^CREATE INDEX CONCURRENTLY tasks_by_name .+;$", PAGE.read_text(), re.MULTILINE)
    # A database that no other test has used: what they left in the indexes would count.
    with databases.database(server_url, template_database) as url, psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "INSERT INTO tasks (name, state, completed_at) "
            "SELECT 'often', 'completed', now() FROM generate_series(1, 9999)"
        )
        db.execute("INSERT INTO tasks (name) VALUES ('rare')")
        if indexes == {"tasks_by_name"}:
            db.execute(advised.replace("CONCURRENTLY ", "").encode())
        db.execute("ANALYZE tasks")
        query = lookup.list_(conditions, None, 100)
        explain = "EXPLAIN (ANALYZE, FORMAT JSON) " + statement(query.name, None)
        [[[plan]]] = db.execute(explain.encode(), query.parameters).fetchall()
    scans = [node for node in nodes(plan["Plan"]) if node.get("Relation Name") == "tasks" or "Index Name" in node]
    assert {node["Index Name"] for node in scans if "Index Name" in node} == indexes
    assert max(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans) < 100
