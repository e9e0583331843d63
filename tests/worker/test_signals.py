"""Signals drain a worker wherever it runs, unless the program has handlers of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psycopg
import pytest

from tasklib import Client, Config, Worker
from tasklib.events import WorkerStarted
from tasklib.tasks import registry
from tests.worker import fleet_tasks
from tests.worker.fleet import PATIENCE, Fleet, fleet_of
from tests.worker.watching import Watched, working

BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def fleet(database_url: str, db: psycopg.Connection, tmp_path: Path) -> Iterator[Fleet]:
    registry.register(fleet_tasks.hold)
    with fleet_of(database_url, db, tmp_path) as fleet:
        yield fleet


def holding(fleet: Fleet, config: Config) -> subprocess.Popen[bytes]:
    """A program with `worker.run_sync()` in it, in the middle of a task."""
    with Client(config) as client:
        client.submit_task(fleet_tasks.hold, until="go")
    process = fleet.start()
    fleet.wait_for_value(1, "SELECT count(*) FROM notes WHERE what = 'started'")
    return process


@pytest.mark.parametrize("number", BOTH)
def test_first_signal_to_run_sync_lets_the_running_task_finish(
    fleet: Fleet, config: Config, number: signal.Signals
) -> None:
    process = holding(fleet, config)
    process.send_signal(number)
    fleet.wait(lambda: "WorkerDraining" in fleet.said(process), "it drains")
    fleet.db.execute("INSERT INTO notes (what) VALUES ('go')")
    assert process.wait(PATIENCE) == 0
    assert fleet.value("SELECT state FROM tasks") == "completed"
    assert fleet.value("SELECT count(*) FROM workers") == 0


@pytest.mark.parametrize("number", BOTH)
def test_second_signal_to_run_sync_gives_the_running_task_back(
    fleet: Fleet, config: Config, number: signal.Signals
) -> None:
    process = holding(fleet, config)
    process.send_signal(number)
    fleet.wait(lambda: "WorkerDraining" in fleet.said(process), "it drains")
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert fleet.value("SELECT state FROM tasks") == "pending"
    assert fleet.value("SELECT count(*) FROM workers") == 0


async def test_one_signal_stops_all_workers_of_a_loop_and_then_does_what_it_did(config: Config) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with working(config) as one, working(config) as two:
        os.kill(os.getpid(), signal.SIGTERM)
        for watched in (one, two):
            assert watched.finished is not None
            await watched.finished
    assert signal.getsignal(signal.SIGTERM) == before


async def test_handler_of_the_program_stays_and_gets_the_signal(config: Config) -> None:
    got: list[int] = []

    def mine(number: int, frame: FrameType | None) -> None:
        got.append(number)

    before = signal.signal(signal.SIGTERM, mine)
    try:
        async with working(config) as watched:
            assert signal.getsignal(signal.SIGTERM) is mine
            os.kill(os.getpid(), signal.SIGTERM)
            assert got == [signal.SIGTERM]
            assert watched.finished is not None
            assert not watched.finished.done()
            assert not watched.worker._stop_asked.is_set()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_worker_made_without_signals_leaves_them_alone(config: Config) -> None:
    before = [signal.getsignal(number) for number in BOTH]
    async with working(config, signals=False):
        assert [signal.getsignal(number) for number in BOTH] == before


def test_worker_in_another_thread_runs_without_signals(config: Config) -> None:
    worker = Worker(config, burst=True)
    thread = threading.Thread(target=worker.run_sync)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


async def test_worker_told_to_stop_while_it_connects_ends(config: Config) -> None:
    connected = asyncio.Event()
    silent = await asyncio.start_server(lambda reader, writer: connected.set(), "127.0.0.1", 0)  # and never answers
    port = silent.sockets[0].getsockname()[1]
    worker = Worker(Config(f"postgresql://nobody@127.0.0.1:{port}/nowhere"))
    watched = Watched(worker)
    running = asyncio.create_task(worker.run())
    await connected.wait()
    worker.stop()
    await running
    assert not watched.all(WorkerStarted)
    silent.close()
