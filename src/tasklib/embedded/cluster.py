"""The cluster in a data directory: initdb, launch, and the wait until it answers."""

from __future__ import annotations

import os
import random
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tasklib.embedded.accounts import Account
from tasklib.embedded.data_dir import pgdata_in
from tasklib.embedded.errors import EmbeddedPostgresError
from tasklib.embedded.processes import discard_reused_pid_file, find_postmaster
from tasklib.embedded.state import State

READY_SECONDS = 60
LAUNCH_ATTEMPTS = 20
# Below the range from which the kernel takes ports for outgoing connections: while the server is down, no
# client socket can take its port, and URLs handed out earlier stay valid.
PORTS = range(20_000, 32_000)
SETTINGS = {"listen_addresses": "127.0.0.1", "max_connections": "300", "shared_buffers": "128MB"}
# Nothing in a temporary server has to survive a power failure. synchronous_commit stays on, because tests
# kill the server and expect to find what was committed.
TEMPORARY_SETTINGS = SETTINGS | {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class Cluster:
    """One data directory together with the binaries and the account that run it."""

    directory: Path
    bin_dir: Path
    account: Account

    @property
    def pgdata(self) -> Path:
        return pgdata_in(self.directory)

    def ensure_running(self, state: State, settings: Mapping[str, str]) -> None:
        if find_postmaster(self.pgdata) is None:
            state.socket_dir = self._socket_dir(state.socket_dir)
            state.save()  # again before the slow part, so that the sweep finds the directory
            self._initialise(state.socket_dir)
            self._launch(state, settings)
        self._await_ready()

    def url(self) -> str:
        """Without a database; the port is the one the running server has."""
        secret = self.directory / "password"
        if not secret.exists():
            raise EmbeddedPostgresError(
                f"{secret} is missing, and the database can't be accessed without it: "
                f"restore it, or delete {self.directory} to start with an empty database."
            )
        port = (self.pgdata / "postmaster.pid").read_text().splitlines()[3]
        return f"postgresql://postgres:{secret.read_text()}@127.0.0.1:{port}"

    def _socket_dir(self, remembered: str) -> str:
        """A directory for the socket, cleared of what a killed server left.

        It is not in the data directory, whose path may exceed the 107 bytes of a socket address.
        """
        if not remembered or not os.path.isdir(remembered) or os.stat(remembered).st_uid != self.account.uid:
            directory = tempfile.mkdtemp(prefix="tasklib-pg-", dir=self.account.scratch_dir())
            return str(self.account.own(Path(directory)))
        for stale in Path(remembered).iterdir():
            stale.unlink()
        return remembered

    def _initialise(self, socket_dir: str) -> None:
        """initdb, in a directory that gets its name when complete: an interrupted one is done again."""
        link = self.directory / "data"
        if link.exists():
            return
        reached = self.account.reaches(self.directory)
        target = link if reached else self.account.public_path("data", self.directory)
        for leftover in target.parent.glob(f"{target.name}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.partial-", dir=target.parent))
        self._initdb(self.account.own(partial), socket_dir)
        link.unlink(missing_ok=True)  # a link whose target is gone
        if reached:
            partial.rename(link)
        else:
            link.symlink_to(partial.rename(f"{target}-{secrets.token_hex(4)}"))

    def _initdb(self, pgdata: Path, socket_dir: str) -> None:
        secret = self.directory / "password"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(24))
        with tempfile.NamedTemporaryFile(dir=socket_dir) as handover:  # a copy that the account can read
            handover.write(secret.read_bytes())
            handover.flush()
            access = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={self.account.own(Path(handover.name))}"]
            shape = ["--encoding=UTF8", "--locale=C", "--no-sync"]
            if self._major() >= 16:
                # Stretching a password of 192 random bits only makes each connection slower, on both sides.
                shape += ["-c", "scram_iterations=1"]
            done = self.account.run(self.bin_dir / "initdb", "-D", pgdata, *access, *shape)
        if done.returncode != 0:
            shutil.rmtree(pgdata)
            raise EmbeddedPostgresError(f"initdb failed for {self.directory}:\n{done.stdout}{done.stderr}")

    def _major(self) -> int:
        """The version of the server's programs: "initdb (PostgreSQL) 18.1"."""
        said = self.account.run(self.bin_dir / "initdb", "--version").stdout
        found = re.search(r"\) (\d+)", said)
        return int(found[1]) if found else 0

    def _launch(self, state: State, settings: Mapping[str, str]) -> None:
        discard_reused_pid_file(self.pgdata)
        log = self.pgdata / "server.log"
        for _ in range(LAUNCH_ATTEMPTS):
            state.port = state.port or random.choice(PORTS)
            seen = log.stat().st_size if log.exists() else 0
            how = ["-w", "-t", str(READY_SECONDS), "-l", str(log), "-o", _server_options(state, settings)]
            done = self.account.run(self.bin_dir / "pg_ctl", "start", "-D", self.pgdata, *how)
            if done.returncode == 0 or find_postmaster(self.pgdata) is not None:
                return  # up, or still recovering, or launched by a process that was killed just now
            written = log.read_bytes()[seen:].decode(errors="replace") if log.exists() else ""
            if "Address already in use" in written:
                state.port = 0
            elif "is still in use" in written:
                time.sleep(0.2)  # the memory is: children of a killed postmaster are still leaving
            else:
                break
        tail = "\n".join(written.splitlines()[-20:])
        raise EmbeddedPostgresError(
            f"PostgreSQL did not start in {self.directory}: {done.stderr.strip()}\nThe end of {log}:\n{tail}"
        )

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                return psycopg.connect(f"{self.url()}/postgres", connect_timeout=READY_SECONDS).close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or find_postmaster(self.pgdata) is None:
                    text = f"The server refuses connections ({error}); see {self.pgdata / 'server.log'}."
                    raise EmbeddedPostgresError(text) from error
                time.sleep(0.05)


def _server_options(state: State, settings: Mapping[str, str]) -> str:
    chosen = dict(TEMPORARY_SETTINGS if state.temporary else SETTINGS)
    chosen |= {"port": str(state.port), "unix_socket_directories": state.socket_dir} | dict(settings)
    return " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in chosen.items())
