"""Where our tables are, and at which revision."""

from __future__ import annotations

from typing import NamedTuple

from tasklib.db.query import Query, nothing
from tasklib.sql import quoted


def where_is_tasks(schema: str | None) -> Query[str | None]:
    """The schema in which our `tasks` is found, or None. Only one that also has our version table is ours."""
    prefix = f"{quoted(schema)}." if schema else ""
    names = {"tasks": f"{prefix}tasks", "versions": f"{prefix}tasklib_version"}
    return Query("where_is_tasks", names, lambda rows: rows[0][0] if rows else None, repeatable=True)


def encoding() -> Query[tuple[str, str]]:
    """The encoding of the database, and the database's name."""
    return Query("encoding", {}, lambda rows: (rows[0][0], rows[0][1]), repeatable=True)


def revision() -> Query[str | None]:
    """The newest migration that has run there."""
    return Query("revision", {}, lambda rows: rows[0][0] if rows else None, repeatable=True)


def shard() -> Query[int]:
    """The number of the shard that these tables are."""
    return Query("shard", {}, lambda rows: int(rows[0][0]), repeatable=True)


class ShardHere(NamedTuple):
    """A shard in the database of a connection."""

    schema: str
    number: int
    is_visible: bool
    """Whether the connection's search_path leads to it."""


def shards_here() -> Query[list[ShardHere]]:
    """The shards in the database of a connection; asking fails no transaction."""
    return Query("shards_here", {}, lambda rows: [ShardHere(*row) for row in rows], repeatable=True)


def notify(channel: str, message: str) -> Query[None]:
    """Send a notification from where the tables are."""
    return Query("notify", {"channel": channel, "message": message}, nothing, repeatable=True)
