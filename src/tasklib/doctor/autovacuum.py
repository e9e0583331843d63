"""Does autovacuum run, on our tables too, and fast enough?"""

from __future__ import annotations

from collections.abc import Iterator

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, critical, ok, warning
from tasklib.migrations import expected
from tasklib.sql import quoted
from tasklib.store import doctor
from tasklib.store.doctor import TableFigures

_COST_LIMIT = 200
_LONGEST_DELAY_MS = 10.0
_LONGEST_NAP_SECONDS = 300
_WHY = "Each task leaves three dead rows. Without a vacuum the claim gets slower and the disk fills."


def look(config: Config) -> Call[list[Finding]]:
    settings: dict[str, str] = yield doctor.settings(
        *("autovacuum", "track_counts", "autovacuum_naptime", "vacuum_cost_limit"),
        *("autovacuum_vacuum_cost_limit", "autovacuum_vacuum_cost_delay"),
    )
    tables: list[TableFigures] = yield doctor.tables(expected.tables())
    indexes = yield doctor.indexes(["tasks"])
    schema = indexes[0].schema if indexes else "public"
    found = [*_server(settings), *_tables(tables, schema), *_pace(settings)]
    return found or [ok("autovacuum", "Autovacuum is enabled, also for TaskLib's tables.")]


def _server(settings: dict[str, str]) -> Iterator[Finding]:
    for name in ("autovacuum", "track_counts"):
        if settings[name] == "off":
            action = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
            yield critical("autovacuum_off", f"{name} is off on this server.", _WHY, action, setting=name)


def _tables(tables: list[TableFigures], schema: str) -> Iterator[Finding]:
    for table in tables:
        if table.option("autovacuum_enabled") in ("false", "off", "0", "no"):
            yield warning(
                "autovacuum_off",
                f"autovacuum_enabled is off for the table {table.name}.",
                _WHY,
                f"ALTER TABLE {quoted(schema)}.{table.name} RESET (autovacuum_enabled);",
                table=table.name,
            )


def _pace(settings: dict[str, str]) -> Iterator[Finding]:
    own = int(settings["autovacuum_vacuum_cost_limit"])
    limit = int(settings["vacuum_cost_limit"]) if own == -1 else own
    delay, nap = float(settings["autovacuum_vacuum_cost_delay"]), int(settings["autovacuum_naptime"])
    slow: list[tuple[str, float, str, str]] = []
    if limit < _COST_LIMIT:
        slow.append(("autovacuum_vacuum_cost_limit", limit, str(limit), "1000"))
    if delay > _LONGEST_DELAY_MS:
        slow.append(("autovacuum_vacuum_cost_delay", delay, f"{delay:g} ms", "2ms"))
    if nap > _LONGEST_NAP_SECONDS:
        slow.append(("autovacuum_naptime", nap, f"{nap} s", "1min"))
    for name, value, said, better in slow:
        yield warning(
            "autovacuum_slow",
            f"{name} is {said}.",
            "Autovacuum falls behind a busy queue.",
            f"ALTER SYSTEM SET {name} = '{better}'; SELECT pg_reload_conf();",
            setting=name,
            value=value,
        )
