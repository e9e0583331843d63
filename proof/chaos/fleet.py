"""The processes of a run: started, killed, frozen, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from proof.chaos.scene import Scene

ROOT = Path(__file__).parents[2]
SLOTS = 8
FAKETIME = next(
    (path for path in map(Path, ("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",)) if path.exists()), None
)


@dataclass
class Member:
    """One program that is kept running: if it dies, `tend()` starts it anew."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    frozen: bool = False

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def is_worker(self) -> bool:
        return self.module.endswith(".worker")


class Fleet:
    """All programs but PostgreSQL."""

    def __init__(self, here: Scene, members: list[Member]) -> None:
        self._scene = here
        self.members = members
        self._starting = threading.Lock()

    def restart(self, member: Member, **environment: str) -> None:
        """Kill it, and start it in this environment before `tend()` starts it in the usual one."""
        with self._starting:
            self.signal(member, signal.SIGKILL)
            if member.process is not None:
                member.process.wait(10)
            self._start(member, environment)

    def _start(self, member: Member, environment: dict[str, str]) -> None:
        output = (self._scene.log_directory / f"{member.name}.out").open("ab")
        member.environment = environment
        member.frozen = False
        member.process = subprocess.Popen(
            [sys.executable, "-m", member.module, member.name, *member.arguments],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                **self._scene.environment(),
                "CHAOS_SLOTS": str(SLOTS),
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                **environment,
            },
        )

    def tend(self) -> None:
        """Start what has died. Called again and again."""
        with self._starting:
            for member in self.members:
                if member.pid is None:
                    self._start(member, {})

    def workers(self) -> list[Member]:
        return [m for m in self.members if m.is_worker and m.pid is not None and not m.frozen]

    def signal(self, member: Member, number: signal.Signals) -> None:
        if pid := member.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def freeze(self, member: Member) -> None:
        member.frozen = True
        self.signal(member, signal.SIGSTOP)

    def thaw(self, member: Member) -> None:
        self.signal(member, signal.SIGCONT)
        member.frozen = False

    def children(self, member: Member) -> list[int]:
        """The child processes that run tasks."""
        with suppress(OSError):
            return [int(pid) for pid in Path(f"/proc/{member.pid}/task/{member.pid}/children").read_text().split()]
        return []

    def end(self, kind: str = "", timeout: float = 30.0) -> None:
        """Stop the programs of this kind, politely."""
        chosen = [m for m in self.members if kind in m.module]
        self.members = [m for m in self.members if m not in chosen]
        for member in chosen:
            self.thaw(member)
            self.signal(member, signal.SIGTERM)
        deadline = time.monotonic() + timeout
        for member in chosen:
            if member.process is None:
                continue
            try:
                member.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(member.process.pid, signal.SIGKILL)
                member.process.wait()
