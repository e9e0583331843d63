"""Tasks over HTTP: submitted, listed, looked at, cancelled and replayed as through the Python API."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from tasklib import task
from tasklib.tasks.ids import new_id
from tests.server.api import Api, refused, walked

TASKS = "/api/v1/tasks"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


# ---- editing ----


def test_a_waiting_task_is_changed_and_masked_values_stay(api: Api) -> None:
    parameters = {"to": "ann", "password": "hunter2"}
    url = f"{TASKS}/{api.submit(api.ann, task_type='api_edit', parameters=parameters)}"
    shown = api.ann.get(url).json()["parameters"]
    assert shown["password"] != "hunter2"
    changes = {"parameters": {**shown, "to": "bob"}, "priority": 7, "queue": "slow", "delay": 3600, "tags": {"a": 1}}
    assert api.ann.patch(url, json=changes).json()["status"] == "pending"
    found = api.client.get_task(url.rpartition("/")[2])
    assert (found.kwargs, found.priority, found.queue) == ({"to": "bob", "password": "hunter2"}, 7, "slow")
    assert found.scheduled_at > datetime.now(UTC) + timedelta(minutes=50)
    assert found.tags == {"a": 1}


def test_what_cannot_be_edited_is_refused(api: Api) -> None:
    task_id = api.submit(api.ann, task_type="api_edit")
    url = f"{TASKS}/{task_id}"
    refused(api.bob.patch(url, json={"priority": 1}), 404, "task_not_found")
    refused(api.ann.patch(f"{TASKS}/{uuid4()}", json={"parameters": {}}), 404, "task_not_found")
    refused(api.ann.patch(url, json={"priority": 101}), 422, "invalid_option")
    refused(api.ann.patch(url, json={"idempotency_key": "a"}), 422, "invalid_request")
    refused(api.ann.patch(url, json={"delay": 5, "delay_seconds": 5}), 422, "invalid_request")
    api.end(task_id, "completed")
    refused(api.ann.patch(url, json={"priority": 1}), 409, "task_not_editable")


def test_edited_parameters_are_checked_if_the_function_is_known(api: Api) -> None:
    @task(name="api_edit_checked")
    def checked(number: int) -> None: ...

    url = f"{TASKS}/{api.submit(api.ann, task_type='api_edit_checked', parameters={'number': 1})}"
    refused(api.ann.patch(url, json={"parameters": {"number": "many"}}), 422, "invalid_arguments")
    assert api.ann.patch(url, json={"parameters": {"number": 2}}).status_code == 200
    assert api.ann.get(url).json()["parameters"] == {"number": 2}


# ---- submitting ----


def test_submissions_with_one_merge_key_become_one_task_or_are_refused(api: Api) -> None:
    body = {"task_type": "api_feed", "parameters": {"user": 7, "n": 1}, "debounce": 60, "merge_key": ["user"]}
    first = api.ann.post(TASKS, json=body)
    again = api.ann.post(TASKS, json={**body, "parameters": {"user": 7, "n": 2}})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["task_id"] == first.json()["task_id"]
    shown = api.ann.get(f"{TASKS}/{first.json()['task_id']}").json()
    assert (shown["parameters"], shown["merge_key"], shown["merge_while"]) == ({"user": 7, "n": 2}, "[7]", "pending")
    # Another token of the same role has keys of its own.
    assert api.bob.post(TASKS, json=body).status_code == 201
    strict = {"task_type": "api_feed", "unique": "unfinished", "on_duplicate": "raise"}
    kept = api.ann.post(TASKS, json=strict).json()
    problem = refused(api.ann.post(TASKS, json=strict), 409, "duplicate_task")
    assert (problem["task_id"], problem["state"]) == (kept["task_id"], "pending")
    refused(api.ann.post(TASKS, json={**strict, "debounce": 5}), 422, "invalid_option")


def test_a_submission_to_a_full_queue_is_refused_with_the_time_to_try_again(api: Api) -> None:
    api.client.bound_queue("api_full", max_wait=60)
    try:
        api.db.execute("INSERT INTO tasks (name, queue, scheduled_at) VALUES ('a', 'api_full', now() - interval '1 h')")
        answer = api.ann.post(TASKS, json={"task_type": "a", "queue": "api_full"})
        problem = refused(answer, 429, "queue_full")
        assert (problem["queue"], problem["retry_after"], answer.headers["retry-after"]) == ("api_full", 60, "60")
        assert api.ann.post(TASKS, json={"task_type": "a"}).status_code == 201
    finally:
        api.client.bound_queue("api_full")


def test_a_task_is_stored_with_everything_that_was_said(api: Api) -> None:
    body = {
        "task_type": "api_video",
        "parameters": {"video": 17, "nested": {"a": [1, None, "ü"]}},
        "priority": "high",
        "queue": "media",
        "required_capabilities": ["gpu", "cuda"],
        "timeout_seconds": 60,
        "max_retries": 1,
        "idempotency_key": "video-17",
        "delay": 3600,
        "tags": {"customer": "acme"},
    }
    answer = api.ann.post(TASKS, json=body, headers={"traceparent": TRACE, "tracestate": "a=b"})
    assert answer.status_code == 201
    said = answer.json()
    assert said == {"task_id": said["task_id"], "status": "pending", "is_new": True, "queue_position": None}
    stored = api.client.get_task(said["task_id"])
    assert stored is not None
    assert (stored.name, stored.kwargs, stored.priority) == ("api_video", body["parameters"], 100)
    assert (stored.queue, stored.required_capabilities) == ("media", ["cuda", "gpu"])
    assert (stored.timeout_seconds, stored.max_retries, stored.tags) == (60, 1, {"customer": "acme"})
    assert stored.trace_context == {"traceparent": TRACE, "tracestate": "a=b"}
    assert stored.scheduled_at - stored.created_at == timedelta(hours=1)
    assert stored.submitted_by == api.token_ids["ann"]


def test_the_least_is_a_name_and_defaults_are_those_of_the_python_api(api: Api) -> None:
    over_http = api.client.get_task(api.submit(task_type="api_least"))
    direct = api.client.get_task(api.client.submit_task("api_least", registered_elsewhere=True))
    assert over_http is not None
    assert direct is not None
    own = {"id", "created_at", "scheduled_at", "submitted_by"}
    assert over_http.model_dump(exclude=own) == direct.model_dump(exclude=own)


def test_the_position_in_line_counts_who_goes_before(api: Api) -> None:
    positions = [api.ann.post(TASKS, json={"task_type": "api_line"}).json()["queue_position"] for _ in range(3)]
    first = api.ann.post(TASKS, json={"task_type": "api_line", "priority": 100}).json()["queue_position"]
    unasked = api.ann.post(TASKS, json={"task_type": "api_line"}, params={"queue_position": False}).json()
    assert (positions, first, unasked["queue_position"]) == ([1, 2, 3], 1, None)


def test_a_start_time_and_both_names_of_a_delay(api: Api) -> None:
    at = datetime(2040, 1, 1, tzinfo=UTC)
    stored = api.client.get_task(api.submit(scheduled_at=at.isoformat()))
    assert stored is not None
    assert stored.scheduled_at == at
    delayed = api.client.get_task(api.submit(delay_seconds=60))
    assert delayed is not None
    assert delayed.scheduled_at - delayed.created_at == timedelta(seconds=60)


PAST: dict[str, Any] = {"task_type": "api_past", "scheduled_at": "2001-01-01T00:00:00Z", "priority": -10}


@pytest.mark.parametrize("given", ["nothing", "idempotency_key", "task_id"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_start_time_in_the_past_buys_no_priority(api: Api, is_batch: bool, given: str) -> None:
    more = {"nothing": {}, "idempotency_key": {given: "k"}, "task_id": {given: str(new_id())}}[given]
    if is_batch:
        made = api.ann.post(f"{TASKS}/batch", json={"tasks": [{**PAST, **more}, PAST, PAST]}).json()["tasks"]
        ids = [item["task_id"] for item in made]
    else:
        ids = [api.submit(api.ann, **{**PAST, **more})]
    for task_id in ids:
        shown = api.ann.get(f"{TASKS}/{task_id}").json()
        assert shown["scheduled_at"] >= shown["created_at"]
        assert (shown["priority"], shown["effective_priority"]) == (-10, -10)


def test_an_explanation_tells_a_submitter_nothing_of_workers_and_names_of_others(api: Api) -> None:
    columns = "id, host, pid, version, capacity, names, queues, capabilities"
    for number, (names, queues, capabilities) in enumerate(
        [("{api_secret_plan,api_mine2}", None, "{}"), ("{api_mine}", "{secret_queue}", "{secret_gpu}")]
    ):
        api.db.execute(
            f"INSERT INTO workers ({columns}) VALUES (%s, 'secret-host', 4711, '1', 1, %s, %s, %s)".encode(),
            [f"secret-worker-{number}", names, queues, capabilities],
        )
    hidden = ("secret", "4711", "api_mine2")
    for body in (
        {"task_type": "api_mine"},
        {"task_type": "api_mine", "queue": "nowhere"},
        {"task_type": "api_secret_plam"},
        {"task_type": "api_mine2", "required_capabilities": ["gpu"]},
    ):
        task_id = api.submit(api.ann, **body)
        said = api.ann.get(f"{TASKS}/{task_id}/explain").text
        assert not [word for word in hidden if word in said.replace(body["task_type"], "")], said
        assert "secret-worker" in api.viewer.get(f"{TASKS}/{task_id}/explain").text
    task_id = api.submit(api.ann, task_type="api_mine2")
    assert "secret-worker-0" not in api.ann.get(f"{TASKS}/{task_id}/explain").text
    api.begin(task_id, "secret-worker-0")
    said = api.ann.get(f"{TASKS}/{task_id}/explain").text
    assert "secret-worker-0" in said, "which worker runs it, the task says itself"
    assert "secret-host" not in said


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "task_type"),
        ({"task_type": ""}, "task_type"),
        ({"task_type": "a\x00b"}, "task_type"),
        ({"task_type": "x" * 501}, "task_type"),
        ({"task_type": "a", "priority": 101}, "priority"),
        ({"task_type": "a", "priority": "urgent"}, "priority"),
        ({"task_type": "a", "priority": True}, "priority"),
        ({"task_type": "a", "parameters": [1]}, "parameters"),
        ({"task_type": "a", "parameters": {"a": "\x00"}}, "a: contains the character"),
        ({"task_type": "a", "timeout_seconds": 0}, "timeout_seconds"),
        ({"task_type": "a", "timeout_seconds": "60"}, "timeout_seconds"),
        ({"task_type": "a", "max_retries": 2**31}, "max_retries"),
        ({"task_type": "a", "delay": -1}, "delay"),
        ({"task_type": "a", "delay": 1, "delay_seconds": 1}, "delay and delay_seconds"),
        ({"task_type": "a", "delay": 1, "scheduled_at": "2040-01-01T00:00:00Z"}, "delay and scheduled_at"),
        ({"task_type": "a", "scheduled_at": "2040-01-01T00:00:00"}, "scheduled_at"),
        ({"task_type": "a", "required_capabilities": "gpu"}, "required_capabilities"),
        ({"task_type": "a", "tags": {"a": "\x00"}}, "tags"),
        ({"task_type": "a", "retries": 3}, "retries"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_stored(api: Api, body: dict[str, Any], where: str) -> None:
    answer = api.ann.post(TASKS, json=body)
    assert answer.status_code == 422, answer.text
    assert where in answer.json()["detail"]
    refused(api.ann.post(f"{TASKS}/batch", json={"tasks": [{"task_type": "a"}, body]}), 422, answer.json()["code"])
    assert api.db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


def test_what_is_no_number_in_json_is_refused(api: Api) -> None:
    for text in ('{"task_type": "a", "parameters": {"x": NaN}}', '{"task_type": "a", "tags": {"x": 1e999}}'):
        answer = api.ann.post(TASKS, content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), answer.text


def test_arguments_are_checked_where_the_server_knows_the_function(api: Api) -> None:
    @task(name="api_known", queue="known", max_retries=7)
    def known(count: int) -> None: ...

    problem = refused(
        api.ann.post(TASKS, json={"task_type": "api_known", "parameters": {"count": "many"}}), 422, "invalid_arguments"
    )
    assert problem["field"] == "count"
    stored = api.client.get_task(api.submit(task_type="api_known", parameters={"count": 3}))
    assert stored is not None
    assert (stored.queue, stored.max_retries) == ("known", 7), "the decorator's defaults hold"


def test_a_malformed_trace_is_as_if_it_were_not_there_and_the_body_goes_first(api: Api) -> None:
    answer = api.ann.post(TASKS, json={"task_type": "api_any"}, headers={"traceparent": "nonsense"})
    stored = api.client.get_task(answer.json()["task_id"])
    assert stored is not None
    assert stored.trace_context is None
    body = {"task_type": "api_any", "trace_context": {"traceparent": TRACE}}
    task_id = api.ann.post(TASKS, json=body, headers={"traceparent": TRACE.replace("4b", "5b")}).json()["task_id"]
    assert api.ann.get(f"{TASKS}/{task_id}").json()["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_trace_is_made_when_none_came(api: Api) -> None:
    task_id = api.submit(api.ann, task_type="api_any")
    assert api.ann.get(f"{TASKS}/{task_id}").json()["trace_id"] == task_id.replace("-", "")


def test_arguments_of_a_known_function_are_read_as_json(api: Api) -> None:
    @task(name="api_typed")
    def typed(raw: bytes, password: SecretStr) -> None: ...

    given = {"raw": "aGk=", "password": {"$secret": "hunter2"}}
    stored = api.client.get_task(api.submit(task_type="api_typed", parameters=given))
    assert stored is not None
    assert stored.kwargs == given
    assert typed.arguments.from_json(json.dumps(given)) == {"raw": b"hi", "password": SecretStr("hunter2")}


# ---- once ----


def test_a_known_key_answers_with_the_first_task_by_whichever_interface_it_came(api: Api) -> None:
    [(by_sql,)] = api.db.execute(
        "INSERT INTO tasks (name, kwargs, idempotency_key) VALUES ('api_once', '{}', 'k1') RETURNING id::text"
    )
    body = {"task_type": "api_once", "idempotency_key": "k1"}
    again = api.operator.post(TASKS, json=body)
    assert again.status_code == 200
    assert again.json() == {"task_id": by_sql, "status": "pending", "is_new": False, "queue_position": 1}
    direct = api.client.submit_task("api_once", registered_elsewhere=True, idempotency_key="k1")
    assert str(direct) == by_sql
    api.end(by_sql)
    assert api.operator.post(TASKS, json=body).json()["status"] == "completed"
    # Viewers and submitters have keys of their own: another token's key is neither shown nor taken.
    for submitter in (api.ann, api.bob, api.watcher):
        own = submitter.post(TASKS, json=body)
        assert (own.status_code, own.json()["is_new"]) == (201, True)
        assert submitter.post(TASKS, json=body).json()["task_id"] == own.json()["task_id"]
        assert api.viewer.get(f"{TASKS}/{own.json()['task_id']}").json()["idempotency_key"] == "k1"


@pytest.mark.parametrize("more", [{"parameters": {"n": 2}}, {"queue": "other"}, {"priority": 7}, {"tags": {"a": 1}}])
def test_an_id_sent_again_with_something_else_is_refused(api: Api, more: dict[str, Any]) -> None:
    body = {"task_type": "api_given", "parameters": {"n": 1}, "task_id": str(new_id())}
    assert api.ann.post(TASKS, json=body).status_code == 201
    assert api.ann.post(TASKS, json=body).status_code == 201, "a repeated request"
    refused(api.ann.post(TASKS, json={**body, **more}), 422, "invalid_option")
    batch = {"tasks": [{"task_type": "api_given"}, {**body, **more}]}
    refused(api.ann.post(f"{TASKS}/batch", json=batch), 422, "invalid_option")
    assert api.db.execute("SELECT kwargs, queue, priority, tags FROM tasks").fetchall() == [
        ({"n": 1}, "default", 0, {})
    ]


def test_a_batch_keeps_its_order_and_says_what_was_there_before(api: Api) -> None:
    first = api.submit(api.ann, task_type="api_batch", idempotency_key="k")
    items = [{"task_type": "api_batch", "parameters": {"n": n}} for n in range(3)]
    items.insert(1, {"task_type": "api_batch", "idempotency_key": "k"})
    answer = api.ann.post(f"{TASKS}/batch", json={"tasks": items})
    assert answer.status_code == 201
    stored = answer.json()["tasks"]
    assert [s["is_new"] for s in stored] == [True, False, True, True]
    assert stored[1]["task_id"] == first
    numbers = [api.ann.get(f"{TASKS}/{s['task_id']}").json()["parameters"].get("n") for s in stored]
    assert numbers == [0, None, 1, 2]


def test_a_batch_is_neither_empty_nor_too_large(api: Api) -> None:
    refused(api.ann.post(f"{TASKS}/batch", json={"tasks": []}), 422, "invalid_request")
    many = {"tasks": [{"task_type": "a"}] * 1001}
    refused(api.ann.post(f"{TASKS}/batch", json=many), 413, "batch_too_large")
    assert api.ann.post(f"{TASKS}/batch", json={"tasks": many["tasks"][:1000]}).status_code == 201


def test_a_batch_says_which_item_is_wrong_and_stores_none(api: Api) -> None:
    @task(name="api_counted")
    def counted(count: int) -> None: ...

    good = {"task_type": "api_counted", "parameters": {"count": 1}}
    for bad in ({"task_type": "a", "priority": "urgent"}, {"task_type": "api_counted", "parameters": {"count": "x"}}):
        answer = api.ann.post(f"{TASKS}/batch", json={"tasks": [good, good, bad, good]})
        assert answer.status_code == 422
        assert "item 2" in answer.json()["detail"]
    assert api.db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


# ---- one task ----


def test_a_task_is_shown_with_all_about_it(api: Api) -> None:
    task_id = api.submit(api.ann, parameters={"a": 1}, priority="low", tags={"t": 1})
    shown = api.ann.get(f"{TASKS}/{task_id}").json()
    assert (shown["task_id"], shown["task_type"], shown["status"]) == (task_id, "api_any", "pending")
    assert (shown["priority"], shown["level"], shown["effective_level"]) == (-10, "low", "low")
    assert (shown["parameters"], shown["tags"], shown["result"], shown["error"]) == ({"a": 1}, {"t": 1}, None, None)
    assert shown["submitted_by"] == api.token_ids["ann"]
    api.db.execute("UPDATE tasks SET scheduled_at = now() - interval '700 seconds' WHERE id = %s", [task_id])
    aged = api.ann.get(f"{TASKS}/{task_id}").json()
    assert (aged["priority"], aged["effective_priority"], aged["effective_level"]) == (-10, 0, "medium")
    api.begin(task_id)
    assert api.ann.get(f"{TASKS}/{task_id}").json()["assigned_worker_id"] == "w1"
    api.end(task_id, value={"rows": 3})
    done = api.ann.get(f"{TASKS}/{task_id}").json()
    assert (done["status"], done["result"]) == ("completed", {"rows": 3})
    assert done["completed_at"]


def test_an_error_has_its_last_line_apart(api: Api) -> None:
    task_id = api.submit()
    api.end(task_id, "dead_letter", error="Traceback ...\nValueError: no")
    error = api.viewer.get(f"{TASKS}/{task_id}").json()["error"]
    assert error == {"message": "ValueError: no", "traceback": "Traceback ...\nValueError: no", "retriable": False}


def test_an_unknown_task_is_404_and_no_uuid_422(api: Api) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/replay"), ("GET", "/explain"), ("GET", "/result")):
        refused(api.operator.request(method, f"{TASKS}/{uuid4()}{path}"), 404, "task_not_found")
        refused(api.operator.request(method, f"{TASKS}/17{path}"), 422, "invalid_request")


def test_cancelling_what_waits_what_runs_and_what_is_finished(api: Api) -> None:
    waiting, running, done = api.submit(), api.submit(), api.submit()
    api.begin(running)
    api.end(done)
    answers = [api.operator.delete(f"{TASKS}/{i}") for i in (waiting, running, done)]
    assert [a.status_code for a in answers] == [200, 202, 200]
    assert [a.json()["status"] for a in answers] == ["cancelled", "running", "completed"]
    assert api.viewer.get(f"{TASKS}/{running}").json()["cancel_requested_at"]
    actors = {r.actor for r in api.client.audit(limit=2)}
    assert all(actor.startswith("token:operator (") for actor in actors)


def test_replaying_what_is_finished_and_what_is_not(api: Api) -> None:
    task_id = api.submit()
    refused(api.operator.post(f"{TASKS}/{task_id}/replay"), 409, "task_not_finished")
    api.end(task_id, "dead_letter", error="no")
    assert api.operator.post(f"{TASKS}/{task_id}/replay").json() == {"task_id": task_id, "status": "pending"}
    assert api.viewer.get(f"{TASKS}/{task_id}").json()["status"] == "pending"


def test_cancelling_by_filter_counts_first_and_wants_a_filter(api: Api) -> None:
    for n in range(4):
        api.submit(task_type="api_bulk", tags={"odd": n % 2})
    api.begin(api.submit(task_type="api_bulk", tags={"odd": 1}))
    refused(api.operator.post(f"{TASKS}/cancel", json={}), 422, "invalid_option")
    refused(api.operator.post(f"{TASKS}/cancel", json={"state": ["completed"]}), 422, "invalid_option")
    choice = {"name": "api_bulk", "tags": {"odd": 1}}
    counted = api.operator.post(f"{TASKS}/cancel", json={**choice, "dry_run": True}).json()
    assert counted == {"cancelled": 2, "asked": 1, "dry_run": True}
    assert api.operator.post(f"{TASKS}/cancel", json=choice).json() == {**counted, "dry_run": False}
    assert len(walked(api, state="cancelled")) == 2
    everything = api.operator.post(f"{TASKS}/cancel", json={"everything": True}).json()
    assert everything["cancelled"] == 2


def test_an_explanation_says_why_it_waits(api: Api) -> None:
    task_id = api.submit(api.ann, queue="explained")
    api.client.pause(queue="explained")
    said = api.ann.get(f"{TASKS}/{task_id}/explain").json()
    assert said["task_id"] == task_id
    assert "queue_paused" in [r["code"] for r in said["reasons"]]
    assert said["position"] is None
    api.client.resume(queue="explained")
    assert api.ann.get(f"{TASKS}/{task_id}/explain").json()["reasons"][0]["code"] == "no_worker"


# ---- whose ----


def test_a_submitter_knows_only_its_own_tasks(api: Api) -> None:
    own, other = api.submit(api.ann), api.submit(api.bob)
    direct = str(api.client.submit_task("api_any", registered_elsewhere=True))
    for task_id in (other, direct):
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/replay"), ("GET", "/explain"), ("GET", "/result")):
            refused(api.ann.request(method, f"{TASKS}/{task_id}{path}"), 404, "task_not_found")
        refused(api.ann.get(f"{TASKS}/{task_id}/events"), 404, "task_not_found")
    assert [t["task_id"] for t in api.ann.get(TASKS).json()["tasks"]] == [own]
    assert api.ann.post(f"{TASKS}/cancel", json={"everything": True}).json()["cancelled"] == 1
    assert {str(t.id) for t in api.client.list_tasks(state="pending")} == {other, direct}


def test_who_sees_everything_changes_only_its_own(api: Api) -> None:
    other = api.submit(api.bob)
    assert api.watcher.get(f"{TASKS}/{other}").status_code == 200
    refused(api.watcher.delete(f"{TASKS}/{other}"), 404, "task_not_found")
    assert api.watcher.post(f"{TASKS}/cancel", json={"everything": True}).json()["cancelled"] == 0
    api.end(other)
    refused(api.watcher.post(f"{TASKS}/{other}/replay"), 404, "task_not_found")


def test_a_viewer_changes_nothing_and_a_stranger_sees_nothing(api: Api) -> None:
    task_id = UUID(api.submit())
    refused(api.viewer.post(TASKS, json={"task_type": "a"}), 403, "role_missing")
    refused(api.viewer.delete(f"{TASKS}/{task_id}"), 403, "role_missing")
    refused(api.running.http.get(f"{TASKS}/{task_id}"), 401, "token_missing")


# ---- rows that were inserted by hand ----


@pytest.mark.parametrize("state", ["pending", "running", "completed", "cancelled", "dead_letter"])
def test_a_row_with_nulls_of_json_is_answered(api: Api, state: str) -> None:
    task_id = api.submit(by=api.ann, task_type="api_nulls")
    if state == "running":
        api.begin(task_id)
    elif state != "pending":
        api.end(task_id, state)
    api.db.execute("UPDATE tasks SET result = 'null', history = 'null', progress = 'null', trace_context = 'null'")
    answer = api.ann.get(f"{TASKS}/{task_id}")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["progress"]) == (state, None)
    [listed] = api.ann.get(TASKS).json()["tasks"]
    assert listed["task_id"] == str(task_id)
    is_over = state not in ("pending", "running")
    assert api.ann.get(f"{TASKS}/{task_id}/result").status_code == (200 if is_over else 202)
