"""Named SQL statements: `statement("claim", schema)` is claim.sql with its names filled in.

A statement is written with psycopg's `%(name)s` parameters and marks of our own: `{schema.}` stands before each
of our own objects, `{task_columns}` for all columns of a task, `{due}` for the time a claimable task becomes due,
`{still_running}` for a check of tasks found by their ids, and `{include NAME}` for another file, so that one fragment
serves several statements.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from tasklib.columns import TASK_COLUMNS

DUE = "COALESCE(next_retry_at, scheduled_at)"
# Written so that the planner doesn't take the index of running rows for a short cut to rows whose ids are known: it
# looks empty in the statistics, and under an old snapshot it holds every row that ever ran.
STILL_RUNNING = "COALESCE(task.state, '') = 'running'"


def quoted(identifier: str) -> str:
    """An SQL identifier, quoted so that any name is safe."""
    return '"' + identifier.replace('"', '""') + '"'


@cache
def _source(name: str) -> str:
    text = files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return re.sub(r"\{include (\w+)\}", lambda match: _source(match[1]).rstrip(), text)


@cache
def statement(name: str, schema: str | None) -> str:
    """The text of one statement for tables in this schema (None: the search_path)."""
    return (
        _source(name)
        .replace("{task_columns}", ", ".join(TASK_COLUMNS))
        .replace("{due}", DUE)
        .replace("{still_running}", STILL_RUNNING)
        # Last, so that nothing in a name is taken for a mark; and a percent sign would be taken for a parameter.
        .replace("{schema.}", f"{quoted(schema)}.".replace("%", "%%") if schema else "")
    )


# A doubled percent sign is one that was meant; what follows it is no parameter.
PARAMETER = re.compile(r"%(?:%|\((\w+)\)s)")


@cache
def numbered(name: str, schema: str | None) -> tuple[str, tuple[str, ...]]:
    """The same as PostgreSQL itself reads it, with $1, $2, ..., and the parameters' names in that order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return PARAMETER.sub(number, statement(name, schema)), tuple(names)
