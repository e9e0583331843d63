"""A worker that loses its connections while it is idle, on each event loop it may run on."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.events import DatabaseBack
from tests.loops import LOOPS
from tests.worker.watching import working


@pytest.fixture(scope="module", params=LOOPS)
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    policy: asyncio.AbstractEventLoopPolicy = request.param()
    return policy


@pytest.mark.direct(reason="behind a pooler it doesn't even notice")
async def test_a_worker_whose_idle_connections_were_lost_runs_the_next_task(
    config: Config, db: psycopg.Connection
) -> None:
    """Within the time a statement may take: it notices by itself that they are gone."""

    @task
    async def work(n: int) -> int:
        return n

    patient = config.with_changes(statement_timeout_seconds=600.0)
    async with AsyncClient(config) as client, working(patient, poll_interval_seconds=600.0) as watched:
        await watched.ended(await client.submit_task(work, n=0), "completed")
        await watched.asleep()
        db.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE application_name LIKE 'tasklib %' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        await watched.ended(await client.submit_task(work, n=1), "completed")
        await watched.until(DatabaseBack)
