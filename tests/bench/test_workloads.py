"""Every workload, in a small way, on a real server with real workers."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tasklib import Config
from tasklib.bench.cpu import postmaster_of, seconds_of, seconds_of_trees
from tasklib.bench.machine import facts_of
from tasklib.bench.plan import Plan
from tasklib.bench.running import Result, run
from tasklib.bench.schema import MARK, SCHEMA, BenchSchema, open_schema
from tasklib.bench.workloads import WORKLOADS
from tasklib.config import channel_of
from tasklib.errors import SchemaError
from tasklib.testing import databases

# All that is measured is measured before the first test: a dozen processes, which take their time on a busy machine.
pytestmark = pytest.mark.long
PLAN = Plan(scale=0.001, repeats=1, concurrency=20)


@pytest.fixture(scope="module")
def results(server_url: str) -> Iterator[dict[str, Result]]:
    """All workloads measured once."""
    with databases.database(server_url) as url:
        with open_schema(Config(url)) as schema:
            measured = run(schema, PLAN, list(WORKLOADS.values()))
        yield {result.workload.id: result for result in measured}


@pytest.mark.parametrize("id_", [id_ for id_ in WORKLOADS if id_ != "W5"])
def test_it_gives_a_figure(results: dict[str, Result], id_: str) -> None:
    value = results[id_].value
    assert value is None if id_ == "W9" and results["W9"].details["server"] is None else value > 0


@pytest.mark.parametrize("id_", [id_ for id_, workload in WORKLOADS.items() if workload.compared_with])
def test_it_is_compared_within_its_round(results: dict[str, Result], id_: str) -> None:
    ratio = results[id_].ratio
    assert ratio is not None
    assert ratio > 0
    if WORKLOADS[id_].compared_with == "W3":
        assert results[id_].against == results["W3"].value


def test_pick_up_is_measured_from_the_call_and_from_its_return(results: dict[str, Result]) -> None:
    details = results["W5"].details
    assert results["W5"].value == details["p50_ms"]
    assert details["p50_ms"] <= details["p99_ms"]
    assert 0 < details["from_call_p50_ms"] > details["p50_ms"]


def test_a_held_snapshot_is_measured_by_quarters(results: dict[str, Result]) -> None:
    details = results["W8"].details
    assert details["last_to_first"] == pytest.approx(details["last_quarter"] / details["first_quarter"])


def test_cpu_time_is_known_of_the_worker_at_least(results: dict[str, Result]) -> None:
    assert results["W9"].details["worker"] >= 0


@pytest.fixture
def schema(empty_database_url: str) -> Iterator[BenchSchema]:
    with open_schema(Config(empty_database_url)) as schema:
        yield schema


def test_a_server_on_this_machine_is_found_by_its_processes(schema: BenchSchema) -> None:
    postmaster = postmaster_of(schema.db)
    if postmaster is None:
        pytest.skip("the server is elsewhere")
    assert seconds_of_trees([postmaster]) >= seconds_of([schema.row("SELECT pg_backend_pid()")[0]])


def test_a_process_that_happens_to_have_the_number_of_a_server_elsewhere_is_not_taken_for_it(
    schema: BenchSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.bench.cpu._command_line", lambda pid: b"postgres: app other 10.0.0.1(5) idle")
    assert postmaster_of(schema.db) is None


def test_the_circumstances_name_the_settings_that_matter(empty_database_url: str) -> None:
    with open_schema(Config(empty_database_url, listen=False)) as schema:
        facts = facts_of(schema, embedded=False)
    assert {"fsync", "synchronous_commit", "shared_buffers"} <= facts.settings.keys()
    assert facts.configuration == {"listen": False}
    assert facts.cores >= 1
    password = psycopg.conninfo.conninfo_to_dict(empty_database_url).get("password")
    assert not password or password not in " ".join(facts.lines())


def test_the_silent_side_sends_no_notification_and_the_next_workload_does_again(schema: BenchSchema) -> None:
    schema.notify(False)
    schema.db.execute(f"LISTEN {channel_of(SCHEMA)}".encode())
    schema.db.execute(f"INSERT INTO {SCHEMA}.tasks (name) VALUES ('nobody.knows')".encode())
    assert list(schema.db.notifies(timeout=0)) == []
    schema.fresh()
    enabled = "SELECT bool_and(tgenabled = 'O') FROM pg_trigger WHERE tgrelid = %s::regclass"
    assert schema.row(enabled, f"{SCHEMA}.tasks") == (True,)


def test_it_works_in_a_schema_of_its_own_and_drops_it(empty_database_url: str, schema: BenchSchema) -> None:
    assert schema.config.schema == SCHEMA
    with psycopg.connect(empty_database_url) as db:
        assert _schemas(db) == [SCHEMA]


def test_what_a_killed_run_left_is_replaced(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {SCHEMA}")
        db.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{MARK}'")
        db.execute(f"CREATE TABLE {SCHEMA}.tasks ()")
        with open_schema(Config(empty_database_url)) as schema:
            assert schema.row("SELECT count(state) FROM {tasks}") == (0,)
        assert _schemas(db) == []


def test_the_schema_of_another_program_is_not_touched(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {SCHEMA}")
        db.execute(f"CREATE TABLE {SCHEMA}.precious ()")
        with (
            pytest.raises(SchemaError, match="tasklib bench did not make"),
            open_schema(Config(empty_database_url)),
        ):
            pass
        assert db.execute("SELECT to_regclass(%s)::text", [f"{SCHEMA}.precious"]).fetchone() == (f"{SCHEMA}.precious",)


def test_two_at_a_time_are_refused(empty_database_url: str, schema: BenchSchema) -> None:
    with pytest.raises(SchemaError, match="another tasklib bench is running"), open_schema(Config(empty_database_url)):
        pass
    assert schema.row("SELECT count(*) FROM {tasks}") == (0,)


def _schemas(db: psycopg.Connection) -> list[str]:
    found = db.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tasklib%'").fetchall()
    return [name for (name,) in found]
