"""Which revisions this version of TaskLib knows, and what the database's revision means to it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tasklib.errors import SchemaError
from tasklib.formatting import shell_option

VERSION_TABLE = "tasklib_version"
REVISIONS_0_1 = ("0001", "0002", "0003", "0004", "0005", "0006")
"""Those of TaskLib 0.1.0. Ours begin after them, so that each version recognises the other's database."""


@cache
def known() -> tuple[str, ...]:
    """All revisions, oldest first: they are numbered, and migrations only ever append."""
    names = (f.name for f in files("tasklib.migrations").joinpath("versions").iterdir())
    return tuple(sorted(n.partition("_")[0] for n in names if n.endswith(".py") and n[0].isdigit()))


def head() -> str:
    return known()[-1]


def missing_after(revision: str | None) -> tuple[str, ...]:
    """The revisions a database at `revision` still needs."""
    return tuple(r for r in known() if revision is None or r > revision)


def require_utf8(encoding: str, database: str) -> None:
    """Raise a SchemaError that says what to do if the database can't store every text."""
    if encoding != "UTF8":
        raise SchemaError(
            f"the database {database} has the encoding {encoding}, which can't store every text: errors, results and "
            f"names of tasks may be in any language. Create one in UTF8: createdb -E UTF8 -T template0 NAME"
        )


def is_of_0_1(revision: str | None) -> bool:
    """True if TaskLib 0.1.0 made the tables: they are not brought up to date but carried over, by `from_0_1`."""
    return revision in REVISIONS_0_1


def refuse_0_1(revision: str | None, schema: str | None) -> None:
    """Raise a SchemaError that says how to carry the tasks over if TaskLib 0.1.0 made the tables."""
    if is_of_0_1(revision):
        option = f" {shell_option('--schema', schema)}" if schema else ""
        raise SchemaError(
            f"TaskLib 0.1.0 made the tables in {_where(schema)} (revision {revision}). Nothing was changed. "
            f"Stop its workers and servers, then carry its tasks over with: tasklib migrate --from-0.1{option}"
        )


def require_current(revision: str | None, schema: str | None) -> None:
    """Raise a SchemaError that says what to do unless the database is at this version's revision."""
    refuse_0_1(revision, schema)
    where = _where(schema)
    if revision is None:
        raise SchemaError(f"TaskLib's tables are not in {where}. Create them with: tasklib migrate")
    if revision not in known():
        raise SchemaError(
            f"{where} is at revision {revision}, newer than this TaskLib knows ({head()}). "
            "Upgrade tasklib-pg in this program; nothing was changed."
        )
    if missing := missing_after(revision):
        raise SchemaError(
            f"{where} is at revision {revision} and lacks {', '.join(missing)}. "
            "Bring it up to date with: tasklib migrate"
        )


def require_shard(found: int, expected: int, schema: str | None) -> None:
    """Raise a SchemaError unless the tables are those of the shard that this program takes them for."""
    if found != expected:
        raise SchemaError(
            f"{_where(schema)} is shard {found}, and this program takes it for shard {expected}: its ids would name "
            f"the wrong one. Correct the address in `shards`, or set TASKLIB_SHARD={found} to use it alone."
        )


def _where(schema: str | None) -> str:
    return f"schema {schema!r}" if schema else "this database"
