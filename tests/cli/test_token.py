"""`tasklib token` and `tasklib audit`."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest

from tasklib import Client
from tasklib.cli.report import without_secrets
from tasklib.store.audit import Action
from tasklib.store.tokens import Role
from tests.cli.conftest import Run
from tests.cli.processes import Command

pytestmark = pytest.mark.usefixtures("url")
TOKEN = re.compile(r"tasklib_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")


def lines(result: Any) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


# ---- tokens ----


def test_create_prints_the_token_alone_and_only_once(run: Run, db: psycopg.Connection) -> None:
    result = run("token", "create", "ci", "--role", "submitter", "--role", "viewer", "--expires", "90d")
    text = result.stdout.removesuffix("\n")
    assert TOKEN.fullmatch(text)
    prefix = text.split("_")[1]
    assert result.stderr == (f"token ci ({prefix}) is viewer and submitter, expires in 90 d. It is not shown again.\n")
    secret = text[-43:]
    for again in (("token", "list"), ("token", "list", "--json"), ("audit",), ("audit", "--json")):
        shown = run(*again).output
        assert prefix in shown
        assert secret not in shown
    assert db.execute("SELECT count(*) FROM api_tokens WHERE expires_at = created_at + interval '90 d'").fetchone() == (
        1,
    )


def test_create_as_json_has_the_token_and_all_about_it(run: Run) -> None:
    args = ("token", "create", "gpu box", "--role", "worker", "--queue", "mail", "--queue", "images", "--json")
    shown = json.loads(run(*args).stdout)
    assert TOKEN.fullmatch(shown["token"])
    assert (shown["name"], shown["roles"], shown["queues"]) == ("gpu box", ["worker"], ["images", "mail"])
    listed = json.loads(run("token", "list", "--json").stdout)
    assert listed.items() == {k: v for k, v in shown.items() if k != "token"}.items()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("ci",), "--role"),
        (("ci", "--role", "boss"), "'boss' is not one of"),
        (("ci", "--role", "viewer", "--expires", "soon"), "'soon' is not a length of time such as"),
        (("ci", "--role", "viewer", "--expires", "9" * 30 + "d"), "is too long."),
    ],
)
def test_create_says_what_is_wrong_with_its_options(run: Run, args: tuple[str, ...], message: str) -> None:
    result = run("token", "create", *args)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("ci", "--role", "viewer", "--queue", "mail"), "doesn't have the role worker"),
        (("ci", "--role", "viewer", "--expires", "0s"), "expires_in must be"),
        (("ci", "--role", "viewer", "--expires", "200000d"), "at most 100 years"),
        (("", "--role", "viewer"), "a token's name"),
    ],
)
def test_create_refuses_what_makes_no_token(run: Run, args: tuple[str, ...], message: str) -> None:
    result = run("token", "create", *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert run("token", "list").stdout == ""


def test_list_shows_what_became_of_each(run: Run, db: psycopg.Connection) -> None:
    with Client() as client:
        usable = client.create_token("usable", roles="worker").info
        expired = client.create_token("expired", roles=["worker"], queues=["mail"], expires_in=60).info
        revoked = client.create_token("revoked", roles=["viewer", "operator"]).info
        client.revoke_token(revoked.id)
    db.execute("UPDATE api_tokens SET expires_at = now() - interval '1 s' WHERE name = 'expired'")
    assert [row[:5] for row in lines(run("token", "list"))] == [
        [usable.prefix, "usable", "worker", "all", "usable"],
        [expired.prefix, "expired", "worker", "mail", "expired"],
        [revoked.prefix, "revoked", "viewer,operator", "", "revoked"],
    ]


def test_list_is_a_table_in_a_terminal(command: Command, url: str) -> None:
    with Client() as client:
        prefix = client.create_token("ci", roles="viewer", expires_in=7000).info.prefix
    process = command("token", "list", terminal=True, TASKLIB_DATABASE_URL=url, COLUMNS="200")
    assert process.exit_code() == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", process.said())
    assert re.search(rf"{prefix} +ci +viewer +usable .* ago .* in 1 h", shown)


def test_revoke_by_prefix_or_id(run: Run, db: psycopg.Connection) -> None:
    for column in ("prefix", "id"):
        run("token", "create", "ci", "--role", "viewer")
        which = db.execute(f"SELECT {column} FROM api_tokens WHERE revoked_at IS NULL".encode()).fetchall()[0][0]
        assert re.fullmatch(r"revoked ci \([0-9a-f]{12}\)\n", run("token", "revoke", str(which)).stderr)
    assert db.execute("SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL").fetchone() == (0,)


def test_revoke_of_what_is_unknown_repeats_no_secret(run: Run) -> None:
    secret = "s" * 43
    unknown = run("token", "revoke", f"tasklib_{'0' * 12}_{secret}")
    nonsense = run("token", "revoke", secret)
    for result in (unknown, nonsense):
        assert result.exit_code == 1
        assert secret not in result.output
    assert "tasklib token list" in unknown.stderr


def test_a_token_is_left_out_of_any_error() -> None:
    text = f"tasklib_{'0' * 12}_{'s-_' * 14}s"
    assert without_secrets(f"refused {text}, sorry") == f"refused tasklib_{'0' * 12}_***, sorry"


@pytest.mark.parametrize("subcommand", ["create", "list", "revoke"])
def test_each_takes_the_database_and_the_schema(run: Run, subcommand: str) -> None:
    shown = run("token", subcommand, "--help", env={"COLUMNS": "200"}).output
    assert all(text in shown for text in ("--database-url", "--schema", "--debug"))


def test_help_names_every_role_and_action(run: Run) -> None:
    create, audit = (" ".join(run(*c, "--help").output.split()) for c in (("token", "create"), ("audit",)))
    assert ", ".join(Role) in create
    assert ", ".join(Action) in audit


# ---- audit ----


def test_audit_says_who_did_what(run: Run, db: psycopg.Connection) -> None:
    task = run("submit", "work").stdout.strip()
    run("cancel", task, env={"TASKLIB_ACTOR": "ann@example.com"})
    run("pause", "--queue", "mail", env={"TASKLIB_ACTOR": "bob"})
    run("settings", "set", "promote_to_high_after_seconds=300", env={"TASKLIB_ACTOR": "bob"})
    rows = lines(run("audit"))
    assert [row[2:] for row in rows] == [
        ["bob", "settings.change", "", "promote_to_high_after_seconds=300.0"],
        ["bob", "pause", "queue:mail", ""],
        ["ann@example.com", "task.cancel", task, ""],
    ]
    assert lines(run("audit", "--actor", "bob", "--limit", "1")) == rows[:1]
    assert lines(run("audit", "--before", rows[0][0])) == rows[1:]
    assert lines(run("audit", "--target", task)) == lines(run("audit", "--action", "task.cancel")) == rows[2:]
    first = json.loads(run("audit", "--json", "--limit", "1").stdout)
    assert (first["actor"], first["details"]) == ("bob", {"promote_to_high_after_seconds": 300.0})


def test_audit_of_nothing_is_empty(run: Run) -> None:
    assert (run("audit").exit_code, run("audit").stdout) == (0, "")


def test_audit_refuses_an_action_that_there_is_not(run: Run) -> None:
    result = run("audit", "--action", "explode")
    assert result.exit_code == 2
    assert "task.cancel" in result.stderr


def test_an_actor_cannot_write_to_the_terminal_what_it_likes(run: Run, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO audit (actor, action) VALUES (E'\\x1b[31mred\\tann', 'pause')")
    [row] = lines(run("audit"))
    assert row[2] == "\\x1b[31mred\\tann"


def test_show_says_who_submitted_a_task(run: Run, db: psycopg.Connection) -> None:
    task = run("submit", "work").stdout.strip()
    assert "submitted by" not in run("show", task).stdout
    db.execute("UPDATE tasks SET submitted_by = 'token-7'")
    assert re.search(r"submitted by +token-7", run("show", task).stdout)
    assert json.loads(run("show", task, "--json").stdout)["submitted_by"] == "token-7"
