"""The whole life of tasks where the role has settings that TaskLib never asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, current_task, task
from tasklib.db.database import Database
from tasklib.db.query import Query
from tests.eventually import soon
from tests.shapes import SETTINGS, role_with
from tests.worker.watching import working


@pytest.fixture(params=SETTINGS)
def odd(request: pytest.FixtureRequest, database_url: str) -> Iterator[Config]:
    """This database for a role of odd settings."""
    with role_with(database_url, SETTINGS[request.param]) as url:
        yield Config(url, retry_jitter=0.0, base_retry_delay_seconds=0.0)


async def test_a_task_lives_its_whole_life_whatever_the_role_has_set(odd: Config, db: psycopg.Connection) -> None:
    @task(max_retries=1)
    async def work(n: int) -> str:
        current_task().progress(n)
        if current_task().attempt == 1:
            raise ValueError("früh")
        return f"{n} Stück"

    @task(transactional=True)
    async def within(connection: psycopg.AsyncConnection) -> str:
        current_task().progress("half")
        await soon(lambda: db.execute("SELECT id FROM tasks WHERE progress = '\"half\"'").fetchone(), "it is stored")
        return "together"

    @task(max_retries=0)
    def fails() -> None:
        raise ValueError("never")

    async with AsyncClient(odd) as client, working(odd) as watched:
        begun = datetime.now(UTC)
        ids = [await client.submit_task(work, n=7), *await client.submit_many(work, [{"n": n} for n in range(3)])]
        keyed = [await client.submit_task(work, n=1, idempotency_key="once") for _ in range(2)]
        assert keyed[0] == keyed[1]
        both = [await client.submit_task(within), await client.submit_task(fails)]
        later = await client.submit_task(work, n=9, scheduled_at=begun + timedelta(days=3))
        for task_id in (*ids, keyed[0], both[0]):
            await watched.ended(task_id, "completed")
        await watched.ended(both[1], "dead_letter")
        row = await client.get_task(ids[0])
        assert row is not None
        assert (row.result, row.retry_count) == ("7 Stück", 1)
        assert row.completed_at is not None
        assert row.created_at <= row.completed_at < begun + timedelta(hours=1)
        assert len(await client.list_tasks(limit=100)) == 8
        waiting = await client.get_task(later)
        assert waiting is not None
        assert waiting.scheduled_at == begun + timedelta(days=3)
        assert (await client.explain_task(later)).reasons
        assert await client.queue_position(later) is None
        assert [letter.id for letter in await client.dead_letters()] == [both[1]]


def test_our_sessions_say_themselves_what_they_rely_on(odd: Config) -> None:
    database = Database(odd)
    with database.connection() as connection:
        for name, value in {
            "jit": "off",
            "lock_timeout": "0",
            "statement_timeout": "0",
            "idle_in_transaction_session_timeout": "0",
            "default_transaction_isolation": "read committed",
            "TimeZone": "UTC",
            "client_encoding": "UTF8",
            "DateStyle": "ISO",
        }.items():
            found = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            assert found is not None
            assert found[0].split(",")[0] == value, name
    database.close()


def test_submissions_that_meet_others_are_tried_again_after_a_pause(config: Config, db: psycopg.Connection) -> None:
    """Where the isolation can't be asked for: behind a pooler that knows no start-up options."""
    db.execute("CREATE SEQUENCE tries")
    db.execute("""CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                      IF nextval('tries') < 8 THEN RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END IF;
                      RETURN NEW;
                  END $$""")
    db.execute("CREATE TRIGGER meet BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION meet()")
    with Client(config.with_changes(prepared_statements=False)) as client:
        task_id = client.submit_task("elsewhere", registered_elsewhere=True)
        assert client.get_task(task_id) is not None
        db.execute("SELECT setval('tries', 1)")
        assert len(client.submit_many("elsewhere", [{}] * 300, registered_elsewhere=True)) == 300
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (301,)


def test_times_are_read_behind_a_pooler_that_knows_no_start_up_options(database_url: str) -> None:
    with role_with(database_url, SETTINGS["German dates"]) as url:
        database = Database(Config(url, prepared_statements=False))
        assert database.run(Query("now", {}, lambda rows: rows[0][0])).year >= 2026
        database.close()
