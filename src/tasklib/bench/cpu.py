"""The CPU time of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psycopg

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def seconds_of(pids: Iterable[int]) -> float:
    """CPU seconds of these processes and of those children that they have seen end."""
    return sum(sum(map(int, fields[11:15])) for fields in map(_fields, pids) if fields) / _TICKS_PER_SECOND


def postmaster_of(db: psycopg.Connection) -> int | None:
    """The main process of the server, if it is to be seen from here: on this machine, outside of containers."""
    # Not from the connection: a pooler in between would name itself.
    found = db.execute("SELECT pg_backend_pid(), current_database()").fetchone()
    assert found is not None
    backend, database = found
    # A process of ours may have the number that a server elsewhere has given to its own.
    title = _command_line(backend)
    if not title.startswith(b"postgres: ") or database.encode() not in title.split():
        return None
    return int(_fields(backend)[1])


def seconds_of_trees(roots: Iterable[int]) -> float:
    """CPU seconds of these processes, of those below them that live, and of those that were seen to end.

    Given the main process of a PostgreSQL server: those of the whole server.
    """
    children: dict[int, list[int]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if fields := _fields(pid):
            children.setdefault(int(fields[1]), []).append(pid)
    found = list(roots)
    for pid in found:  # which grows meanwhile
        found += children.get(pid, ())
    return seconds_of(found)


def _fields(pid: int) -> list[str]:
    """/proc/<pid>/stat from the third field on (state, parent, ...); empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""
