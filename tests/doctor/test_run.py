"""A run as a whole: by a sync and an async client, with few rights, without a database, on the command line."""

from __future__ import annotations

import json

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config
from tasklib.doctor.checks import CHECKS
from tasklib.doctor.findings import Severity
from tasklib.doctor.run import examine, examine_async
from tests.cli.conftest import Run, project, run, url

__all__ = ["project", "run", "url"]


async def test_both_colours_find_the_same(config: Config) -> None:
    with Client(config) as client:
        blocking = [(f.code, f.severity) for f in examine(client)]
    async with AsyncClient(config) as client_:
        assert [(f.code, f.severity) for f in await examine_async(client_)] == blocking
        quick = [f.code for f in await examine_async(client_, thorough=False)]
    assert {"pooler", "listen"}.isdisjoint(quick)
    assert len(blocking) >= len(CHECKS) - 1  # tasks without a worker are not reported while there is no worker at all


def test_a_user_without_rights_is_told_what_was_not_examined(config: Config, db: psycopg.Connection) -> None:
    db.execute("DROP ROLE IF EXISTS tasklib_doctor_guest")
    db.execute("CREATE ROLE tasklib_doctor_guest LOGIN PASSWORD 'guest'")
    try:
        parts = psycopg.conninfo.conninfo_to_dict(config.database_url)
        guest = psycopg.conninfo.make_conninfo("", **{**parts, "user": "tasklib_doctor_guest", "password": "guest"})
        with Client(config.with_changes(database_url=guest)) as client:
            findings = examine(client)
        assert [f for f in findings if f.code == "not_examined"]
        assert next(f for f in findings if f.code == "hidden_sessions").details["hidden"] >= 1
        assert {f.code for f in findings} >= {"clock_skew", "connections", "transaction_ids"}
    finally:
        db.execute("DROP ROLE tasklib_doctor_guest")


def test_without_tables_only_the_server_is_examined(empty_database_url: str) -> None:
    with Client(Config(empty_database_url)) as client:
        codes = [f.code for f in examine(client)]
    assert codes[0] == "schema_revision"
    assert "clock_skew" in codes
    assert {"not_examined", "indexes", "paused"}.isdisjoint(codes)


def test_a_database_that_is_away_is_critical() -> None:
    with Client(Config("postgresql://postgres:secret@127.0.0.1:1/nowhere")) as client:
        (finding,) = examine(client)
    assert (finding.code, finding.severity) == ("database_unavailable", Severity.CRITICAL)
    assert "secret" not in finding.seen


@pytest.mark.usefixtures("url")
def test_the_command_shows_findings_and_ends_with_a_code_for_scripts(run: Run, db: psycopg.Connection) -> None:
    done = run("doctor")
    assert "There is no live worker" in done.stdout
    assert "tasklib worker MODULE" in done.stdout
    report = json.loads(run("doctor", "--json").stdout)
    assert done.exit_code == {"warning": 1, "critical": 2}[report["severity"]]
    assert {"severity", "code", "seen", "why", "action", "details"} == report["findings"][0].keys()
    db.execute("DROP INDEX tasks_claimable")
    quiet = run("doctor", "--quiet")
    assert quiet.exit_code == 2
    assert "✓" not in quiet.stdout


@pytest.mark.usefixtures("project")
def test_the_command_ends_with_2_if_the_database_is_away(run: Run) -> None:
    done = run("doctor", "--database-url", "postgresql://postgres:secret@127.0.0.1:1/nowhere")
    assert done.exit_code == 2
    assert "secret" not in done.stdout
