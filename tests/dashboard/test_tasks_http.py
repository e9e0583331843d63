"""The screens about tasks without a browser: who sees and does what, odd addresses, what is hidden, hostile texts."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from tasklib import Client, Config, task
from tasklib.server.dashboard.timeline import progress_of, steps
from tasklib.server.redaction import Redaction
from tasklib.tasks.masking import MASK
from tests.dashboard.conftest import HTML
from tests.dashboard.filling import HOSTILE, attempt, hostile_row, row
from tests.server.conftest import Running, bearer, running

AN_ID = "019345ab-1234-7abc-8def-0123456789ab"


def text_of(page: httpx.Response) -> str:
    """What a reader reads."""
    body = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]*>", " ", page.text)
    return " ".join(html.unescape(body).split())


def post(web: Running, path: str, headers: Any = None, **fields: Any) -> httpx.Response:
    """A form of ours, filled in by somebody without a session."""
    csrf = web.app.state.sessions.csrf(None)
    return web.http.post(path, data={"csrf": csrf, **fields}, headers=headers)


# ---- roles ----


def test_a_viewer_sees_everything_and_no_button(config: Config, client: Client, db: psycopg.Connection) -> None:
    token = client.create_token("v", roles=["viewer"]).text
    task_id = row(db, "dead_letter", error="boom")
    group = client.dead_letter_groups()[0].fingerprint
    with running(config) as web:
        for path in ("/tasks", f"/tasks/{task_id}", "/dead-letters", f"/dead-letters/{group}"):
            page = web.http.get(path, headers={**HTML, **bearer(token)})
            assert page.status_code == 200
            assert "send_email" in page.text
            assert not re.search(r"<button[^>]*name=\"action\"|>Replay<|>Purge<|>Cancel<|Edit and replay", page.text)
        assert web.http.get(f"/tasks/{task_id}/edit", headers={**HTML, **bearer(token)}).status_code == 403
        assert "reveal" not in web.http.get(f"/tasks/{task_id}", headers={**HTML, **bearer(token)}).text
        for path, fields in (
            ("/tasks/act", {"action": "replay", "id": task_id, "confirmed": "yes"}),
            (f"/tasks/{task_id}/replay", {}),
            (f"/tasks/{task_id}/cancel", {}),
            (f"/tasks/{task_id}/run", {}),
            (f"/tasks/{task_id}/edit", {"arguments": "{}"}),
            (f"/dead-letters/{group}", {"action": "purge", "scope": "group"}),
        ):
            refused = post(web, path, bearer(token), **fields)
            assert (refused.status_code, refused.json()["code"]) == (403, "role_missing"), path
    assert [t.state for t in client.list_tasks()] == ["dead_letter"]


def test_a_submitter_sees_its_own_tasks_only(config: Config, client: Client, db: psycopg.Connection) -> None:
    new = client.create_token("s", roles=["submitter"])
    theirs = row(db, "dead_letter", name="theirs", error="their secret", submitted_by=str(uuid4()))
    mine = row(db, "dead_letter", name="mine", error="my error", submitted_by=str(new.info.id))
    headers = {**HTML, **bearer(new.text)}
    with running(config) as web:
        for path in ("/tasks", "/tasks?q=state:dead_letter", "/dead-letters"):
            text = web.http.get(path, headers=headers).text
            assert "mine" in text, path
            assert "their" not in text, path
        assert web.http.get(f"/tasks/{mine}", headers=headers).status_code == 200
        assert web.http.get(f"/tasks/{theirs}", headers=headers).status_code == 404
        assert post(web, f"/tasks/{mine}/replay", bearer(new.text)).json()["code"] == "role_missing"


# ---- addresses and forms that make no sense ----


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/tasks?q=state:nonsense", 422),
        ("/tasks?q=" + "x" * 3000, 422),
        ("/tasks?q=%00", 422),
        ("/tasks?older=not-an-id", 422),
        ("/tasks?look=0", 422),
        ("/tasks?look=100000000", 422),
        (f"/tasks?older={AN_ID}&newer={AN_ID}", 200),
        ("/tasks/not-an-id", 422),
        (f"/tasks/{AN_ID}", 404),
        (f"/tasks/{AN_ID}/edit", 404),
        ("/dead-letters/NOT-A-FINGERPRINT", 422),
        ("/dead-letters/abcdef", 200),
        (f"/dead-letters/abcdef?at=2026-01-01T00:00:00Z&after={AN_ID}", 200),
        ("/dead-letters/abcdef?at=2026-01-01T00:00:00&after=x", 422),
    ],
)
def test_an_odd_address_is_answered_with_a_page(web: Running, path: str, status: int) -> None:
    page = web.http.get(path)
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (status, "text/html")


def test_odd_forms_change_nothing(web: Running, client: Client, db: psycopg.Connection) -> None:
    task_id = row(db)
    assert post(web, "/tasks/act", action="cancel").status_code == 303, "nothing selected"
    assert post(web, "/tasks/act", action="delete", id=task_id).status_code == 422
    assert post(web, "/tasks/act", action="cancel", id="x").status_code == 422
    assert post(web, "/tasks/act", action="cancel", id=task_id).status_code == 200, "it asks first"
    assert post(web, "/tasks/act", action="cancel_all", q="state:nonsense", confirmed="yes").status_code == 303
    assert post(web, f"/tasks/{task_id}/replay").status_code == 303, "not finished"
    assert post(web, "/dead-letters/abcdef", action="purge").status_code == 303
    assert web.http.post("/tasks/act", data={"action": "cancel", "id": task_id, "confirmed": "yes"}).status_code == 403
    assert [t.state for t in client.list_tasks()] == ["pending"]


def test_a_task_that_waits_for_its_time_can_be_run_now(web: Running, client: Client, db: psycopg.Connection) -> None:
    later = row(db)
    db.execute("UPDATE tasks SET scheduled_at = now() + interval '1 h'")
    assert "Run now" in web.http.get(f"/tasks/{later}", headers=HTML).text
    assert post(web, f"/tasks/{later}/run", confirmed="yes").status_code == 303
    found = client.get_task(later)
    assert found is not None
    assert found.scheduled_at <= datetime.now(UTC)
    assert "Run now" not in web.http.get(f"/tasks/{later}", headers=HTML).text


def test_what_all_that_match_would_be_is_counted_up_to_a_limit(web: Running, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name) SELECT 'many' FROM generate_series(1, 2100)")
    row(db, "completed", name="many")
    page = post(web, "/tasks/act", action="cancel_all", q="name:many")
    assert "Cancel 2,000+ tasks?" in text_of(page)
    assert "Pending 500+" in text_of(web.http.get("/tasks"))
    page = post(web, "/tasks/act", action="replay_all", q="name:many")
    assert "Replay 1 task?" in text_of(page)
    assert post(web, "/tasks/act", action="cancel_all", q="name:many", confirmed="yes").status_code == 303
    states = dict(db.execute("SELECT state, count(*) FROM tasks GROUP BY 1").fetchall())
    assert states == {"cancelled": 2100, "completed": 1}


def test_more_than_one_call_may_change_is_gone_on_with(
    web: Running, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.client.searching.MOST_AT_ONCE", 20)
    monkeypatch.setattr("tasklib.client.searching.BATCH", 10)
    db.execute("INSERT INTO tasks (name) SELECT 'many' FROM generate_series(1, 30)")
    page = post(web, "/tasks/act", action="cancel_all", q="name:many", confirmed="yes")
    assert "Cancelled 20 tasks. More tasks match. Continue with the older ones?" in text_of(page)
    older = re.search(r'name="older" value="([^"]+)"', page.text)
    assert older
    done = post(web, "/tasks/act", action="cancel_all", q="name:many", confirmed="yes", older=older[1])
    assert done.status_code == 303
    assert db.execute("SELECT DISTINCT state FROM tasks").fetchall() == [("cancelled",)]


def test_a_search_that_ended_early_says_so(web: Running, db: psycopg.Connection) -> None:
    row(db, "completed", name="needle")
    db.execute("INSERT INTO tasks (name) SELECT 'hay' FROM generate_series(1, 30)")
    page = web.http.get("/tasks?q=name:needle&look=10")
    assert "Searched the newest 10 tasks" in text_of(page)
    assert "look at 100" in text_of(page)
    assert "needle" in text_of(web.http.get("/tasks?q=name:*edl*&look=100"))


# ---- edit and replay ----


def test_a_secret_argument_is_hidden_and_stays_when_the_others_are_edited(
    web: Running, client: Client, db: psycopg.Connection
) -> None:
    @task(name="dashboard_secret")
    def sign_in(user: str, key: SecretStr) -> None: ...

    task_id = client.submit_task(sign_in, user="ann", key="hunter2")
    for path in (f"/tasks/{task_id}", f"/tasks/{task_id}/edit"):
        page = web.http.get(path, headers=HTML)
        assert page.status_code == 200
        assert "hunter2" not in page.text
    assert "hunter2" not in web.http.get(f"/api/v1/tasks/{task_id}").text
    hidden = json.dumps({"user": "bob", "key": {"$secret": MASK}})
    assert post(web, f"/tasks/{task_id}/edit", arguments=hidden).status_code in (200, 303)
    rows = db.execute("SELECT kwargs FROM tasks ORDER BY id").fetchall()
    assert rows[-1][0] == {"user": "bob", "key": {"$secret": "hunter2"}}


def test_arguments_are_checked_if_the_function_is_known(web: Running, client: Client) -> None:
    @task(name="dashboard_edit_checked")
    async def checked(number: int) -> None: ...

    task_id = client.submit_task(checked, number=1)
    refused = post(web, f"/tasks/{task_id}/edit", arguments='{"number": "many"}', queue="default", priority="0")
    assert refused.status_code == 422
    assert "number" in text_of(refused)
    for wrong in ({"arguments": "[]"}, {"arguments": "{}", "priority": "high"}, {"arguments": "{", "queue": "x" * 600}):
        assert post(web, f"/tasks/{task_id}/edit", **wrong).status_code == 422
    assert len(client.list_tasks()) == 1
    done = post(web, f"/tasks/{task_id}/edit", arguments='{"number": 2}', queue="other", priority="7")
    assert done.status_code == 303
    made = client.get_task(done.headers["location"].rpartition("/")[2])
    assert made is not None
    assert (made.kwargs, made.queue, made.priority) == ({"number": 2}, "other", 7)


def test_a_waiting_task_is_changed_in_place(web: Running, client: Client, db: psycopg.Connection) -> None:
    task_id = row(db, "pending", kwargs={"to": "ann", "password": "hunter2"}, tags={"batch": 1})
    form = web.http.get(f"/tasks/{task_id}/edit", headers=HTML)
    assert "Change this task" in text_of(form)
    assert "hunter2" not in form.text
    fields = {"in_place": "true", "queue": "slow", "priority": "9", "max_retries": "7", "timeout_seconds": "33"}
    fields |= {"arguments": json.dumps({"to": "bob", "password": MASK}), "tags": '{"batch": 2}', "due": "2h"}
    assert post(web, f"/tasks/{task_id}/edit", **fields).status_code == 303
    found = client.get_task(task_id)
    assert found is not None
    assert (found.kwargs, found.tags) == ({"to": "bob", "password": "hunter2"}, {"batch": 2})
    assert (found.queue, found.priority, found.max_retries, found.timeout_seconds) == ("slow", 9, 7, 33)
    assert found.scheduled_at > datetime.now(UTC)
    assert [(r.action, r.details["arguments"]) for r in client.audit(target=task_id)] == [("task.edit", ["to"])]
    assert len(client.list_tasks()) == 1


def test_a_form_that_is_sent_as_it_came_changes_nothing(web: Running, client: Client, db: psycopg.Connection) -> None:
    task_id = row(db, "failed", kwargs={"to": "ann", "token": "hunter2"}, tags={"batch": 1})
    before = db.execute("SELECT t::text FROM tasks AS t").fetchall()
    page = web.http.get(f"/tasks/{task_id}/edit", headers=HTML).text
    inputs = re.findall(r'<input[^>]* name="(\w+)" value="([^"]*)"', page)
    areas = re.findall(r'(?s)<textarea[^>]* name="(\w+)"[^>]*>(.*?)</textarea>', page)
    fields = {name: html.unescape(value) for name, value in [*inputs, *areas]}
    assert fields.keys() >= {"arguments", "tags", "queue", "priority", "max_retries", "due", "in_place"}
    assert post(web, f"/tasks/{task_id}/edit", **{k: v for k, v in fields.items() if k != "csrf"}).status_code == 303
    assert db.execute("SELECT t::text FROM tasks AS t").fetchall() == before
    assert client.audit(target=task_id) == []


def test_an_edit_of_a_task_that_began_meanwhile_says_so(web: Running, db: psycopg.Connection) -> None:
    task_id = row(db, "running")
    before = db.execute("SELECT t::text FROM tasks AS t").fetchall()
    refused = post(web, f"/tasks/{task_id}/edit", in_place="true", arguments="{}", queue="slow")
    assert refused.status_code == 422
    assert "is running; only a task that waits can be edited" in text_of(refused)
    for wrong in ({"due": "soon"}, {"tags": "[]"}, {"max_retries": "many"}):
        assert post(web, f"/tasks/{task_id}/edit", in_place="true", **wrong).status_code == 422
    assert db.execute("SELECT t::text FROM tasks AS t").fetchall() == before


# ---- what is hidden ----


def test_secrets_are_hidden_however_their_keys_are_spelled() -> None:
    hide = Redaction(("password", "api_key", "token"))
    value = {"userPassword": "a", "API-Key": "b", "list": [{"x": {"access_token": {"deep": 1}}}], "token": None}
    masked = hide.masked(value)
    assert masked == {"userPassword": MASK, "API-Key": MASK, "list": [{"x": {"access_token": MASK}}], "token": None}
    assert hide.restored(masked, value) == value
    assert hide.restored({"userPassword": "new", "other": MASK}, value) == {"userPassword": "new", "other": MASK}
    assert hide.restored({"list": [{"x": {"access_token": MASK}}, MASK]}, value)["list"][0] == value["list"][0]
    assert Redaction(()).masked(value) == value


# ---- hostile texts: the page says them, and does nothing they say ----


@pytest.mark.parametrize("state", ["completed", "dead_letter", "running", "failed"])
def test_hostile_texts_are_only_ever_text(web: Running, client: Client, db: psycopg.Connection, state: str) -> None:
    made = [hostile_row(db, evil, state) for evil in HOSTILE]
    paths = ["/tasks", f"/tasks?q=state:{state}", "/dead-letters"]
    paths += [f"/tasks/{i}{tail}" for i in made for tail in ("", "/edit")]
    paths += [f"/dead-letters/{group.fingerprint}" for group in client.dead_letter_groups()]
    for path in paths:
        page = web.http.get(path)
        assert page.status_code == 200, path
        assert not re.search(r"<script>|<img|<svg/|href=\"javascript:", page.text), path
        assert len(page.text) < 400_000
    for evil in HOSTILE[:5]:
        quoted = web.http.get("/tasks", params={"q": f'name:"{evil}"'.replace('"><', '\\"><')})
        assert quoted.status_code in (200, 422)
        assert "<script>alert" not in quoted.text
        assert "<img" not in quoted.text


# ---- what is said about a task ----


def share_of(value: object) -> float | None:
    found = progress_of(value)
    assert found is not None
    return found[0]


def test_progress_is_a_share_where_it_says_one() -> None:
    assert progress_of(None) is None
    assert progress_of(0.25) == (0.25, "0.25")
    assert progress_of(40) == (0.4, "40")
    assert share_of({"done": 3, "total": 4}) == 0.75
    for odd in (
        -1,
        1e9,
        True,
        "half",
        [1],
        {"done": "x", "total": 4},
        {"done": 1, "total": 0},
        {"done": 5, "total": 4},
    ):
        assert share_of(odd) is None


def test_the_timeline_says_an_error_once(client: Client, db: psycopg.Connection) -> None:
    history = [attempt(1, "E: first"), attempt(2, "E: second")]
    found = client.get_task(row(db, "failed", error="Traceback\nE: second", history=history, retry_count=2))
    assert found is not None
    told = steps(found)
    assert [s.title for s in told] == ["Next attempt", "Attempt 2: error", "Attempt 1: error", "Created"]
    assert [(s.error, s.is_error_shown) for s in told[1:3]] == [(None, True), ("E: first", False)]


# ---- attempts ----


@pytest.mark.parametrize(
    ("state", "columns", "shown"),
    [
        ("pending", {}, "0/4"),
        ("running", {"retry_count": 1}, "2/4"),
        ("running", {"retry_count": 1, "crash_count": 2}, "4/4"),
        ("failed", {"retry_count": 2, "crash_count": 1}, "3/4"),
        ("completed", {"crash_count": 1}, "2/4"),
        ("dead_letter", {"retry_count": 3, "history": [attempt(4, "boom")]}, "4/4"),
        ("dead_letter", {"crash_count": 3, "history": [attempt(3, "lost")]}, "3/4"),
    ],
)
def test_the_list_counts_attempts_that_crashed_too(
    web: Running, client: Client, db: psycopg.Connection, state: str, columns: dict[str, Any], shown: str
) -> None:
    task_id = row(db, state, max_retries=3, **columns)
    assert shown.replace("/", " /") in text_of(web.http.get("/tasks"))
    task = client.get_task(task_id)
    assert task is not None
    assert shown.startswith(f"{task.attempts}/")
    if state == "dead_letter":
        group = client.dead_letter_groups()[0].fingerprint
        page = web.http.get(f"/dead-letters/{group}").text
        assert f'data-label="Attempts">{task.attempts}</td>' in page


# ---- rows that were inserted by hand ----

NULLS = "result = 'null', history = 'null', progress = 'null', trace_context = 'null'"


@pytest.mark.parametrize("state", ["pending", "running", "completed", "failed", "dead_letter"])
def test_a_row_with_nulls_of_json_is_shown_on_every_screen(
    web: Running, client: Client, db: psycopg.Connection, state: str
) -> None:
    task_id = row(db, state, error="boom" if state in ("failed", "dead_letter") else None)
    db.execute(f"UPDATE tasks SET {NULLS}".encode())
    for path in ("/", "/tasks", f"/tasks/{task_id}", "/dead-letters"):
        page = web.http.get(path)
        assert page.status_code == 200, page.text
    if state == "dead_letter":
        group = client.dead_letter_groups()[0].fingerprint
        assert web.http.get(f"/dead-letters/{group}").status_code == 200


# ---- confirmation without a script ----


def test_without_a_script_the_server_asks_before_it_acts(web: Running, client: Client, db: psycopg.Connection) -> None:
    task_id = row(db, "completed", name="charge")
    shown = web.http.get(f"/tasks/{task_id}").text
    form = re.search(rf'<form method="post" action="/tasks/{task_id}/replay".*?</form>', shown, re.DOTALL)
    assert form is not None
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[0]))
    asked = web.http.post(
        f"/tasks/{task_id}/replay",
        data={name: html.unescape(value) for name, value in fields.items()},
        headers={"Referer": f"{web.http.base_url}/tasks/{task_id}"},
    )
    assert asked.status_code == 200
    assert "Replay this task? It is completed, and runs again from the beginning" in text_of(asked)
    assert f'href="/tasks/{task_id}">Keep as it is' in asked.text
    assert [t.state for t in client.list_tasks()] == ["completed"]
    again = dict(re.findall(r'name="(\w+)" value="([^"]*)"', asked.text))
    assert again["confirmed"] == "yes"
    done = web.http.post(f"/tasks/{task_id}/replay", data={n: html.unescape(v) for n, v in again.items()})
    assert done.status_code == 303
    assert [t.state for t in client.list_tasks()] == ["pending"]


def test_the_question_leads_back_to_no_other_site(web: Running, db: psycopg.Connection) -> None:
    task_id = row(db, "completed", name="charge")
    elsewhere = {"Referer": "http://evil.example//evil.example/x"}
    asked = post(web, f"/tasks/{task_id}/replay", elsewhere, ask="Sure?", yes="Yes")
    assert asked.status_code == 200
    assert 'href="/">Keep as it is' in asked.text


def test_only_the_action_that_asks_is_asked_about(web: Running, client: Client, db: psycopg.Connection) -> None:
    task_id = row(db, "dead_letter", error="boom")
    group = client.dead_letter_groups()[0].fingerprint
    fields = {"scope": "chosen", "id": task_id, "ask_purge": "Delete?", "yes_purge": "Delete the selected"}
    asked = post(web, f"/dead-letters/{group}", action="purge", **fields)
    assert "Delete the selected" in asked.text
    assert client.get_task(task_id) is not None
    assert post(web, f"/dead-letters/{group}", action="replay", **fields).status_code == 303


def test_a_viewer_cant_guess_a_masked_value_by_searching(
    config: Config, client: Client, db: psycopg.Connection
) -> None:
    token = client.create_token("v", roles=["viewer"]).text
    with running(config) as web:
        for q in ("args.password:hunter2", "tag.api_token:x", "tag:secret=x"):
            page = web.http.get("/tasks", params={"q": q}, headers={**HTML, **bearer(token)})
            assert page.status_code == 422, q
            assert "is masked" in page.text
        assert web.http.get("/tasks?q=args.order:7", headers={**HTML, **bearer(token)}).status_code == 200
