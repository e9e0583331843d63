"""Signals to durable tasks over HTTP: who may send them, and what is recorded."""

from __future__ import annotations

import tasklib.http
from tests.server.api import Api, refused


def test_a_signal_is_sent_and_audited_and_its_key_counts_once(api: Api) -> None:
    task_id = api.submit(api.ann)
    body = {"name": "approved", "payload": {"by": "ann"}, "key": "k"}
    for _ in range(2):
        answer = api.ann.post(f"/api/v1/tasks/{task_id}/signals", json=body)
        assert (answer.status_code, answer.json()) == (200, {"task_id": task_id, "sent": True})
    sent = api.db.execute("SELECT payload, sent_by FROM signals WHERE task = %s", [task_id]).fetchall()
    assert [payload for payload, _ in sent] == [{"by": "ann"}]
    assert sent[0][1].startswith("token:ann")
    audited = "SELECT count(*) FROM audit WHERE action = 'task.signal' AND target = %s"
    assert api.db.execute(audited, [task_id]).fetchone() == (1,)


def test_a_submitter_sends_signals_to_its_own_tasks_only(api: Api) -> None:
    task_id = api.submit(api.ann)
    refused(api.bob.post(f"/api/v1/tasks/{task_id}/signals", json={"name": "approved"}), 404, "task_not_found")
    refused(api.viewer.post(f"/api/v1/tasks/{task_id}/signals", json={"name": "approved"}), 403, "role_missing")
    assert api.db.execute("SELECT count(*) FROM signals WHERE task = %s", [task_id]).fetchone() == (0,)


def test_the_records_of_a_durable_task_are_listed_without_their_values(api: Api) -> None:
    task_id = api.submit(api.ann)
    api.db.execute(
        "INSERT INTO steps (task, name, result, token) VALUES (%s, 'charge', '{\"value\": 5}', 1)", [task_id]
    )
    answer = api.viewer.get(f"/api/v1/tasks/{task_id}/steps")
    assert [(step["kind"], step["name"]) for step in answer.json()["items"]] == [("step", "charge")]
    assert "value" not in answer.text


def test_a_client_over_http_sends_signals(api: Api) -> None:
    task_id = api.submit(api.operator)
    token = api.client.create_token("sender", roles=["operator"]).text
    with tasklib.http.HttpClient(str(api.running), token=token) as client:
        assert client.signal(task_id, "approved", {"by": "ann"}, key="k")
        api.end(task_id, "cancelled")
        assert not client.signal(task_id, "approved")
