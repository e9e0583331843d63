"""The faults, one function each. A fault begins, lasts, and is over when its function returns."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from proof.chaos.fleet import FAKETIME, Fleet, Member
from proof.chaos.proxy import Proxy
from tasklib.embedded import EmbeddedPostgres


@dataclass
class Stage:
    """What faults are done to."""

    server: EmbeddedPostgres
    url: str
    proxy: Proxy
    fleet: Fleet
    random: random.Random
    disk: Path | None
    """A small file system that holds the database, if there may be one."""
    report: Callable[..., None]

    def worker(self) -> Member | None:
        workers = self.fleet.workers()
        return self.random.choice(workers) if workers else None

    def leader(self) -> Member | None:
        holder = str(self.value("SELECT holder FROM leadership WHERE expires_at > now()") or "")
        living = (m for m in self.fleet.members if m.pid is not None and not m.frozen)
        # A worker's id begins with its name; a server's has its process in it.
        return next((m for m in living if holder.startswith(m.name) or f"-{m.pid}-" in holder), None)

    def value(self, query: str) -> object:
        with suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True, connect_timeout=3) as connection:
            row = connection.execute(query.encode()).fetchone()
            return row and row[0]
        return None

    def pause(self, least: float, most: float) -> None:
        time.sleep(self.random.uniform(least, most))


Fault = Callable[[Stage], bool | None]
"""Returns False if it could not be done just now."""


def _kill(stage: Stage, member: Member | None) -> bool:
    if member is None:
        return False
    stage.report(what="killed", member=member.name)
    stage.fleet.signal(member, signal.SIGKILL)
    return True


def _freeze(stage: Stage, member: Member | None, least: float, most: float) -> bool:
    if member is None:
        return False
    stage.fleet.freeze(member)
    stage.pause(least, most)
    stage.fleet.thaw(member)
    return True


def worker_killed(stage: Stage) -> bool:
    return _kill(stage, stage.worker())


def worker_frozen_briefly(stage: Stage) -> bool:
    return _freeze(stage, stage.worker(), 0.5, 2.0)


def worker_frozen_past_its_lease(stage: Stage) -> bool:
    return _freeze(stage, stage.worker(), 9.0, 11.0)


def leader_killed(stage: Stage) -> bool:
    return _kill(stage, stage.leader())


def leader_frozen(stage: Stage) -> bool:
    return _freeze(stage, stage.leader(), 4.0, 6.0)


def child_killed(stage: Stage) -> bool:
    children = [pid for member in stage.fleet.workers() for pid in stage.fleet.children(member)]
    if not children:
        return False
    with suppress(ProcessLookupError):
        os.kill(stage.random.choice(children), signal.SIGKILL)
    return True


def child_frozen(stage: Stage) -> bool:
    children = [pid for member in stage.fleet.workers() for pid in stage.fleet.children(member)]
    if not children:
        return False
    child = stage.random.choice(children)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGSTOP)
        stage.pause(0.5, 2.0)
        os.kill(child, signal.SIGCONT)
    return True


def http_server_killed(stage: Stage) -> bool:
    return _kill(stage, next((m for m in stage.fleet.members if m.module.endswith(".http_server")), None))


def http_server_frozen(stage: Stage) -> bool:
    server = next((m for m in stage.fleet.members if m.module.endswith(".http_server")), None)
    return _freeze(stage, server, 1.0, 6.0)


def submitter_killed(stage: Stage) -> bool:
    submitters = [m for m in stage.fleet.members if m.module.endswith(".submitter")]
    return _kill(stage, stage.random.choice(submitters) if submitters else None)


def worker_restarted(stage: Stage) -> bool:
    if (member := stage.worker()) is None:
        return False
    stage.fleet.signal(member, signal.SIGTERM)
    return True


def workers_restarted_in_turn(stage: Stage) -> None:
    for member in stage.fleet.workers():
        stage.fleet.signal(member, signal.SIGTERM)
        stage.pause(0.5, 1.0)


def worker_with_a_clock_ahead(stage: Stage) -> bool:
    return _shifted(stage, f"+{stage.random.randrange(1, 72)}h")


def worker_with_a_clock_behind(stage: Stage) -> bool:
    return _shifted(stage, f"-{stage.random.randrange(1, 72)}h")


def _shifted(stage: Stage, shift: str) -> bool:
    member = stage.worker()
    if FAKETIME is None or member is None:
        return False
    # Only the wall clock: the monotonic one is the kernel's and can't be shifted on a real machine either.
    stage.fleet.restart(member, LD_PRELOAD=str(FAKETIME), FAKETIME=shift, DONT_FAKE_MONOTONIC="1")
    return True


def database_stopped_fast(stage: Stage) -> None:
    stage.server.restart("fast")


def database_stopped_immediately(stage: Stage) -> None:
    stage.server.restart("immediate")


def database_killed(stage: Stage) -> None:
    stage.server.kill()
    stage.pause(0.0, 1.0)
    stage.server.start()


def database_frozen(stage: Stage) -> None:
    stage.server.pause()
    stage.pause(0.5, 3.0)
    stage.server.resume()


def backend_killed(stage: Stage) -> bool:
    """One backend dies by SIGKILL: PostgreSQL restarts them all."""
    pid = stage.value(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'tasklib%' ORDER BY random() LIMIT 1"
    )
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(int(str(pid)), signal.SIGKILL)
    return True


def listeners_terminated(stage: Stage) -> None:
    for _ in range(3):
        stage.value(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tasklib listener'"
        )
        time.sleep(1.0)


def connections_terminated(stage: Stage) -> None:
    stage.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'tasklib%'")


def links_delayed(stage: Stage) -> None:
    stage.proxy.delay(stage.random.uniform(0.02, 0.2))
    stage.pause(1.0, 3.0)
    stage.proxy.delay(0.0)


def links_stalled(stage: Stage) -> bool:
    stalled = stage.proxy.stall()
    stage.pause(1.0, 7.0)
    stage.proxy.resume()
    return stalled > 0


def links_reset(stage: Stage) -> bool:
    return stage.proxy.reset() > 0


def links_half_closed(stage: Stage) -> bool:
    return stage.proxy.half_close() > 0


def submission_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("tasklib client") > 0


def claim_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("worker tasks", "tasklib_claim") > 0


def settlement_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("worker tasks", "tasklib_complete") > 0


def fold_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("worker tasks", "tasklib_fold") > 0


def record_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("worker tasks", "tasklib_record_steps") > 0


def consumption_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("worker tasks", "tasklib_consume_signal") > 0


def suspension_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("worker tasks", "tasklib_suspend") > 0


def heartbeat_unanswered(stage: Stage) -> bool:
    return stage.proxy.drop_after_commit("heartbeat") > 0


def connections_used_up(stage: Stage) -> None:
    with ExitStack() as held:
        with suppress(psycopg.Error):
            while True:
                held.enter_context(psycopg.connect(stage.url, autocommit=True, connect_timeout=3))
        stage.pause(1.0, 3.0)


def disk_full(stage: Stage) -> bool:
    if stage.disk is None:
        return False
    room = shutil.disk_usage(stage.disk)
    try:
        _resize(stage.disk, room.used + (1 << 20))
        stage.pause(1.0, 2.0)
    finally:
        _resize(stage.disk, room.total)
        stage.server.start()  # it may have given up: without room for its log it can't go on
    return True


def _resize(disk: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


FAULTS: dict[str, tuple[int, Fault]] = {
    # name: how often beside the others, what
    "worker killed": (8, worker_killed),
    "worker frozen briefly": (4, worker_frozen_briefly),
    "worker frozen past its lease": (1, worker_frozen_past_its_lease),
    "leader killed": (3, leader_killed),
    "leader frozen": (2, leader_frozen),
    "child killed": (4, child_killed),
    "child frozen": (2, child_frozen),
    "HTTP server killed": (3, http_server_killed),
    "HTTP server frozen": (2, http_server_frozen),
    "submitter killed": (2, submitter_killed),
    "worker restarted": (3, worker_restarted),
    "workers restarted in turn": (1, workers_restarted_in_turn),
    "worker with a clock ahead": (1, worker_with_a_clock_ahead),
    "worker with a clock behind": (1, worker_with_a_clock_behind),
    "database stopped fast": (2, database_stopped_fast),
    "database stopped immediately": (2, database_stopped_immediately),
    "database killed": (2, database_killed),
    "database frozen": (2, database_frozen),
    "backend killed": (2, backend_killed),
    "listeners terminated": (2, listeners_terminated),
    "connections terminated": (2, connections_terminated),
    "links delayed": (2, links_delayed),
    "links stalled": (2, links_stalled),
    "links reset": (4, links_reset),
    "links half-closed": (3, links_half_closed),
    "submission unanswered": (4, submission_unanswered),
    "claim unanswered": (4, claim_unanswered),
    "settlement unanswered": (4, settlement_unanswered),
    "heartbeat unanswered": (2, heartbeat_unanswered),
    "fold unanswered": (3, fold_unanswered),
    "record unanswered": (3, record_unanswered),
    "consumption unanswered": (3, consumption_unanswered),
    "suspension unanswered": (3, suspension_unanswered),
    "connections used up": (1, connections_used_up),
    "disk full": (1, disk_full),
}


def small_disk(directory: Path, gigabytes: float) -> Path | None:
    """A file system of its own for the database, so that it can be filled; None where one may not be mounted."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    size = f"size={int(gigabytes * 1024)}m"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(directory)], capture_output=True, check=False
    )
    return directory if done.returncode == 0 else None
