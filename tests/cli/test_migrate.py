from __future__ import annotations

import uuid

import psycopg
from psycopg.conninfo import make_conninfo

from tasklib.migrations.revisions import head, known
from tasklib.sql import DUE
from tests.cli.conftest import Run
from tests.migrations.catalogue import SCHEMA_0_1_0


def test_migrate_says_what_it_ran_and_then_that_nothing_is_left(run: Run, empty_database_url: str) -> None:
    url = ("--database-url", empty_database_url)
    first, second, checked = run("migrate", *url), run("migrate", *url), run("migrate", "--check", *url)
    assert first.stdout == "".join(f"ran {revision}\n" for revision in known())
    assert second.stdout == checked.stdout == f"up to date (revision {head()})\n"
    assert first.exit_code == second.exit_code == checked.exit_code == 0


def test_check_of_an_empty_database_says_how_to_create_the_tables(run: Run, empty_database_url: str) -> None:
    result = run("migrate", "--check", "--database-url", empty_database_url)
    assert result.exit_code == 1
    assert result.stderr == ("error: TaskLib's tables are not in this database. Create them with: tasklib migrate\n")


def test_check_of_an_older_schema_names_what_it_lacks(run: Run, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE tasklib_version SET version_num = '0000'")
    result = run("migrate", "--check", "--database-url", database_url)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: this database is at revision 0000")


def test_newer_schema_is_left_alone(run: Run, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE tasklib_version SET version_num = '9999'")
    for args in (("migrate",), ("migrate", "--check")):
        result = run(*args, "--database-url", database_url)
        assert result.exit_code == 1
        assert result.stderr == (
            f"error: this database is at revision 9999, newer than this TaskLib knows ({head()}). "
            "Upgrade tasklib-pg in this program; nothing was changed.\n"
        )


def test_table_of_another_program_is_left_alone(run: Run, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE tasks (mine text)")
    for args in (("migrate",), ("migrate", "--check")):
        result = run(*args, "--database-url", empty_database_url)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: a table named tasks that TaskLib did not create is already in ")
        assert result.stderr.rstrip().endswith("or tasklib migrate --schema tasklib")
    assert run("migrate", "--schema", "tasklib", "--database-url", empty_database_url).exit_code == 0


def test_sql_needs_no_database_and_creates_the_tables(run: Run, empty_database_url: str) -> None:
    script = run("migrate", "--sql", "--schema", "jobs")
    assert script.exit_code == 0
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(script.stdout.encode())
    env = {"TASKLIB_DATABASE_URL": empty_database_url, "TASKLIB_SCHEMA": "jobs"}
    assert run("migrate", "--check", env=env).exit_code == 0


def test_tables_of_0_1_0_are_refused_with_the_command_that_carries_them_over(run: Run, empty_database_url: str) -> None:
    url = ("--database-url", empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE tasklib_version (version_num varchar(32) PRIMARY KEY)")
        connection.execute("INSERT INTO tasklib_version VALUES ('0006')")
        connection.execute(SCHEMA_0_1_0.read_text().replace("{due}", DUE).replace("{schema.}", "").encode())
        connection.execute("INSERT INTO tasks (name) VALUES ('a')")
    refused = run("migrate", *url)
    assert refused.exit_code == 1
    assert refused.stderr.endswith("carry its tasks over with: tasklib migrate --from-0.1\n")
    done = run("migrate", "--from-0.1", *url)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "carried over tasks: 1 rows")
    assert run("migrate", *url).stdout == f"up to date (revision {head()})\n"
    assert run("migrate", "--from-0.1", *url).stderr.startswith("error: there is nothing to carry over")


def test_sql_and_check_together_are_a_mistake(run: Run) -> None:
    assert run("migrate", "--sql", "--check").exit_code == 2


def test_user_without_rights_is_told_in_one_line(run: Run, database_url: str, empty_database_url: str) -> None:
    role = f"tasklib_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        try:
            empty, full = (make_conninfo(u, user=role, password="x") for u in (empty_database_url, database_url))
            creating, reading = run("migrate", "--database-url", empty), run("list", "--database-url", full)
        finally:
            connection.execute(f"DROP ROLE {role}".encode())
    assert creating.exit_code == reading.exit_code == 1
    assert "permission denied for schema public" in creating.stderr
    assert creating.stderr.count("\n") == 1
    assert reading.stderr == "error: PostgreSQL says: permission denied for table tasks\n"


def test_tasks_of_an_earlier_library_are_taken_over_and_what_became_of_them_is_said(
    run: Run, empty_database_url: str
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("""
            CREATE TABLE tasks (
                id uuid, name text, state text, kwargs jsonb, scheduled_at timestamp, created_at timestamp,
                completed_at timestamp, retry_count int, max_retries int, customer text);
            INSERT INTO tasks SELECT gen_random_uuid(), 'old', state, '{}', now(), now(), done, 3, 3
            FROM (VALUES ('pending', NULL), ('failed', now()), ('failed', now())) AS old (state, done)
        """)
    url = ("--database-url", empty_database_url)
    refused = run("migrate", *url)
    assert refused.stderr.endswith("To run the tasks that are in it: tasklib migrate --take-over public.tasks\n")
    taken = run("migrate", "--take-over", "public.tasks", "--time-zone", "Europe/Berlin", *url)
    assert taken.stdout == (
        "copied 3 tasks: 2 dead_letter, 1 pending\n"
        "not copied, as TaskLib has no such columns: customer\n"
        "The leader deletes dead letters 30 days after they ended, which may be at once: "
        "set TASKLIB_DEAD_LETTER_DAYS before a worker starts.\n"
        "Every row is still in public.before_tasklib_tasks: drop it when you don't need it any more.\n"
    )
    assert run("migrate", "--check", *url).exit_code == 0
    assert run("migrate", "--take-over", "tasks", "--check", *url).exit_code == 2
