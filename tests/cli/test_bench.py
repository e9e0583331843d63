"""`tasklib bench`, as it is typed. What it measures is tested in tests/bench."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psycopg
import pytest

from tasklib.bench.schema import SCHEMA
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.eventually import eventually

pytestmark = pytest.mark.long

TINY = ("--scale", "0.001", "--repeats", "2")


@pytest.fixture
def chart_maker() -> None:
    pytest.importorskip("matplotlib", reason="the extra bench is not installed")


def test_it_prints_rows_and_writes_json_and_leaves_nothing_in_the_database(
    url: str, run: Run, project: Path, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKLIB_SCHEMA", "not_for_this")
    done = run("bench", "w2", "W1", *TINY, "--json", "all.json")
    assert done.exit_code == 0, done.output
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[:2] for row in rows] == [["W1", "submit one by one"], ["W2", "submit_many"]]
    assert [row[4].partition(" x ")[2] for row in rows] == ["a bare INSERT", "raw COPY"]
    assert "PostgreSQL" in done.stderr
    assert "W1  submit one by one" in done.stderr
    written = json.loads((project / "all.json").read_text())
    assert [w["id"] for w in written["workloads"]] == ["W1", "W2"]
    assert written["plan"]["repeats"] == 2
    assert not schema_is_there(db)
    assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'not_for_this'").fetchone() is None
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


def test_a_dash_prints_the_json_instead(url: str, run: Run) -> None:
    done = run("bench", "W1", *TINY, "--json", "-")
    assert [w["id"] for w in json.loads(done.stdout)["workloads"]] == ["W1"]


@pytest.mark.usefixtures("chart_maker")
def test_it_draws_a_chart(url: str, run: Run, project: Path) -> None:
    done = run("bench", "W1", *TINY, "--chart", "chart.svg")
    assert done.exit_code == 0, done.output
    assert "The chart is in chart.svg." in done.stderr
    assert "submit one by one" in (project / "chart.svg").read_text()


def test_without_a_database_it_brings_its_own_which_is_durable(command: Command) -> None:
    measuring = command("bench", "W1", *TINY)
    assert measuring.exit_code() == 0, measuring.said()
    assert "embedded" in measuring.said()
    assert "fsync on" in measuring.said()


def test_in_a_terminal_it_shows_a_table_below_a_bar(url: str, command: Command) -> None:
    measuring = command("bench", "W1", *TINY, terminal=True, TASKLIB_DATABASE_URL=url)
    assert measuring.exit_code() == 0, measuring.said()
    for seen in ("round 1 of 2: W1 submit one by one", "workload", "compared", "tasks/s"):
        assert seen in measuring.said()


@pytest.mark.direct(reason="what is measured is the server, not a pooler")
def test_ctrl_c_leaves_nothing_behind(url: str, command: Command, db: psycopg.Connection) -> None:
    measuring = command("bench", "W5", "--full", terminal=True, TASKLIB_DATABASE_URL=url)
    await_a_worker_at_work(db)
    measuring.press("\x03")
    assert measuring.exit_code() == 130
    assert "Stopped and cleaned up" in measuring.said()
    assert not schema_is_there(db)
    eventually(lambda: sessions(db) == 0, "all are gone")


@pytest.mark.direct(reason="what is measured is the server, not a pooler")
def test_after_being_killed_its_workers_end_and_the_next_run_cleans_up(
    url: str, command: Command, run: Run, db: psycopg.Connection
) -> None:
    measuring = command("bench", "W5", "--full", TASKLIB_DATABASE_URL=url)
    await_a_worker_at_work(db)
    measuring.signal(signal.SIGKILL)
    eventually(lambda: sessions(db) == 0, "all are gone")
    done = run("bench", "W1", *TINY)
    assert done.exit_code == 0, done.output
    assert not schema_is_there(db)


def test_the_schema_of_another_program_is_an_error(url: str, run: Run, db: psycopg.Connection) -> None:
    db.execute(f"CREATE SCHEMA {SCHEMA}")
    done = run("bench", "W1", *TINY)
    assert done.exit_code == 1
    assert "tasklib bench did not make" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["W13"], 2, "there is no workload W13. The workloads are: W1, W2,"),
        (["--quick", "--full"], 2, "give one of --quick, --full and --scale"),
        (["--scale", "0"], 2, "--scale is a number above 0"),
        (["--chart", "chart.pdf"], 2, "--chart takes a file that ends in .svg or .png, not chart.pdf."),
        (["--chart", "missing/chart.svg"], 1, "there is no directory missing"),
        (["--json", "missing/all.json"], 1, "there is no directory missing"),
        (["--json", "."], 1, "is a directory"),
    ],
)
def test_what_can_not_work_is_said_before_anything_is_measured(
    run: Run, arguments: list[str], code: int, complaint: str
) -> None:
    done = run("bench", *arguments)
    assert done.exit_code == code
    assert complaint in " ".join(done.stderr.replace("│", " ").split())


def test_a_chart_without_matplotlib_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tasklib.bench.chart", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("bench", "--chart", "chart.svg")
    assert done.exit_code == 1
    assert "pip install 'tasklib-pg[bench]'" in done.stderr


def await_a_worker_at_work(db: psycopg.Connection) -> None:
    eventually(lambda: db.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.snapshots"]).fetchone() != (None,), "tables")
    started = f"SELECT 1 FROM {SCHEMA}.tasks WHERE started_at IS NOT NULL LIMIT 1"
    eventually(lambda: db.execute(started.encode()).fetchone(), "a worker at work")


def sessions(db: psycopg.Connection) -> int:
    """How many connections a run has to this database."""
    found = db.execute(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name LIKE 'tasklib bench%' AND datname = current_database()"
    ).fetchone()
    assert found is not None
    return int(found[0])


def schema_is_there(db: psycopg.Connection) -> bool:
    return db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [SCHEMA]).fetchone() is not None
