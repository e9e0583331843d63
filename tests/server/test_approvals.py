"""Approvals over HTTP: who sees them, who may answer them, and what is recorded."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

import tasklib.http
from tasklib import AccessDenied, ApprovalNotOpen, InvalidOption
from tests.server.api import Api, refused

FORM = {
    "type": "object",
    "properties": {"account": {"type": "string", "minLength": 4}, "urgent": {"type": "boolean", "default": False}},
    "required": ["account"],
}


def asking(api: Api, by: Any = None, *, name: str = "pay-out", role: str = "approver", **asked: Any) -> str:
    """A task that waits for an approval."""
    task_id = api.submit(by or api.ann)
    value = {"title": "Pay?", "details": {"token": "s3cret", "to": "ACME"}, "role": role, "form": FORM, **asked}
    api.db.execute(
        "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'approval', %s, %s, 1)",
        [task_id, name, json.dumps({"value": value})],
    )
    return task_id


@pytest.fixture
def approver(api: Api) -> Any:
    with ExitStack() as stack:
        api.add("approver", ["approver"], stack)
        yield vars(api)["approver"]


def test_open_approvals_are_listed_in_pages_with_secrets_masked(api: Api, approver: Any) -> None:
    first, second = asking(api), asking(api, expires_at="2040-01-01T00:00:00+00:00")
    page = approver.get("/api/v1/approvals?limit=1").json()
    [found] = page["approvals"]
    assert (found["task_id"], found["name"], found["role"], found["form"]) == (first, "pay-out", "approver", FORM)
    assert found["details"] == {"token": "••••••", "to": "ACME"}
    [other] = (rest := approver.get(f"/api/v1/approvals?limit=1&cursor={page['next']}").json())["approvals"]
    assert (other["task_id"], other["expires_at"][:4], rest["next"]) == (second, "2040", None)
    assert [a["task_id"] for a in api.bob.get("/api/v1/approvals").json()["approvals"]] == []
    assert [a["task_id"] for a in api.ann.get(f"/api/v1/approvals?task_id={second}").json()["approvals"]] == [second]


def test_secrets_of_an_approval_are_masked_in_its_texts_and_in_the_defaults_of_its_form(
    api: Api, approver: Any
) -> None:
    properties = {
        "api_key": {"type": "string", "default": "key-by-default"},
        "why": {"type": "string", "default": "because of s3cret"},
        "to": {"type": "string", "default": "ACME"},
    }
    asking(
        api,
        title="Use s3cret?",
        details={"token": "s3cret", "url": "https://ada:pw-in-url@acme", "said": "it is s3cret"},
        form={"type": "object", "properties": properties},
    )
    [found] = approver.get("/api/v1/approvals").json()["approvals"]
    pages = [json.dumps(found), approver.get("/approvals", headers={"Accept": "text/html"}).text]
    link = f"/approvals/{found['task_id']}?name=pay-out"
    pages += [approver.get(link, headers={"Accept": "text/html"}).text]
    pages += [approver.get(f"/tasks/{found['task_id']}", headers={"Accept": "text/html"}).text]
    for secret in ("s3cret", "pw-in-url", "key-by-default"):
        assert [secret in page for page in pages] == [False] * 4
    assert "default" not in found["form"]["properties"]["api_key"]
    assert found["form"]["properties"]["to"]["default"] == "ACME"
    # What a mask would have hidden, the task's own default fills in.
    body = {"approved": True, "form": {"to": "ACME"}}
    assert approver.post(f"/api/v1/tasks/{found['task_id']}/answer", json=body).status_code == 200


def test_an_approver_answers_what_its_role_allows_and_others_dont(api: Api, approver: Any) -> None:
    task_id, strict = asking(api), asking(api, role="admin")
    body = {"approved": True, "form": {"account": "DE02"}, "comment": "fine"}
    for caller in (api.ann, api.viewer):  # not even of its own task
        refused(caller.post(f"/api/v1/tasks/{task_id}/answer", json=body), 403, "role_missing")
    for caller in (approver, api.operator):
        refused(caller.post(f"/api/v1/tasks/{strict}/answer", json=body), 403, "role_missing")
    answer = approver.post(f"/api/v1/tasks/{task_id}/answer", json=body)
    assert (answer.status_code, answer.json()) == (200, {"task_id": task_id, "name": "pay-out", "approved": True})
    assert api.admin.post(f"/api/v1/tasks/{strict}/answer", json={"approved": False}).status_code == 200
    [(payload, by)] = api.db.execute("SELECT payload, sent_by FROM signals WHERE task = %s", [task_id]).fetchall()
    assert (payload["approved"], payload["form"], payload["comment"]) == (True, {"account": "DE02"}, "fine")
    assert payload["by"] == by
    assert by.startswith("token:approver")
    audited = "SELECT actor, details FROM audit WHERE action = 'task.answer' AND target = %s"
    said = {"approval": "pay-out", "approved": True, "comment": "fine"}
    assert api.db.execute(audited, [task_id]).fetchall() == [(by, said)]


def test_an_answer_counts_once_and_has_to_fit(api: Api, approver: Any) -> None:
    task_id = asking(api)
    path = f"/api/v1/tasks/{task_id}/answer"
    refused(approver.post(path, json={"approved": True, "form": {"account": "x"}}), 422, "invalid_option")
    refused(approver.post(path, json={"approved": True}), 422, "invalid_option")
    refused(approver.post(path, json={"approved": True, "name": "other"}), 409, "approval_not_open")
    assert approver.post(path, json={"approved": False}).status_code == 200
    refused(approver.post(path, json={"approved": False}), 409, "approval_not_open")
    plain = api.submit(api.ann)
    refused(approver.post(f"/api/v1/tasks/{plain}/answer", json={"approved": False}), 409, "approval_not_open")
    gone = "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"
    refused(approver.post(f"/api/v1/tasks/{gone}/answer", json={"approved": False}), 404, "task_not_found")


def test_no_signal_over_http_answers_an_approval(api: Api) -> None:
    task_id = asking(api)
    body = {"name": "approval:pay-out", "payload": {"approved": True, "form": {"account": "DE02"}}}
    refused(api.ann.post(f"/api/v1/tasks/{task_id}/signals", json=body), 422, "invalid_option")
    assert api.db.execute("SELECT count(*) FROM signals WHERE task = %s", [task_id]).fetchone() == (0,)


def test_a_client_over_http_lists_and_answers_approvals(api: Api) -> None:
    task_id, other = asking(api), asking(api, form=None)
    token = api.client.create_token("approver", roles=["approver"]).text
    with tasklib.http.HttpClient(str(api.running), token=token) as client:
        with_database = api.client.approvals()
        assert [a.task_id for a in client.approvals(limit=1)] == [with_database[0].task_id]
        first, second = client.approvals()
        assert (first.form, first.number, first.asked_at) == (FORM, 1, with_database[0].asked_at)
        assert client.approvals(after=first) == [second]
        with pytest.raises(InvalidOption, match="at least 4 characters"):
            client.approve(task_id, form={"account": "x"})
        client.approve(task_id, "pay-out", form={"account": "DE02"}, comment="fine")
        client.reject(other)
        with pytest.raises(ApprovalNotOpen):
            client.reject(other, "pay-out")
    token = api.client.create_token("viewer", roles=["viewer"]).text
    with tasklib.http.HttpClient(str(api.running), token=token) as client, pytest.raises(AccessDenied):
        client.reject(other)
