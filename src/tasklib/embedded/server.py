"""The handle that programs use."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from tasklib.embedded.accounts import Account
from tasklib.embedded.binaries import runnable_bin_dir, wheel_bin_dir
from tasklib.embedded.cluster import Cluster
from tasklib.embedded.data_dir import leave, make_data_dir, pgdata_in
from tasklib.embedded.errors import EmbeddedPostgresError, clear_errors
from tasklib.embedded.processes import find_postmaster, freeze, kill_all, shut_down, thaw, this_process
from tasklib.embedded.state import State, locked_state


class EmbeddedPostgres:
    """A handle on the server of one data directory.

    Any number of handles, in any number of processes, share the server; the last one to stop stops it.
    Without `data_dir` the directory is temporary and goes with the last handle. `bin_dir` names another
    installation than the wheel's. `settings` count for the handle that happens to launch the server.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        version: int = 18,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._kept_dir = None if data_dir is None else Path(data_dir).expanduser().absolute()
        self._dir = self._kept_dir
        self._version = version
        self._bin_dir = bin_dir
        self._settings = dict(settings or {})
        self._attached_in: int | None = None  # a pid, as a handle inherited by a fork is not attached
        self._base_url = ""

    @clear_errors()
    def start(self) -> Self:
        """Attach to the server, creating and launching it as needed. Also revives it after `kill()`."""
        bin_dir = self._bin_dir or wheel_bin_dir(self._version)
        self._dir = make_data_dir(self._dir)
        with locked_state(self._dir) as state:
            state.temporary = state.temporary or self._kept_dir is None
            newly_attached = self._attach(state)
            try:
                account = Account.choose(self._dir / "data")
                cluster = Cluster(self._dir, runnable_bin_dir(bin_dir, account), account)
                cluster.ensure_running(state, self._settings)
                self._base_url = cluster.url()
            except BaseException:
                if newly_attached:
                    leave(self._dir, state)
                    self._detach()
                raise
        return self

    @clear_errors()
    def stop(self) -> None:
        """Detach; the last user of the data directory stops the server."""
        if self._attached_in != os.getpid():
            return
        directory = self.data_dir
        self._detach()
        with suppress(FileNotFoundError), locked_state(directory) as state:  # another process may have deleted it
            leave(directory, state)

    def _attach(self, state: State) -> bool:
        if self._attached_in == os.getpid() and this_process() in state.users:
            return False
        state.users.append(this_process())
        state.save()  # before the slow part: if we are killed in it, the sweep must know whose this was
        self._attached_in = os.getpid()
        atexit.register(self.stop)
        return True

    def _detach(self) -> None:
        self._attached_in = None
        self._dir = self._kept_dir
        atexit.unregister(self.stop)

    def url(self, database: str = "postgres") -> str:
        """A libpq URL, password included."""
        if not self._base_url:
            raise EmbeddedPostgresError("The server has no address yet: call start() first.")
        return f"{self._base_url}/{quote(database, safe='')}"

    def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, even if it is in use."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @clear_errors()
    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start; `immediate` skips the checkpoint and recovers from the write-ahead log."""
        self._fall(mode)
        self.start()

    def crash(self) -> None:
        """Stop at once, without a checkpoint. The server stays down until `start()`, which recovers."""
        self._fall("immediate")

    @clear_errors()
    def _fall(self, mode: Literal["fast", "immediate"]) -> None:
        with locked_state(self.data_dir):
            shut_down(self._pgdata, mode)

    @clear_errors()
    def kill(self) -> None:
        """SIGKILL the postmaster and its children. The server stays down until `start()`, which recovers."""
        with locked_state(self.data_dir):
            kill_all(self._pgdata)

    def pause(self) -> None:
        """Freeze the whole server: connections stay open and nothing answers until `resume()`."""
        freeze(self._pgdata)

    def resume(self) -> None:
        thaw(self._pgdata)

    @property
    def data_dir(self) -> Path:
        """The directory in use; give it to another handle to share a temporary server."""
        if self._dir is None:
            raise EmbeddedPostgresError("A temporary server has a directory only between start() and stop().")
        return self._dir

    @property
    def postmaster_pid(self) -> int | None:
        """The pid of the running postmaster, None while the server is down."""
        return find_postmaster(self._pgdata)

    @property
    def _pgdata(self) -> Path:
        return pgdata_in(self.data_dir)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
