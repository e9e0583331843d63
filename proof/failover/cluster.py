"""The cluster: etcd, two nodes of Patroni with PostgreSQL, and HAProxy before them. From Debian's packages.

clients ──▶ HAProxy ──▶ node1 ◀── replication ──▶ node2        each node: Patroni and its PostgreSQL
              │ /primary?  └───── etcd ────────────┘            all ways between nodes and etcd can be cut
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from proof.chaos.proxy import Proxy
from proof.ports import free_port

NEEDED = ("etcd", "patroni", "haproxy")
BIN = Path("/usr/lib/postgresql/15/bin")
PASSWORD = "only-on-loopback"
TTL, LOOP_WAIT, RETRY_TIMEOUT = 20, 2, 5


def missing() -> list[str]:
    """What has to be installed first."""
    gone = [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    return gone + ([] if BIN.exists() else ["postgresql-15"])


@dataclass
class Node:
    """One server: Patroni, its PostgreSQL, and its ways to the others."""

    name: str
    directory: Path
    port: int
    rest: int
    etcd: Proxy
    """Its way to etcd."""
    backend: Proxy
    """The others' way to its PostgreSQL."""
    process: subprocess.Popen[bytes] | None = None

    def pids(self) -> list[int]:
        """Patroni and all of its PostgreSQL."""
        mark = str(self.directory)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if mark in (entry / "cmdline").read_bytes().decode(errors="replace"):
                        found.append(int(entry.name))
        children = [p for p in _children_of(found) if p not in found]
        return found + children


def _children_of(parents: list[int]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) in parents:
                    found.append(int(entry.name))
    return found


@dataclass
class Cluster:
    """Started by `with`. `synchronous` is Patroni's synchronous_mode."""

    synchronous: bool
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tasklib-failover-")))

    def __enter__(self) -> Self:
        self._account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        self.directory.chmod(0o755)
        self._own(self.directory)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._etcd_port, peers = free_port(), free_port()
        self._start(
            "etcd",
            *("etcd", "--name", "one", "--data-dir", str(self.directory / "etcd"), "--enable-v2"),
            *("--listen-client-urls", f"http://127.0.0.1:{self._etcd_port}"),
            *("--advertise-client-urls", f"http://127.0.0.1:{self._etcd_port}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peers}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}"),
            *("--initial-cluster", f"one=http://127.0.0.1:{peers}"),
        )
        self.nodes = [self._node(name) for name in ("node1", "node2")]
        self._start_node(self.nodes[0])
        self.wait_for_primary()
        self._start_node(self.nodes[1])
        self._wait(lambda: len(self._streaming()) == 1, "a standby that streams")
        self._haproxy()
        self._wait(self._answers, "HAProxy")
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            for pid in node.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- who is who ----

    @property
    def url(self) -> str:
        """Through HAProxy."""
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    @property
    def url_of_both(self) -> str:
        """Without HAProxy: libpq finds the server that takes writes."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres:{PASSWORD}@{hosts}/postgres?target_session_attrs=read-write"

    def primary(self) -> Node | None:
        for node in self.nodes:
            if self._rest(node, "/primary") == 200:
                return node
        return None

    def standby_of(self, primary: Node) -> Node:
        return next(node for node in self.nodes if node is not primary)

    def wait_for_primary(self, but: Node | None = None, seconds: float = 120) -> Node:
        found: list[Node] = []

        def there() -> bool:
            node = self.primary()
            if node is not None and node is not but:
                found.append(node)
            return bool(found)

        self._wait(there, "a primary", seconds)
        return found[0]

    def wait_until_whole(self) -> None:
        """One primary, one standby that streams, and in synchronous mode one that is waited for."""
        wanted = {"sync", "quorum"} if self.synchronous else {"async"}
        self._wait(lambda: self._streaming() and set(self._streaming()) <= wanted, "a whole cluster", 180)

    # ---- faults ----

    def switch_over(self) -> Node:
        """A planned change of the primary."""
        primary = self.wait_for_primary()
        body = json.dumps({"leader": primary.name, "candidate": self.standby_of(primary).name}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{primary.rest}/switchover", body, method="POST")

        def done() -> bool:
            try:
                urllib.request.urlopen(request, timeout=60).read()
            except urllib.error.HTTPError as e:
                if e.code != 412:  # the standby is not far enough yet
                    raise
                return False
            return True

        self._wait(done, "switchover")
        return primary

    def kill_primary(self) -> Node:
        """The machine is gone: Patroni and PostgreSQL by SIGKILL."""
        primary = self.wait_for_primary()
        for pid in primary.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return primary

    def cut_off_primary(self) -> Node:
        """It lives, and clients reach it; but neither etcd nor the standby does."""
        primary = self.wait_for_primary()
        primary.etcd.cut()
        primary.backend.cut()
        return primary

    def freeze_primary(self) -> Node:
        primary = self.wait_for_primary()
        for pid in primary.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return primary

    def heal(self, node: Node) -> None:
        """Bring it back, whatever was done to it."""
        node.etcd.mend()
        node.backend.mend()
        for pid in node.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if node.process is None or node.process.poll() is not None:
            self._start_node(node)

    # ---- how it is made ----

    def _node(self, name: str) -> Node:
        directory = self.directory / name
        directory.mkdir(mode=0o700)
        self._own(directory)
        port = free_port()
        return Node(name, directory, port, free_port(), Proxy("127.0.0.1", self._etcd_port), Proxy("127.0.0.1", port))

    def _start_node(self, node: Node) -> None:
        configuration = node.directory / "patroni.yml"
        configuration.write_text(json.dumps(self.configuration(node), indent=2))  # JSON is YAML
        self._own(configuration)
        node.process = self._start(node.name, "patroni", str(configuration))

    def configuration(self, node: Node) -> dict[str, Any]:
        """What Patroni is told; docs/how-to/high-availability.md shows it."""
        access = {"username": "postgres", "password": PASSWORD}
        return {
            "scope": "tasklib",
            "name": node.name,
            "restapi": {"listen": f"127.0.0.1:{node.rest}", "connect_address": f"127.0.0.1:{node.rest}"},
            # `use_proxies`: it keeps to this address, which can be cut, and asks etcd for no other.
            "etcd": {"hosts": f"127.0.0.1:{node.etcd.port}", "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": LOOP_WAIT,
                    "retry_timeout": RETRY_TIMEOUT,
                    "synchronous_mode": self.synchronous,
                    "maximum_lag_on_failover": 64 * 1024 * 1024,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"max_connections": 100, "wal_log_hints": "on", "wal_keep_size": "512MB"},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{node.port}",
                "connect_address": f"127.0.0.1:{node.backend.port}",
                "data_dir": str(node.directory / "data"),
                "bin_dir": str(BIN),
                "pgpass": str(node.directory / "pgpass"),
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 scram-sha-256",
                    "host replication all 127.0.0.1/32 scram-sha-256",
                ],
                "parameters": {"unix_socket_directories": str(node.directory)},
                "authentication": {"superuser": access, "replication": access, "rewind": access},
            },
        }

    def _haproxy(self) -> None:
        self.port = free_port()
        servers = "\n".join(
            f"    server {n.name} 127.0.0.1:{n.port} check port {n.rest} on-marked-down shutdown-sessions"
            for n in self.nodes
        )
        file = self.directory / "haproxy.cfg"
        file.write_text(HAPROXY.format(port=self.port, servers=servers))
        self._own(file)
        self._start("haproxy", "/usr/sbin/haproxy", "-db", "-f", str(file))

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = (self.directory / f"{name}.log").open("ab")
        options: dict[str, Any] = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": self.directory}
        if self._account is not None:
            options |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        environment = {"PATH": f"{os.environ['PATH']}:/usr/sbin", "HOME": str(self.directory), "LC_ALL": "C.UTF-8"}
        process = subprocess.Popen(command, env=environment, **options)
        self._processes.append(process)
        return process

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _rest(self, node: Node, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{node.rest}{path}", timeout=2) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as e:
            return e.code
        except OSError:
            return 0

    def _streaming(self) -> list[str]:
        """How each standby that streams is waited for."""
        import psycopg

        if (node := self.primary()) is None:
            return []
        try:
            with psycopg.connect(
                f"postgresql://postgres:{PASSWORD}@127.0.0.1:{node.port}/postgres", connect_timeout=3
            ) as db:
                rows = db.execute("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'").fetchall()
                return [row[0] for row in rows]
        except psycopg.Error:
            return []

    def _answers(self) -> bool:
        import psycopg

        with suppress(psycopg.Error), psycopg.connect(self.url, connect_timeout=3) as db:
            return db.execute("SELECT NOT pg_is_in_recovery()").fetchone() == (True,)
        return False

    def _wait(self, condition: Any, what: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"== {p.name}\n{p.read_text()[-1500:]}" for p in sorted(self.directory.glob("*.log")))
                raise TimeoutError(f"no {what} within {seconds:g} s\n{logs}")
            time.sleep(0.2)


HAPROXY = """\
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout check 2s

listen postgresql
    bind 127.0.0.1:{port}
    option httpchk GET /primary
    http-check expect status 200
    default-server inter 1s fall 2 rise 1
{servers}
"""
