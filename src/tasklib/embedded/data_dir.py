"""The data directory: made by its first user, retired by its last."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tasklib.embedded.accounts import Account
from tasklib.embedded.processes import shut_down, this_process
from tasklib.embedded.state import State, locked_state

TEMPORARY_PREFIX = "tasklib-tmp-"


def default_data_dir(version: int = 18) -> Path:
    """Where `tasklib dev` keeps its database."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "tasklib" / f"postgres-{version}"


def pgdata_in(directory: Path) -> Path:
    """The cluster itself, wherever root had to put it."""
    return (directory / "data").resolve()


def make_data_dir(directory: Path | None) -> Path:
    """Make the directory unless it exists; for None a temporary one. Root lets the server's account pass."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    if directory is None:
        scratch = Account.choose().scratch_dir()
        _sweep(scratch)
        directory = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=scratch))
        directory.chmod(mode)
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    return directory


def leave(directory: Path, state: State) -> None:
    """Take one use by this process off the books; the last user retires the server."""
    with suppress(ValueError):
        state.users.remove(this_process())
    if not state.users:
        _retire(directory, state)


def _sweep(scratch: Path) -> None:
    """Retire temporary servers whose users were all killed."""
    for directory in scratch.glob(f"{TEMPORARY_PREFIX}*"):
        with suppress(OSError):  # locked by its user, or deleted by another process at the same time
            if directory.lstat().st_uid == os.geteuid():
                with locked_state(directory, wait=False) as state:
                    if state.temporary and not state.users:
                        _retire(directory, state)


def _retire(directory: Path, state: State) -> None:
    """Stop a server that has no more users, and delete what was temporary."""
    shut_down(pgdata_in(directory), "fast")
    if state.socket_dir:
        shutil.rmtree(state.socket_dir, ignore_errors=True)
        state.socket_dir = ""
    if state.temporary:
        # state.json goes last: an initdb whose starter was killed may still be writing, and then the next
        # sweep has to know what this directory is.
        with suppress(OSError):
            for cluster in directory.glob("data*"):
                shutil.rmtree(cluster)
            shutil.rmtree(directory)
