"""What the doctor finds in our tables and indexes."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import Config
from tasklib.doctor import bloat
from tasklib.doctor.findings import Finding, Severity
from tasklib.migrations import expected, migrate
from tests.doctor.conftest import Look
from tests.eventually import eventually


def test_what_is_expected_is_what_the_migrations_make(db: psycopg.Connection) -> None:
    tables = {row[0] for row in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    assert set(expected.tables()) == tables - {"tasklib_version"}
    rows = db.execute("SELECT tablename, indexname FROM pg_indexes WHERE schemaname = 'public'").fetchall()
    assert {(i.table, i.name) for i in expected.indexes()} == set(rows) - {("tasklib_version", "tasklib_version_pkc")}


def test_a_missing_index_is_told_with_the_statement_that_makes_it(look: Look, db: psycopg.Connection) -> None:
    def definition(name: str) -> str:
        row = db.execute("SELECT pg_get_indexdef(%s::regclass)", (name,)).fetchone()
        assert row is not None
        return str(row[0])

    assert look("indexes")["indexes"].severity is Severity.OK
    for index in (i.name for i in expected.indexes() if i.definition):
        before = definition(index)
        db.execute(f"DROP INDEX {index}".encode())
        finding = look("indexes")["missing_index"]
        assert (finding.severity, finding.details["index"]) == (Severity.CRITICAL, index)
        db.execute(finding.action.encode())
        assert definition(index) == before
    assert look("indexes")["indexes"].severity is Severity.OK


def test_an_index_whose_building_was_broken_off(look: Look, db: psycopg.Connection) -> None:
    db.execute("DROP INDEX tasks_idempotency")
    db.execute("INSERT INTO tasks (name, idempotency_key) VALUES ('mail', 'same'), ('mail', 'same')")
    unique = "CREATE UNIQUE INDEX CONCURRENTLY {} ON tasks (name, idempotency_key) WHERE idempotency_key IS NOT NULL"
    for name in ("tasks_idempotency", "leftover"):
        with pytest.raises(psycopg.errors.UniqueViolation):
            db.execute(unique.format(name).encode())
    found = look("indexes")
    assert found["invalid_index"].details["index"] == "tasks_idempotency"  # listed last, and critical
    db.execute("DELETE FROM tasks")
    db.execute(found["invalid_index"].action.encode())
    rest = look("indexes")["invalid_index"]
    assert (rest.severity, rest.details["index"]) == (Severity.WARNING, "leftover")
    db.execute(rest.action.encode())
    assert look("indexes")["indexes"].severity is Severity.OK


def test_the_claim_without_its_index(look: Look, db: psycopg.Connection) -> None:
    assert look("plan of the claim")["claim_plan"].severity is Severity.OK
    db.execute("INSERT INTO tasks (name) SELECT 'mail' FROM generate_series(1, 5000)")
    db.execute("ANALYZE tasks")
    assert look("plan of the claim")["claim_plan"].severity is Severity.OK
    db.execute("DROP INDEX tasks_claimable")
    assert look("plan of the claim")["claim_plan"].severity is Severity.CRITICAL
    assert db.execute("SELECT count(*) FROM tasks WHERE state = 'running'").fetchone() == (0,)


@pytest.mark.long
def test_dead_rows_that_are_not_vacuumed(look: Look, db: psycopg.Connection) -> None:
    db.execute("ALTER TABLE tasks SET (autovacuum_enabled = false)")
    assert look("autovacuum")["autovacuum_off"].details["table"] == "tasks"
    number = bloat.LEAST_DEAD + 1000
    db.execute("INSERT INTO tasks (name) SELECT 'mail' FROM generate_series(1, %s)", (number,))
    db.execute("UPDATE tasks SET progress = '1'")
    finding = _awaited(look, "dead rows", "dead_rows")
    assert finding.details["dead"] >= bloat.LEAST_DEAD
    db.execute(finding.action.partition("then: ")[2].encode())
    assert "dead_rows" not in look("dead rows")
    db.execute(look("autovacuum")["autovacuum_off"].action.encode())
    assert "autovacuum_off" not in look("autovacuum")


def test_an_index_that_is_mostly_empty(look: Look, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloat, "LEAST_INDEX_BYTES", 200_000)
    db.execute("ALTER TABLE tasks SET (autovacuum_enabled = false)")
    db.execute("INSERT INTO tasks (name) SELECT 'mail' FROM generate_series(1, 5000)")
    db.execute("DELETE FROM tasks WHERE random() < 0.99")
    db.execute("VACUUM tasks")
    names = []
    while finding := look("dead rows").get("index_bloat"):
        names.append(finding.details["name"])
        db.execute(finding.action.encode())
    assert "tasks_claimable" in names
    assert len(names) == len(set(names))


def test_tables_that_are_missing_or_of_another_revision(look: Look, config: Config, db: psycopg.Connection) -> None:
    assert look("schema revision")["schema_revision"].severity is Severity.OK
    elsewhere = config.with_changes(schema="elsewhere")
    finding = look("schema revision", elsewhere)["schema_revision"]
    assert finding.severity is Severity.CRITICAL
    assert finding.action.endswith("tasklib migrate --schema elsewhere")
    migrate(elsewhere)
    assert look("schema revision", elsewhere)["schema_revision"].severity is Severity.OK
    db.execute("UPDATE tasklib_version SET version_num = '0006'")
    assert look("schema revision")["schema_revision"].action.endswith("tasklib migrate --from-0.1")
    db.execute("UPDATE tasklib_version SET version_num = '9999'")
    assert "Upgrade" in look("schema revision")["schema_revision"].action


def _awaited(look: Look, check: str, code: str) -> Finding:
    """The finding, once the server's statistics have it: they come a moment later."""
    found: list[Finding] = []

    def is_told() -> bool:
        found.extend(finding for finding in [look(check).get(code)] if finding is not None)
        return bool(found)

    eventually(is_told, f"the finding {code}")
    return found[0]
