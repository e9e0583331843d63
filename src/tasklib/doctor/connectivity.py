"""The connection to the database: is there a pooler in it, in which mode, and do notifications come through?"""

from __future__ import annotations

import asyncio
import time
import uuid
from enum import StrEnum

import psycopg

from tasklib.client.effects import Call, RunCoroutine
from tasklib.config import Config
from tasklib.db.connect import TASKS, connect_async
from tasklib.db.fast_path import discard
from tasklib.doctor.findings import Finding, critical, note, ok, warning
from tasklib.errors import DatabaseUnavailable
from tasklib.formatting import duration

PATIENCE_SECONDS = 10.0
_ROUNDS = 5


class Connectivity(StrEnum):
    DIRECT = "direct"
    SESSION = "session"
    TRANSACTION = "transaction"


def pooler(config: Config) -> Call[list[Finding]]:
    """A pooler in transaction mode loses prepared statements and settings of the session."""
    mode: Connectivity = yield RunCoroutine(_connectivity)
    refused: str | None = (yield RunCoroutine(_refused)) if config.prepared_statements else None
    if mode is Connectivity.DIRECT and refused is None:
        return [ok("pooler", "There is no pooler between here and PostgreSQL.", mode=mode.value)]
    if config.prepared_statements and (mode is Connectivity.TRANSACTION or refused):
        seen = f"PostgreSQL is reached through a pooler in {mode} mode, and prepared_statements is on."
        return [
            critical(
                "pooler",
                seen + (f" A worker's connection is refused: {refused}" if refused else ""),
                "A statement prepared on one server connection is unknown to the next one, and the settings a worker "
                "asks for are refused or lost: statements fail.",
                "export TASKLIB_PREPARED_STATEMENTS=false  for every program that goes through it.",
                mode=mode.value,
            )
        ]
    seen = f"PostgreSQL is reached through a pooler in {mode} mode."
    return [note("pooler", seen, "", "Nothing to do: prepared_statements is off.", mode=mode.value)]


def listening(config: Config) -> Call[list[Finding]]:
    """A notification is sent, and has to arrive."""
    if not config.listen:
        every = duration(config.poll_interval_seconds)
        seen = f"Notifications are disabled; idle workers poll every {every}."
        return [note("listen", seen, "A new task waits for the next poll.", "", listen=False)]
    mode: Connectivity = yield RunCoroutine(_listening_connectivity)
    if mode is Connectivity.TRANSACTION:
        return [
            _deaf(
                config,
                "LISTEN goes through a pooler in transaction mode, which doesn't pass notifications on.",
                "Give it a direct connection: export TASKLIB_LISTEN_DATABASE_URL=postgresql://...  Or disable it: "
                "export TASKLIB_LISTEN=false",
            )
        ]
    seconds: float | None = yield RunCoroutine(_round_trip)
    if seconds is None:
        seen = f"A notification did not arrive within {duration(PATIENCE_SECONDS)}."
        action = "See that listen_database_url leads to the primary of the same database, not to a standby."
        return [_deaf(config, seen, action)]
    return [ok("listen", f"A notification arrived after {duration(seconds)}.", seconds=seconds)]


def _deaf(config: Config, seen: str, action: str) -> Finding:
    every = duration(config.poll_interval_seconds)
    why = f"Idle workers notice new tasks, and running ones cancel requests, only when they poll: every {every}."
    return warning("listen", seen, why, action)


async def _connectivity(config: Config) -> Connectivity:
    return await way_to(config, config.database_url)


async def _listening_connectivity(config: Config) -> Connectivity:
    return await way_to(config, config.listen_database_url or config.database_url)


async def way_to(config: Config, url: str) -> Connectivity:
    """What is between here and the server at this URL."""
    first = await connect_async(config, url=url, role="doctor")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            # A pooler answers for itself when asked to connect: the process it speaks of is not the one behind it.
            if await _process(first) == first.info.backend_pid:
                return Connectivity.DIRECT
        return await _mode(config, url, first)
    finally:
        discard(first)


async def _mode(config: Config, url: str, first: psycopg.AsyncConnection) -> Connectivity:
    """In transaction mode, two sessions at a time use one server process; in session mode never."""
    second = await connect_async(config, url=url, role="doctor")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(_ROUNDS):
                if await _process(first) == await _process(second):
                    return Connectivity.TRANSACTION
    except TimeoutError:
        pass  # it has to wait until the first has left
    finally:
        discard(second)
    return Connectivity.SESSION


async def _process(connection: psycopg.AsyncConnection) -> int:
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    assert row is not None
    return int(row[0])


async def _refused(config: Config) -> str | None:
    """The error that a connecting worker gets; None if it can connect."""
    try:
        discard(await connect_async(config, role=TASKS))
    except DatabaseUnavailable as e:
        return " ".join(str(e.__cause__ or e).split())
    return None


async def _round_trip(config: Config) -> float | None:
    """Seconds from NOTIFY, on the usual connection, to its arrival where workers listen; None if it doesn't arrive."""
    channel = f"tasklib_doctor_{uuid.uuid4().hex}"  # used by this run only
    listener = await connect_async(config, url=config.listen_database_url, role="doctor")
    try:
        await listener.execute(f"LISTEN {channel}".encode())
        sender = await connect_async(config, role="doctor")
        began = time.monotonic()
        try:
            await sender.execute(f"NOTIFY {channel}".encode())
        finally:
            discard(sender)
        async for _ in listener.notifies(timeout=PATIENCE_SECONDS, stop_after=1):
            return time.monotonic() - began
        return None
    finally:
        discard(listener)
