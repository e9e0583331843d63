"""`tasklib approvals`, `approve` and `reject`, and what `show` and `explain` say of a task that waits for one."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("url")

FORM = {
    "type": "object",
    "properties": {"account": {"type": "string"}, "amount": {"type": "integer"}, "late": {"type": "boolean"}},
    "required": ["account"],
}


def asking(db: psycopg.Connection, *names: str, form: object = FORM) -> str:
    insert = (
        "INSERT INTO tasks (name, scheduled_at, awaited_signals) VALUES ('pay', '9999-12-29', %s) RETURNING id::text"
    )
    task_id = str(db.execute(insert, [[f"approval:{name}" for name in names]]).fetchall()[0][0])
    for name in names:
        asked = json.dumps({"value": {"title": "Pay?", "role": "admin", "form": form, "order": {"form": ["account"]}}})
        db.execute(
            "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'approval', %s, %s, 1)",
            [task_id, name, asked],
        )
    return task_id


def test_an_approval_is_listed_approved_with_its_fields_and_audited(run: Run, db: psycopg.Connection) -> None:
    task_id = asking(db, "pay-out")
    listed = run("approvals").stdout.split("\t")
    assert (listed[0], listed[2], listed[3], listed[5].strip()) == (
        task_id,
        "pay-out",
        "Pay?",
        "account= late= amount=",
    )
    assert json.loads(run("approvals", "--json").stdout)["form"] == FORM
    done = run("approve", task_id[-8:], "account=DE02", "amount=7", "late=yes", "--comment", "fine")
    assert (done.exit_code, done.stdout) == (0, f"{task_id}\tpay-out\tapproved\n")
    [(payload,)] = db.execute("SELECT payload FROM signals").fetchall()
    assert payload["form"] == {"account": "DE02", "amount": 7, "late": True}
    assert db.execute("SELECT action, details ->> 'comment' FROM audit").fetchall() == [("task.answer", "fine")]
    assert run("approvals").stdout == ""


def test_one_of_several_is_rejected_by_its_name(run: Run, db: psycopg.Connection) -> None:
    task_id = asking(db, "a", "b", form=None)
    assert "say which of 'a', 'b'" in run("reject", task_id).output
    assert run("reject", task_id, "--name", "b", "--comment", "no").stdout == f"{task_id}\tb\trejected\n"
    again = run("reject", task_id, "--name", "b")
    assert again.exit_code == 1
    assert "was answered before" in again.output


def test_what_cant_be_filled_in_is_refused(run: Run, db: psycopg.Connection) -> None:
    task_id = asking(db, "pay-out")
    assert "write FIELD=VALUE" in run("approve", task_id, "account").output
    assert "amount: a whole number" in run("approve", task_id, "account=x", "amount=many").output
    assert "iban: there is no such field" in run("approve", task_id, "account=x", "iban=7").output
    plain = asking(db, "plain", form=None)
    assert "has no form" in run("approve", plain, "account=x").output
    assert db.execute("SELECT count(*) FROM signals").fetchone() == (0,)


def test_show_and_explain_name_the_approval(run: Run, db: psycopg.Connection) -> None:
    task_id = asking(db, "pay-out")
    assert "the approval 'pay-out'" in run("show", task_id).stdout
    explained = run("explain", task_id).stdout
    assert "It waits for the approval 'pay-out'." in explained
    assert f"tasklib approve {task_id}" in explained
