"""The processes of a server: finding them, signalling them, ending them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tasklib.embedded.errors import EmbeddedPostgresError

# Signals and the seconds to wait for each; what survives them is killed.
STOP_STEPS = {"fast": [(signal.SIGINT, 30), (signal.SIGQUIT, 10)], "immediate": [(signal.SIGQUIT, 10)]}


def start_time(pid: int) -> int | None:
    """When a living process started; together with the pid this tells it from a later one."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None


def this_process() -> list[int]:
    return [os.getpid(), start_time(os.getpid()) or 0]


def find_postmaster(pgdata: Path) -> int | None:
    """The pid in postmaster.pid, if that still is the server of this directory."""
    try:
        pid = int((pgdata / "postmaster.pid").read_text().splitlines()[0])
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, IndexError):
        return None
    return pid if os.fsencode(pgdata) in arguments and start_time(pid) is not None else None


def discard_reused_pid_file(pgdata: Path) -> None:
    """Remove a postmaster.pid that now names a stranger or a zombie: PostgreSQL would refuse to start."""
    with suppress(OSError, IndexError):
        if _stat_fields((pgdata / "postmaster.pid").read_text().splitlines()[0]):
            (pgdata / "postmaster.pid").unlink()


def freeze(pgdata: Path) -> list[int]:
    """Stop the whole family in its tracks and return its pids."""
    _send(_family(pgdata)[:1], signal.SIGSTOP)  # the postmaster first, so that it forks no more children
    family = _family(pgdata)
    _send(family, signal.SIGSTOP)
    return family


def thaw(pgdata: Path) -> list[int]:
    family = _family(pgdata)
    _send(family, signal.SIGCONT)
    return family


def kill_all(pgdata: Path) -> None:
    family = freeze(pgdata)
    _send(family, signal.SIGKILL)
    if not _await_exit(family, 10):
        raise EmbeddedPostgresError(f"Processes of the server in {pgdata} survive SIGKILL: {family}")


def shut_down(pgdata: Path, mode: Literal["fast", "immediate"]) -> None:
    """What `pg_ctl stop` does; by signals, because the sweep has no binaries at hand."""
    for number, timeout in STOP_STEPS[mode]:
        postmaster = thaw(pgdata)[:1]  # a paused server would not hear
        _send(postmaster, number)
        if _await_exit(postmaster, timeout):
            return
    kill_all(pgdata)


def _stat_fields(pid: int | str) -> list[bytes]:
    """/proc/<pid>/stat from the third field on (state, parent, ...); empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _family(pgdata: Path) -> list[int]:
    """The postmaster and its children; nothing while the server is down."""
    postmaster = find_postmaster(pgdata)
    if postmaster is None:
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [postmaster] + [pid for pid in pids if _stat_fields(pid)[1:2] == [str(postmaster).encode()]]


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _await_exit(pids: Sequence[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(start_time(pid) is not None for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
