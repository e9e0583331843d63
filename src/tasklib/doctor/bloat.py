"""Dead rows in our tables, and indexes that are mostly empty."""

from __future__ import annotations

from collections.abc import Iterator

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, ok, warning
from tasklib.formatting import duration
from tasklib.migrations import expected
from tasklib.sql import quoted
from tasklib.store import doctor
from tasklib.store.doctor import IndexFigures, TableFigures

LEAST_DEAD = 10_000
"""Fewer dead rows don't matter."""
LATE = 3.0
"""Autovacuum is late when there are this many times as many as it begins with."""
LEAST_INDEX_BYTES = 32 * 2**20
MOST_BYTES_PER_ENTRY = 1000
"""An entry takes about 100 bytes, a page that was emptied for the most part much more."""


def look(config: Config) -> Call[list[Finding]]:
    settings: dict[str, str] = yield doctor.settings("autovacuum_vacuum_threshold", "autovacuum_vacuum_scale_factor")
    tables: list[TableFigures] = yield doctor.tables(expected.tables())
    indexes: list[IndexFigures] = yield doctor.indexes(expected.tables())
    schema = indexes[0].schema if indexes else "public"
    found = [*_tables(tables, settings, schema), *_indexes(indexes)]
    dead = sum(t.dead for t in tables)
    size = (sum(t.size for t in tables) + sum(i.size for i in indexes)) / 2**20
    return found or [ok("bloat", f"{dead:,} dead rows; tables and indexes take {size:,.1f} MiB.", dead=dead)]


def _tables(tables: list[TableFigures], settings: dict[str, str], schema: str) -> Iterator[Finding]:
    for table in tables:
        threshold, factor = (
            float(table.option(name) or settings[name])
            for name in ("autovacuum_vacuum_threshold", "autovacuum_vacuum_scale_factor")
        )
        begins_at = threshold + factor * table.live
        if table.dead < max(LEAST_DEAD, LATE * begins_at):
            continue
        last = table.seconds_since_vacuum
        yield warning(
            "dead_rows",
            f"{table.name} has {table.dead:,} dead rows beside {table.live:,} live ones; autovacuum should have begun "
            f"at {begins_at:,.0f}. Last vacuum: {'never' if last is None else f'{duration(last)} ago'}.",
            "Claims and sweeps read past dead rows, and the table grows.",
            "If there is an old snapshot, end it first; then: "
            f"VACUUM (VERBOSE, ANALYZE) {quoted(schema)}.{table.name};",
            **table._asdict(),
        )


def _indexes(indexes: list[IndexFigures]) -> Iterator[Finding]:
    for index in indexes:
        each = index.size / max(index.entries, 1.0)
        if index.entries >= 0 and index.size >= LEAST_INDEX_BYTES and each > MOST_BYTES_PER_ENTRY:
            yield warning(
                "index_bloat",
                f"The index {index.name} takes {index.size / 2**20:,.1f} MiB for about {index.entries:,.0f} entries.",
                "Its pages are mostly empty, but are still read and cached.",
                f"REINDEX INDEX CONCURRENTLY {quoted(index.schema)}.{index.name};",
                **index._asdict(),
            )
