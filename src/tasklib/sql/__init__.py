"""Named SQL statements: `statement("claim", schema)` is claim/claim.sql with its names filled in.

Each subject has a folder, named like the module of `store` that runs its statements. A statement is found by its bare
name, so names are unique. Parts of statements are in `fragments/` of their subject, or in that beside the subjects if
several subjects use them; a fragment can't be run, and a statement can't be included.

A statement is written with psycopg's `%(name)s` parameters and marks of our own: `{schema.}` stands before each
of our own objects, `{task_columns}` for all columns of a task, `{task_columns_within}` for the same without values
that are larger than `%(most)s` bytes, `{due}` for the time a claimable task becomes due, `{still_running}` for a
check of tasks found by their ids, `{include NAME}` for a fragment, and `{statement NAME}` for a whole other statement,
to explain it. A fragment NAME_before_18 takes the place of NAME on servers before PostgreSQL 18.

Tasks of known ids are joined by `task.id = ANY (ARRAY[other.id])`, not by `task.id = other.id`: that can only be a look
at the primary key for each id. With the plain join, statistics that were taken while the table was empty make the
planner read all tasks and compare each with every id. The claim and the completion of plain tasks run most often, and
making an array for each row costs them 4%: one finds the rows it has locked by `ctid`, the other looks at the primary
key by `task.id BETWEEN other.id AND other.id`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, LiteralString

from tasklib.columns import LARGE_COLUMNS, TASK_COLUMNS

END_OF_ERROR = 1000
"""Of an error that is too large for a list, so many characters are shown."""
DUE = "COALESCE(next_retry_at, scheduled_at)"
# Written so that the planner doesn't take the index of running rows for a short cut to rows whose ids are known: it
# looks empty in the statistics, and under an old snapshot it holds every row that ever ran.
STILL_RUNNING = "COALESCE(task.state, '') = 'running'"


def indexed(text: str) -> str:
    """SQL with its mark for the expression that the claim's index has as a column filled in."""
    return text.replace("{due}", DUE)


def quoted(identifier: str) -> str:
    """An SQL identifier, quoted so that any name is safe."""
    return '"' + identifier.replace('"', '""') + '"'


def _fits(column: str) -> str:
    """True if a value is small enough. Its stored size comes first: what is large need not be unpacked to say so."""
    return (
        f"(%(most)s::int IS NULL OR {column} IS NULL OR "
        f"pg_column_size({column}) <= %(most)s::int AND octet_length({column}::text) <= %(most)s::int)"
    )


def _columns_within() -> str:
    """The columns, NULL where a value is too large; and last the names of the columns where that is so."""
    # Of an error, the end says what went wrong.
    ends = {"error": f" ELSE right(error, {END_OF_ERROR})"}
    bounded = {c: f"CASE WHEN {_fits(c)} THEN {c}{ends.get(c, '')} END AS {c}" for c in LARGE_COLUMNS}
    each = (bounded.get(c, c) for c in TASK_COLUMNS)
    left_out = ", ".join(f"CASE WHEN NOT {_fits(c)} THEN '{c}' END" for c in LARGE_COLUMNS)
    return f"{', '.join(each)}, array_remove(ARRAY[{left_out}]::text[], NULL) AS left_out"


def statements() -> dict[str, Traversable]:
    """The file of each statement."""
    return _files()[0]


def fragments() -> dict[str, Traversable]:
    """The file of each fragment."""
    return _files()[1]


@cache
def _files() -> tuple[dict[str, Traversable], dict[str, Traversable]]:
    statements: dict[str, Traversable] = {}
    fragments: dict[str, Traversable] = {}
    folders = [files("tasklib.sql")]
    while folders:
        folder = folders.pop()
        found = fragments if folder.name == "fragments" else statements
        for entry in folder.iterdir():
            if entry.name.endswith(".sql"):
                found[entry.name.removesuffix(".sql")] = entry
            elif entry.is_dir():
                folders.append(entry)
    return statements, fragments


_MARK = re.compile(r"\{(include|statement) (\w+)\}")


def _expanded(file: Traversable, before_18: bool) -> str:
    def part(mark: re.Match[str]) -> str:
        kind, name = mark.groups()
        found = fragments() if kind == "include" else statements()
        other = found.get(f"{name}_before_18") if before_18 else None
        return _expanded(other or found[name], before_18).rstrip()

    return _MARK.sub(part, file.read_text(encoding="utf-8"))


@cache
def statement(name: str, schema: str | None, *, before_18: bool = False) -> LiteralString:
    """The text of one statement for tables in this schema (None: the search_path), on a server of this version."""
    text: Any = (
        indexed(_expanded(statements()[name], before_18))
        .replace("{task_columns}", ", ".join(TASK_COLUMNS))
        .replace("{task_columns_within}", _columns_within())
        .replace("{still_running}", STILL_RUNNING)
        # Last, so that nothing in a name is taken for a mark; and a percent sign would be taken for a parameter.
        .replace("{schema.}", f"{quoted(schema)}.".replace("%", "%%") if schema else "")
    )
    ours: LiteralString = text  # from our own files, and never with a value in it
    return ours


# A doubled percent sign is one that was meant; what follows it is no parameter.
PARAMETER = re.compile(r"%(?:%|\((\w+)\)s)")


@cache
def numbered(name: str, schema: str | None, *, before_18: bool = False) -> tuple[str, tuple[str, ...]]:
    """The same as PostgreSQL itself reads it, with $1, $2, ..., and the parameters' names in that order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return PARAMETER.sub(number, statement(name, schema, before_18=before_18)), tuple(names)
