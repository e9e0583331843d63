"""Workers and their leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows, nothing
from tasklib.store.audit import Action, audited


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A row of `workers`."""

    id: str
    status: str
    queues: list[str] | None
    names: list[str] | None
    capabilities: list[str]
    capacity: int
    current_load: int
    version: str
    host: str
    pid: int
    started_at: datetime
    last_heartbeat: datetime
    drain_requested_at: datetime | None
    seconds_since_heartbeat: float
    is_leader: bool
    is_undeclared: bool = False
    """Dead by its silence, and no leader has declared it dead yet."""

    def knows(self, name: str) -> bool:
        """Whether it runs tasks of this name."""
        return self.names is None or name in self.names

    def may_take(self, queue: str, name: str, capabilities: Sequence[str]) -> bool:
        """Whether it takes such tasks now."""
        return (
            self.status == "active"
            and self.drain_requested_at is None
            and (self.queues is None or queue in self.queues)
            and self.knows(name)
            and set(capabilities) <= set(self.capabilities)
        )


@dataclass(frozen=True, slots=True)
class Deploy:
    """A version of the program whose workers have joined the fleet."""

    deployed_at: datetime
    """As its workers say: `Config.deployed_at`, or when the files of its task functions were last changed."""
    seen_at: datetime
    """When the first of its workers joined."""


@dataclass(frozen=True, slots=True)
class Term:
    """Leadership in one term. Every maintenance statement carries it, and changes nothing once it is over."""

    holder: str
    number: int

    def parameters(self) -> dict[str, object]:
        return {"holder": self.holder, "term": self.number}


class Candidacy(NamedTuple):
    """What became of an attempt to lead."""

    term: Term | None
    """None while another process leads."""
    free_in: float | None
    """Seconds until its lead ends, unless it is kept."""


def register(
    id_: str,
    *,
    queues: Sequence[str] | None,
    names: Sequence[str] | None,
    capabilities: Sequence[str],
    capacity: int,
    version: str,
    host: str,
    pid: int,
    heartbeat_timeout: float,
    token_id: UUID | None = None,
    tzdata: str | None = None,
    deployed_at: datetime | None = None,
) -> Query[None]:
    """Announce a worker under a fresh id; over HTTP, with the id of the token it came with.

    Every reader takes a worker for dead once it has been silent for its `heartbeat_timeout` seconds.
    """
    parameters = {
        "id": id_,
        "queues": list(queues) if queues is not None else None,
        "names": list(names) if names is not None else None,
        "capabilities": list(capabilities),
        "capacity": capacity,
        "version": version,
        "host": host,
        "pid": pid,
        "heartbeat_timeout": float(heartbeat_timeout),
        "token": token_id,
        "tzdata": tzdata,
        "deployed_at": deployed_at,
    }
    return Query("worker_register", parameters, nothing)


def workers_of(token_id: UUID) -> Query[tuple[int, int]]:
    """How many workers of a token live, and how many of it the table knows."""
    return Query("worker_count", {"token": token_id}, lambda rows: (rows[0][0], rows[0][1]), repeatable=True)


class Registered(NamedTuple):
    """What a worker said of itself, and what became of it."""

    status: str
    queues: list[str] | None
    names: list[str] | None
    capabilities: list[str]
    capacity: int
    token_id: str | None
    asleep: bool


def worker(id_: str) -> Query[Registered | None]:
    return Query("worker_get", {"id": id_}, lambda rows: Registered._make(rows[0]) if rows else None)


def heartbeat(
    id_: str, *, load: int | None, draining: bool | None, names: Sequence[str] | None = None
) -> Query[bool | None]:
    """Say that a worker lives; reads whether it was asked to drain, or None if it was declared dead.

    None leaves the load, the status or the names as they are.
    """
    parameters = {"id": id_, "load": load, "draining": draining, "names": list(names) if names is not None else None}
    return Query("worker_heartbeat", parameters, lambda rows: bool(rows[0][0]) if rows else None)


def may_begin(id_: str, count: int | None) -> Query[None]:
    """Say how many tasks a worker may have begun whose results are not stored yet; None: all it holds."""
    return Query("worker_may_begin", {"id": id_, "count": count}, nothing)


def sleeps(id_: str, asleep: bool, channel: str | None = None) -> Query[bool]:
    """Store whether this worker sleeps until a notification on its channel; reads whether it is still registered."""
    return Query("worker_sleeps", {"id": id_, "asleep": asleep, "channel": channel}, bool, all_text=True)


def deregister(id_: str) -> Query[None]:
    return Query("worker_deregister", {"id": id_}, nothing)


def workers() -> Query[list[WorkerInfo]]:
    return Query("worker_list", {}, lambda rows: [WorkerInfo(*row) for row in rows], repeatable=True)


def deploys(limit: int = 50) -> Query[list[Deploy]]:
    """The latest first, of the last 31 days."""
    return Query("deploys", {"limit": limit}, lambda rows: [Deploy(*row) for row in rows], repeatable=True)


def drain(id_: str, *, by: str) -> Query[bool]:
    """Ask a worker to drain; reads False if it was asked before, or there is no such live worker."""
    return audited("worker_drain", {"id": id_, "message": DRAIN}, bool, by=by, action=Action.DRAIN_WORKER, target=id_)


DRAIN = "drain"
"""The message on the channel that says: look whether you were asked to drain."""


def lead(holder: str, lease_seconds: float) -> Query[Term | None]:
    """Take or keep the lead; reads the term, or None while another process leads."""
    parameters = {"holder": holder, "lease": float(lease_seconds)}
    return Query("lead", parameters, lambda rows: _candidacy(holder, rows).term)


def campaign(holder: str, lease_seconds: float) -> Query[Candidacy]:
    """Take or keep the lead; if another process leads, reads also for how long."""
    parameters = {"holder": holder, "lease": float(lease_seconds)}
    return Query("lead", parameters, lambda rows: _candidacy(holder, rows))


def _candidacy(holder: str, rows: Rows) -> Candidacy:
    [(number, free_in)] = rows
    return Candidacy(None if number is None else Term(holder, number), free_in)


def leader() -> Query[str | None]:
    """The leader's id, of a worker or of a server; None if there is none."""
    return Query("who_leads", {}, lambda rows: rows[0][0] if rows else None, repeatable=True)


def resign(holder: str) -> Query[None]:
    """Give up the lead, if this one has it."""
    return Query("resign", {"holder": holder}, nothing)


def bury_workers(term: Term, *, forget_after: float) -> Query[list[str]]:
    """Declare silent workers dead; reads their ids."""
    parameters = {**term.parameters(), "forget_after": float(forget_after)}
    return Query("bury_workers", parameters, _first_column)


def _first_column(rows: Rows) -> list[str]:
    return [row[0] for row in rows]
