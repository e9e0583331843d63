"""Are all indexes there, and valid?"""

from __future__ import annotations

from collections.abc import Iterator

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, critical, ok, warning
from tasklib.formatting import count
from tasklib.migrations import expected
from tasklib.sql import quoted
from tasklib.store import doctor
from tasklib.store.doctor import IndexFigures


def look(config: Config) -> Call[list[Finding]]:
    there: list[IndexFigures] = yield doctor.indexes(expected.tables())
    schema = there[0].schema if there else config.schema or "public"
    found = [*_missing(there, schema), *_invalid(there)]
    return found or [ok("indexes", f"All {count(len(expected.indexes()), 'index', 'indexes')} exist and are valid.")]


def _missing(there: list[IndexFigures], schema: str) -> Iterator[Finding]:
    names = {index.name for index in there}
    for index in expected.indexes():
        if index.name not in names:
            yield critical(
                "missing_index",
                f"The index {index.name} of the table {index.table} is missing.",
                "Statements that rely on it read the whole table, or uniqueness is not enforced.",
                index.create(schema) or f"It belongs to a constraint of {index.table}: restore that.",
                index=index.name,
                table=index.table,
            )


def _invalid(there: list[IndexFigures]) -> Iterator[Finding]:
    ours = {index.name for index in expected.indexes()}
    for index in there:
        if index.is_valid:
            continue
        name = f"{quoted(index.schema)}.{quoted(index.name)}"
        if index.name in ours:
            yield critical(
                "invalid_index",
                f"The index {index.name} is INVALID: building it was interrupted.",
                "No statement can use it, but each write still updates it.",
                f"REINDEX INDEX CONCURRENTLY {name};",
                index=index.name,
            )
        else:
            yield warning(
                "invalid_index",
                f"{index.name}, left over from an interrupted REINDEX, is on the table {index.table}.",
                "Each write updates it, and no statement can use it.",
                f"DROP INDEX CONCURRENTLY {name};",
                index=index.name,
            )
