"""A task that waits at a gate is in no lane: a claim doesn't see it, and everything else does."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.store import claim
from tasklib.store.claim import Lane, Served
from tests.store.test_claim import TERMS, Claiming

GATE = uuid4()


@pytest.fixture
def claiming(config: Config) -> Iterator[Claiming]:
    claiming = Claiming(config)
    yield claiming
    claiming.connection.close()


@pytest.fixture(autouse=True)
def _a_task_at_a_gate(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, waits_for) VALUES ('join', %s)", [GATE])


def test_it_is_claimed_only_after_its_gate_has_opened(claiming: Claiming, db: psycopg.Connection) -> None:
    assert claiming.claim(Served(["join"]), 10) == []
    assert claiming.run(claim.claim_next(Lane("default", "", "{}", 0), ("join",), "w", **TERMS)) == []
    db.execute("UPDATE tasks SET waits_for = NULL")
    assert [c.name for c in claiming.claim(Served(["join"]), 10)] == ["join"]


def test_it_can_be_cancelled_with_all_others_of_its_name(config: Config, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name) VALUES ('join'), ('other')")
    with Client(config) as client:
        assert client.cancel_tasks(name="join").cancelled == 2
    assert db.execute("SELECT name FROM tasks WHERE state = 'pending'").fetchall() == [("other",)]


def test_a_search_and_the_counts_of_states_find_it(config: Config, db: psycopg.Connection) -> None:
    with Client(config) as client:
        assert [t.name for t in client.search_tasks("state:pending").tasks] == ["join"]
        assert [t.name for t in client.list_tasks(state="pending")] == ["join"]
