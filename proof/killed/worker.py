"""The worker that is killed, and the one that takes over. Each function notes that it begins, in a file."""

from __future__ import annotations

import os
import sys

from tasklib import Config, Worker, current_task, task

_beginnings = os.open(os.environ["KILLED_BEGINNINGS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _note() -> None:
    os.write(_beginnings, f"{current_task().id}\n".encode())


@task(name="killed.unretried", max_retries=0)
async def unretried() -> None:
    _note()


@task(name="killed.once", at_most_once=True)
async def once() -> None:
    _note()


if __name__ == "__main__":
    config = Config(
        sys.argv[1],
        heartbeat_interval_seconds=1.0,
        heartbeat_timeout_seconds=4.0,
        sweep_interval_seconds=1.0,
        leader_lease_seconds=3.0,
    )
    # Only this one: a worker that also serves a task at most once claims less ahead.
    Worker(config, concurrency=int(sys.argv[2]), names=[sys.argv[3]]).run_sync()
