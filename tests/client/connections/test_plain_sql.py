"""A row inserted by hand is the same task."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from tasklib import Client
from tests.client.connections.conftest import heard, ids, row_without_id_and_times


def test_a_row_inserted_by_hand_is_the_same_task_and_wakes_a_worker(client: Client, db: Any, listener: Any) -> None:
    url: dict[str, Any] = {"url": "https://example.com/hook"}
    task_id = client.submit_task("webhook.outbound", registered_elsewhere=True, **url)
    expected = row_without_id_and_times(db, task_id)
    assert heard(listener, db) == [""]

    db.execute(f"INSERT INTO tasks (name, kwargs) VALUES ('webhook.outbound', '{json.dumps(url)}')")
    assert heard(listener, db) == [""]
    by_hand = max(ids(db))
    assert by_hand.version == 7
    assert row_without_id_and_times(db, by_hand) == expected


def test_a_key_inserted_by_hand_is_kept_for_a_day_and_known_to_every_way_to_submit(
    client: Client, greet: Any, db: Any
) -> None:
    db.execute("INSERT INTO tasks (name, kwargs, idempotency_key) VALUES ('greet', '{\"name\": \"a\"}', 'k')")
    (by_hand,) = ids(db)
    assert client.submit_task(greet, name="b", idempotency_key="k") == by_hand
    assert row_without_id_and_times(db, by_hand)["idempotency_expires_at"] == timedelta(hours=24)


def test_ids_made_by_the_database_sort_by_time(db: Any) -> None:
    for _ in range(20):
        db.execute("INSERT INTO tasks (name) VALUES ('a')")
    inserted = [row[0] for row in db.execute("SELECT id FROM tasks ORDER BY created_at")]
    assert inserted == sorted(inserted)
    assert {i.version for i in inserted} == {7}
