"""How a search can go on while it is typed, with counts."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.client.suggesting import LOOK


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


@pytest.fixture
def _shop(db: psycopg.Connection) -> None:
    db.execute(
        """INSERT INTO tasks (name, queue, tags, kwargs)
           SELECT 'mail.send', 'mail', '{"customer": 42}', '{"order": {"id": 9001}, "to": "ada"}'
           FROM generate_series(1, 3)"""
    )
    db.execute(
        "INSERT INTO tasks (name, queue, tags, kwargs) VALUES ('report 50%', 'mailing', '{\"region\": \"eu\"}', '{}')"
    )
    db.execute(
        "INSERT INTO tasks (name, state, error, next_retry_at) "
        "VALUES ('x', 'failed', 'ValueError: no', now() + interval '1 h')"
    )


def said(client: Client, text: str) -> list[tuple[str, int | None]]:
    return [(s.text, s.count) for s in client.suggest(text)]


@pytest.mark.usefixtures("_shop")
def test_qualifiers_states_names_and_values_are_suggested_with_their_counts(client: Client) -> None:
    assert said(client, "sta") == [("state:", None)]
    assert said(client, "state:f") == [("state:failed", 1)]
    assert said(client, "state:failed -name:ma") == [("state:failed -name:mail.send", 3)]
    assert said(client, "queue:mai") == [("queue:mail", 3), ("queue:mailing", 1)]
    assert said(client, "tag.") == [("tag.customer:", 3), ("tag.region:", 1)]
    assert said(client, "tag.customer:") == [("tag.customer:42", 3)]
    assert said(client, "tag:cust") == [("tag:customer=", 3)]
    assert said(client, "args.order.id:9") == [("args.order.id:9001", 3)]
    assert said(client, "name:%") == [('name:"report 50%"', 1)]
    assert said(client, "created:<1") == [("created:<1h", None)]
    [cause] = client.suggest("cause:")
    assert client.search_tasks(cause.term).tasks[0].name == "x"


@pytest.mark.usefixtures("_shop")
def test_a_suggestion_says_among_how_many_tasks_it_counted(client: Client) -> None:
    [first, *_] = client.suggest("name:")
    assert (first.term, first.count, first.of) == ("name:mail.send", 3, LOOK)


def test_nothing_is_suggested_for_nonsense(client: Client) -> None:
    assert client.suggest("nonsense:x") == []
    assert client.suggest("x" * 3000) == []
    assert client.suggest('"an open quote') == []
