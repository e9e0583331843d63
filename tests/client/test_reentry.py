"""Clients where two calls meet: loops in several threads, signal handlers in the middle of another call."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import AsyncClient, Client, Config, task
from tasklib.client import default

_SOURCES = str(Path(tasklib.__file__).parent)


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class HttpEffect:
    """A loop of another thread, and the client for it."""

    def is_closed(self) -> bool:
        return False

    def close(self) -> None: ...


@pytest.mark.usefixtures("eager_switching")
def test_default_client_serves_loops_in_many_threads(config: Config) -> None:
    tasklib.init(config)
    # Many, so that looking at all of them takes long enough for the threads to meet.
    others = [HttpEffect() for _ in range(5000)]
    default._async_clients.update({other: other for other in others})  # type: ignore[misc]
    together = threading.Barrier(8)
    errors: list[BaseException] = []

    async def ask() -> AsyncClient:
        return default.default_async_client()

    def work() -> None:
        try:
            together.wait(60)
            for _ in range(10):
                asyncio.run(ask())
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_many_threads_submit_each_from_its_own_loop(config: Config, db: psycopg.Connection) -> None:
    @task
    async def work() -> None: ...

    tasklib.init(config)
    threads = [threading.Thread(target=lambda: [asyncio.run(work.submit()) for _ in range(3)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (24,)


def test_submit_sync_in_a_signal_handler_works_wherever_it_interrupts_another(
    config: Config, db: psycopg.Connection
) -> None:
    @task
    def work() -> None: ...

    tasklib.init(config.with_changes(max_connections=1))
    submitted: list[Any] = []
    struck: set[tuple[str, int]] = set()

    def strike(frame: FrameType, event: str, _: object) -> Any:
        place = frame.f_code.co_filename, frame.f_lineno
        if place[0] != threading.__file__ and not place[0].startswith(_SOURCES):
            return None
        if event == "line" and place not in struck:
            struck.add(place)
            sys.settrace(None)
            submitted.append(work.submit_sync())  # as a handler would, between two lines of the main thread
            sys.settrace(strike)
        return strike

    def give_up(*_: object) -> None:
        raise AssertionError("it waits for what it has interrupted")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    try:
        sys.settrace(strike)
        submitted.append(work.submit_sync())
        sys.settrace(None)
        submitted.append(work.submit_sync())
    finally:
        sys.settrace(None)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert len(submitted) > 50
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (len(submitted),)


async def test_closing_an_async_client_may_be_awaited(config: Config) -> None:
    client = AsyncClient(config)
    await client.count_states()
    await client.close()
    await client.count_states()
    client.close()
    await client.close()
    async with client:
        await client.count_states()


def test_closing_a_sync_client_is_no_different(config: Config) -> None:
    with Client(config) as client:
        client.count_states()
