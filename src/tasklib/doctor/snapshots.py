"""Who keeps dead rows from being vacuumed: old transactions, replication slots, prepared transactions."""

from __future__ import annotations

from collections.abc import Iterator

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, Severity, note, ok, warning
from tasklib.formatting import count, duration
from tasklib.store import doctor
from tasklib.store.doctor import BlockingSession, Prepared, ReplicationSlot

WARN_SECONDS, CRITICAL_SECONDS = 300.0, 3600.0
WARN_SLOT_AGE = 10_000_000
_WHY = "Rows that it might still see can't be vacuumed, so the tables and indexes grow and every query takes longer."


def look(config: Config) -> Call[list[Finding]]:
    sessions: list[BlockingSession] = yield doctor.sessions()
    slots: list[ReplicationSlot] = yield doctor.slots()
    prepared: list[Prepared] = yield doctor.prepared()
    found = [*_sessions(sessions), *_slots(slots), *_prepared(prepared)]
    if any(f.severity.rank >= Severity.WARNING.rank for f in found):
        return found
    oldest = max((s.seconds or 0.0 for s in sessions), default=0.0)
    seen = f"No old snapshot: the oldest transaction is {duration(oldest)} old."
    return [ok("old_snapshot", seen, oldest_seconds=oldest), *found]


def _sessions(sessions: list[BlockingSession]) -> Iterator[Finding]:
    for session in sessions:
        if session.seconds is not None and session.seconds >= WARN_SECONDS:
            yield Finding(
                Severity.CRITICAL if session.seconds >= CRITICAL_SECONDS else Severity.WARNING,
                "old_snapshot",
                f"Process {session.pid} ({session.application or 'without a name'}, user {session.user}, from "
                f"{session.address}, {session.state}) has had its transaction open for {duration(session.seconds)}.",
                _WHY,
                f"End it there, or: SELECT pg_terminate_backend({session.pid});  To prevent it: "
                "ALTER DATABASE ... SET idle_in_transaction_session_timeout = '5min';",
                session._asdict(),
            )
    if hidden := sum(s.is_hidden for s in sessions):
        yield note(
            "hidden_sessions",
            f"{count(hidden, 'session')} of other users can't be seen.",
            "One of them may hold an old snapshot.",
            "GRANT pg_monitor TO this user;",
            hidden=hidden,
        )


def _slots(slots: list[ReplicationSlot]) -> Iterator[Finding]:
    for slot in slots:
        kept = f"{(slot.kept_bytes or 0) / 2**20:,.0f} MiB of the log"
        rows = f" and rows since {slot.age:,} transactions ago" if slot.age is not None else ""
        if not slot.is_active:
            yield warning(
                "replication_slot",
                f"The {slot.kind} replication slot {slot.name} has no reader. It keeps {kept}{rows}.",
                f"This continues until the disk is full. {_WHY if slot.age is not None else ''}".rstrip(),
                f"Start its reader again, or: SELECT pg_drop_replication_slot('{slot.name}');",
                **slot._asdict(),
            )
        elif slot.age is not None and slot.age >= WARN_SLOT_AGE:
            yield warning(
                "replication_slot",
                f"The replication slot {slot.name} keeps {kept}{rows}.",
                _WHY,
                "Look for a long query on that standby, a reader that lags; or set hot_standby_feedback = off there.",
                **slot._asdict(),
            )


def _prepared(prepared: list[Prepared]) -> Iterator[Finding]:
    for transaction in prepared:
        if transaction.seconds >= WARN_SECONDS:
            yield Finding(
                Severity.CRITICAL if transaction.seconds >= CRITICAL_SECONDS else Severity.WARNING,
                "prepared_transaction",
                f"The prepared transaction {transaction.gid!r} of {transaction.owner} has waited for its second phase "
                f"for {duration(transaction.seconds)}.",
                f"It keeps its locks, also through a restart. {_WHY}",
                f"Ask its coordinator, or: ROLLBACK PREPARED '{transaction.gid}';",
                transaction._asdict(),
            )
