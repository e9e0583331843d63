"""What the users of a data directory share: state.json, which is also their lock."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasklib.embedded.errors import EmbeddedPostgresError
from tasklib.embedded.processes import start_time


class State:
    """The content of state.json while its lock is held. Users that have died are dropped on reading."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        try:
            stored = json.loads(os.pread(fd, os.fstat(fd).st_size, 0))
        except ValueError:  # new, or its writer was killed
            stored = {}
        self.users = [[pid, start] for pid, start in stored.get("users", []) if start_time(pid) == start]
        self.port: int = stored.get("port", 0)
        self.socket_dir: str = stored.get("socket_dir", "")
        self.temporary: bool = stored.get("temporary", False)

    def save(self) -> None:
        text = json.dumps({name: value for name, value in vars(self).items() if name != "_fd"}).encode()
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))


@contextmanager
def locked_state(directory: Path, *, wait: bool = True) -> Iterator[State]:
    """Hold the lock of a data directory; what the block does to the state is saved."""
    path = directory / "state.json"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError:
        raise EmbeddedPostgresError(f"{directory} belongs to another user: use another data_dir.") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), path.stat()):
            raise FileNotFoundError(f"{directory} was just deleted by its last user: start again.")
        state = State(fd)
        try:
            yield state
        finally:
            state.save()
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough if a fork of this process has it open too
        os.close(fd)
