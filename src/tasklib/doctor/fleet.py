"""Are there workers, do they run one version, does one lead?"""

from __future__ import annotations

from collections.abc import Iterator

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, Severity, ok, warning
from tasklib.formatting import count, duration, shell_argument
from tasklib.store import doctor, fleet
from tasklib.store.doctor import WaitingLane
from tasklib.store.fleet import WorkerInfo


def look(config: Config) -> Call[list[Finding]]:
    known: list[WorkerInfo] = yield fleet.workers()
    leader: str | None = yield fleet.leader()
    workers = [w for w in known if w.status != "dead"]
    if not workers:
        lanes: list[WaitingLane] = yield doctor.lanes(1)
        return [_no_workers(known, any(lanes))]
    found = [*_versions(workers), *_leader(leader, config), *_silent(known, config)]
    load, slots = sum(w.current_load for w in workers), sum(w.capacity for w in workers)
    seen = f"{count(len(workers), 'live worker')}, {load} of {count(slots, 'slot')} taken, {leader} leads."
    return found or [ok("workers", seen, workers=len(workers), load=load, slots=slots)]


def _no_workers(known: list[WorkerInfo], has_backlog: bool) -> Finding:
    seen = "There is no live worker" + (", and tasks wait." if has_backlog else ".")
    if known:
        last = min(w.seconds_since_heartbeat for w in known)
        seen += f" The last heartbeat was {duration(last)} ago."
    severity = Severity.CRITICAL if has_backlog else Severity.WARNING
    return Finding(severity, "no_workers", seen, "Nothing runs.", "Start one: tasklib worker MODULE")


def _versions(workers: list[WorkerInfo]) -> Iterator[Finding]:
    versions = sorted({w.version for w in workers})
    if len(versions) > 1:
        each = {v: [w.id for w in workers if w.version == v] for v in versions}
        yield warning(
            "mixed_versions",
            f"Workers run different versions: {', '.join(f'{v} ({len(ids)})' for v, ids in each.items())}.",
            "This is normal during a rolling deployment. Afterwards it means that a worker was not updated.",
            f"Drain those of {versions[0]} and start them again: tasklib workers drain "
            f"{shell_argument(each[versions[0]][0])}",
            versions=each,
        )


def _leader(leader: str | None, config: Config) -> Iterator[Finding]:
    if leader is None:
        yield warning(
            "no_leader",
            "There is no leader.",
            "Tasks of dead workers are not recovered, expired rows are not deleted, and waiting tasks are not counted.",
            f"After a leader's death another follows within {duration(config.leader_lease_seconds)}. If this "
            "persists, search the logs of workers and servers for errors of the election.",
        )


def _silent(known: list[WorkerInfo], config: Config) -> Iterator[Finding]:
    late = config.heartbeat_timeout_seconds + 2 * config.sweep_interval_seconds
    silent = [w for w in known if w.is_undeclared and w.seconds_since_heartbeat > late]
    if silent:
        yield warning(
            "silent_workers",
            f"{count(len(silent), 'worker')} ({', '.join(w.id for w in silent[:5])}) sent no heartbeats and "
            "were not declared dead.",
            "Their tasks are not recovered until the leader does so.",
            "Check the leader's log: tasklib workers shows which process leads.",
            workers=[w.id for w in silent],
        )
