"""Approvals and signals on the dashboard, as a browser without script uses them."""

from __future__ import annotations

import html
import json
import re
from typing import Any, Literal
from uuid import uuid4

import httpx
import psycopg
import pytest
from pydantic import BaseModel, Field

from tasklib import Client
from tasklib.tasks.approvals import schema_of
from tests.dashboard.scenes import HOSTILE
from tests.server.conftest import Running, bearer


class Payment(BaseModel):
    account: str = Field(min_length=4, title="Account", description="Where it goes")
    amount: int = Field(100, ge=1, le=1000)
    rate: float | None = None
    kind: Literal["urgent", "normal"] = "normal"
    confirmed: bool = False
    tags: list[str] = []
    note: str = Field("", max_length=2000)


INSERT = "INSERT INTO tasks (name, scheduled_at, awaited_signals) VALUES ('pay', '9999-12-29', %s) RETURNING id::text"


def asking(db: psycopg.Connection, name: str = "pay-out", title: str = "Pay 5 to ACME?", **asked: Any) -> str:
    insert = (
        "INSERT INTO tasks (name, scheduled_at, awaited_signals) VALUES ('pay', '9999-12-29', %s) RETURNING id::text"
    )
    task_id = str(db.execute(insert, [[f"approval:{name}"]]).fetchall()[0][0])
    value = {"title": title, "role": "approver", "details": {"password": "s3cret", "to": "ACME"}, **asked}
    value.setdefault("form", schema_of(Payment))
    value["order"] = {"form": list((value["form"] or {}).get("properties", {})), "details": list(value["details"])}
    db.execute(
        "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'approval', %s, %s, 7)",
        [task_id, name, json.dumps({"value": value})],
    )
    return task_id


def post(web: Running, path: str, **fields: Any) -> httpx.Response:
    return web.http.post(path, data={"csrf": web.app.state.sessions.csrf(None), **fields})


def fields_in(text: str) -> dict[str, str]:
    """The inputs of the page, by name."""
    found = re.findall(r'<(?:input|select|textarea)[^>]* name="([^"]*)"[^>]*>', text)
    tags = re.findall(r"<(?:input|select|textarea)[^>]* name=\"[^\"]*\"[^>]*>", text)
    return {html.unescape(name): tag for name, tag in zip(found, tags, strict=True)}


def test_the_form_comes_from_the_schema_and_its_answer_reaches_the_task(web: Running, db: psycopg.Connection) -> None:
    task_id = asking(db)
    listed = web.http.get("/approvals").text
    assert "Pay 5 to ACME?" in listed
    link = html.unescape(re.findall(r'href="(/approvals/[^"]*)"', listed)[0])
    page = web.http.get(link).text
    inputs = fields_in(page)
    assert 'type="number"' in inputs["field:amount"]
    assert 'min="1" max="1000"' in inputs["field:amount"]
    assert 'value="100"' in inputs["field:amount"]
    assert "required" in inputs["field:account"]
    assert "required" not in inputs["field:rate"]
    assert inputs["field:kind"].startswith("<select")
    assert 'type="checkbox"' in inputs["field:confirmed"]
    assert inputs["field:tags"].startswith("<textarea")
    assert "s3cret" not in page
    assert "Where it goes" in page
    sent = {"name": "pay-out", "number": "7", "comment": "ok\r\nthen", "field:account": "DE02", "field:amount": "7"}
    more = {
        "field:rate": "",
        "field:kind": "urgent",
        "field:confirmed": "true",
        "field:tags": '["a"]',
        "field:note": "",
    }
    answer = post(web, f"/approvals/{task_id}", decision="approve", **sent, **more)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/tasks/{task_id}")
    [(payload,)] = db.execute("SELECT payload FROM signals").fetchall()
    form = {"account": "DE02", "amount": 7, "kind": "urgent", "confirmed": True, "tags": ["a"]}
    assert (payload["approved"], payload["form"], payload["comment"]) == (True, form, "ok\nthen")
    assert db.execute("SELECT action, details ->> 'approval' FROM audit").fetchall() == [("task.answer", "pay-out")]
    assert "Nothing waits for approval" in web.http.get("/approvals").text


def test_a_form_with_mistakes_comes_back_as_it_was_filled_in(web: Running, db: psycopg.Connection) -> None:
    task_id = asking(db)
    sent = {"name": "pay-out", "number": "7", "field:account": "x<b>", "field:amount": "1001", "comment": "mine"}
    answer = post(web, f"/approvals/{task_id}", decision="approve", **sent)
    assert answer.status_code == 422
    text = html.unescape(answer.text)
    assert "amount: at most 1000" in text
    assert 'value="x&lt;b&gt;"' in fields_in(answer.text)["field:account"]
    assert "mine" in answer.text
    assert post(web, f"/approvals/{task_id}", **sent).status_code == 422  # neither button
    assert db.execute("SELECT count(*) FROM signals").fetchone() == (0,)


def test_rejecting_needs_nothing_filled_in_and_counts_once(web: Running, db: psycopg.Connection) -> None:
    task_id = asking(db)
    sent = {"name": "pay-out", "number": "7", "decision": "reject", "comment": "no"}
    assert post(web, f"/approvals/{task_id}", **(sent | {"number": "6"})).status_code == 303  # asked anew since then
    assert db.execute("SELECT count(*) FROM signals").fetchone() == (0,)
    for _ in range(2):
        assert post(web, f"/approvals/{task_id}", **sent).status_code == 303
    [(payload,)] = db.execute("SELECT payload FROM signals").fetchall()
    assert (payload["approved"], payload["form"]) == (False, None)


def test_pages_of_approvals_lead_on(web: Running, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.server.dashboard.approvals.PAGE", 2)
    ids = [asking(db) for _ in range(3)]
    first = web.http.get("/approvals").text
    assert ids[2] not in first
    [older] = re.findall(r'href="(\?after=[^"]*)" rel="next"', first)
    assert ids[2] in web.http.get(f"/approvals{html.unescape(older)}").text


def test_roles_decide_who_can_answer(web: Running, client: Client, db: psycopg.Connection) -> None:
    task_id, strict = asking(db), asking(db, role="operator")
    tokens = {role: bearer(client.create_token(role, roles=[role]).text) for role in ("viewer", "approver")}
    look, answer = f"/approvals/{task_id}?name=pay-out", f"/approvals/{strict}?name=pay-out"
    assert "needs the role <b>approver</b>" in web.http.get(look, headers=tokens["viewer"]).text
    assert 'value="approve"' in web.http.get(look, headers=tokens["approver"]).text
    assert "needs the role <b>operator</b>" in web.http.get(answer, headers=tokens["approver"]).text
    fields = {"name": "pay-out", "number": "7", "decision": "reject", "csrf": web.app.state.sessions.csrf(None)}
    assert web.http.post(f"/approvals/{strict}", data=fields, headers=tokens["approver"]).status_code == 403
    assert web.http.post(f"/approvals/{task_id}", data=fields, headers=tokens["viewer"]).status_code == 403


def test_hostile_questions_are_shown_as_text(web: Running, db: psycopg.Connection) -> None:
    said = "".join(HOSTILE[:3])
    field = {"type": "string", "title": said, "description": said, "default": said, "enum": [said]}
    form = {"type": "object", "properties": {said: field, "plain": {"title": said, "default": said}}}
    task_id = asking(db, said, said, details={said: said}, form=form, refused=said)
    for path in (
        "/approvals",
        f"/tasks/{task_id}",
        f"/approvals/{task_id}?" + httpx.QueryParams(name=said).__str__(),
    ):
        page = web.http.get(path)
        assert page.status_code == 200, page.text
        assert "<script>alert" not in page.text


def test_an_approval_that_is_gone_says_so(web: Running) -> None:
    assert web.http.get(f"/approvals/{uuid4()}?name=x").status_code == 404


def test_a_task_page_leads_to_its_approvals_its_record_and_signals(web: Running, db: psycopg.Connection) -> None:
    task_id = asking(db)
    text = web.http.get(f"/tasks/{task_id}").text
    assert "Waits for approval" in text
    assert f"/approvals/{task_id}?name=pay-out" in text
    assert f"/tasks/{task_id}/signal" in text
    assert "1 on record" in text


def test_a_signal_is_sent_from_a_form_and_audited(web: Running, db: psycopg.Connection) -> None:
    insert = (
        "INSERT INTO tasks (name, scheduled_at, awaited_signals) VALUES ('pay', '9999-12-29', '{paid}') RETURNING id"
    )
    [(task_id,)] = db.execute(insert).fetchall()
    assert 'value="paid"' in fields_in(web.http.get(f"/tasks/{task_id}/signal").text)["name"]
    wrong = post(web, f"/tasks/{task_id}/signal", name="paid", payload="yes")
    assert wrong.status_code == 422
    assert "is not JSON" in wrong.text
    assert post(web, f"/tasks/{task_id}/signal", name="approval:x", payload="1").status_code == 422
    assert post(web, f"/tasks/{task_id}/signal", name="paid", payload='{"by": 1}', key="k").status_code == 303
    assert db.execute("SELECT name, payload, key FROM signals").fetchall() == [("paid", {"by": 1}, "k")]
    assert db.execute("SELECT action FROM audit").fetchall() == [("task.signal",)]
    db.execute("UPDATE tasks SET state = 'cancelled', completed_at = now()")
    assert "is finished" in web.http.get(f"/tasks/{task_id}/signal").text
    assert post(web, f"/tasks/{task_id}/signal", name="paid").status_code == 303
    assert db.execute("SELECT count(*) FROM signals").fetchone() == (1,)
