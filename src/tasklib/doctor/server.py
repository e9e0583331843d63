"""What the server has used up, and what it risks: durability, connections, transaction ids."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, Severity, critical, ok, warning
from tasklib.store import doctor
from tasklib.store.doctor import Usage

MOST_CONNECTIONS = 0.8
WARN_AGE, CRITICAL_AGE = 1_000_000_000, 1_600_000_000
"""Of 2,100,000,000, at which PostgreSQL refuses to write."""


def durability(config: Config) -> Call[list[Finding]]:
    """Does what was committed survive a crash?"""
    settings: dict[str, str] = yield doctor.settings("fsync", "full_page_writes", "synchronous_commit")
    found = [
        critical(
            "not_durable",
            f"{name} is off.",
            "After a power failure or a crash of the machine the whole database may be corrupt.",
            f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();",
            setting=name,
        )
        for name in ("fsync", "full_page_writes")
        if settings[name] == "off"
    ]
    if settings["synchronous_commit"] == "off":
        found.append(
            warning(
                "not_durable",
                "synchronous_commit is off.",
                "A crash of the server loses the latest commits: acknowledged submissions are lost, and finished tasks "
                "run again.",
                "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf();  Or look for it in ALTER ROLE "
                "and ALTER DATABASE.",
                setting="synchronous_commit",
            )
        )
    return found or [ok("durability", "Commits are durable: fsync and synchronous_commit are on.")]


def connections(config: Config) -> Call[list[Finding]]:
    """Are there connections left?"""
    settings: dict[str, str] = yield doctor.settings("max_connections", "superuser_reserved_connections")
    usage: Usage = yield doctor.usage()
    most = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    seen = f"{usage.connections} of {most} connections are in use."
    if usage.connections < MOST_CONNECTIONS * most:
        return [ok("connections", seen, used=usage.connections, most=most)]
    return [
        warning(
            "connections",
            seen,
            "When none is left, workers can't reconnect and clients get errors. A worker takes "
            "a few, a client up to max_connections of its configuration.",
            "Raise max_connections (needs a restart), lower TASKLIB_MAX_CONNECTIONS, or put PgBouncer in between.",
            used=usage.connections,
            most=most,
        )
    ]


def wraparound(config: Config) -> Call[list[Finding]]:
    """How far is the end of the transaction ids?"""
    usage: Usage = yield doctor.usage()
    age = usage.transaction_age
    if age < WARN_AGE:
        return [ok("transaction_ids", f"The oldest transaction id is {age:,} transactions old.", age=age)]
    return [
        Finding(
            Severity.CRITICAL if age >= CRITICAL_AGE else Severity.WARNING,
            "transaction_ids",
            f"The oldest transaction id of this database is {age:,} transactions old.",
            "At about 2,100,000,000 PostgreSQL refuses all writes. Autovacuum should have frozen it long ago: an old "
            "snapshot, a slot or a prepared transaction keeps it.",
            "End the session that holds the old snapshot, then run as a superuser: VACUUM (FREEZE, VERBOSE);",
            {"age": age},
        )
    ]
