"""The tables and indexes that the migrations make, read from their SQL: what a database at the newest revision has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tasklib.sql import indexed, quoted

_COMMENT = re.compile(r"--[^\n]*")
_CREATE_TABLE = re.compile(r"CREATE TABLE \{schema\.\}(\w+) \((.*?)\n\)", re.DOTALL)
_CREATE_INDEX = re.compile(r"CREATE (UNIQUE )?INDEX (\w+) ON \{schema\.\}(\w+)\s*(.*?);", re.DOTALL)
_KEY = re.compile(r"CONSTRAINT (\w+) (?:PRIMARY KEY|UNIQUE) \(")
_ADD_KEY = re.compile(r"ALTER TABLE \{schema\.\}(\w+)\s+ADD CONSTRAINT (\w+) (?:PRIMARY KEY|UNIQUE) \(")
_DROP = re.compile(r"DROP (INDEX|TABLE) (?:IF EXISTS )?\{schema\.\}(\w+)")


@dataclass(frozen=True, slots=True)
class Index:
    """An index that has to be there."""

    name: str
    table: str
    definition: str | None
    """What follows the table's name in CREATE INDEX; None if it belongs to a constraint."""
    is_unique: bool = False

    def create(self, schema: str) -> str | None:
        """The statement that makes it anew, beside a running fleet."""
        if self.definition is None:
            return None
        unique = "UNIQUE " if self.is_unique else ""
        return f"CREATE {unique}INDEX CONCURRENTLY {self.name} ON {quoted(schema)}.{self.table} {self.definition};"


@cache
def tables() -> tuple[str, ...]:
    """The names of our tables, but for that of the revision."""
    return _everything()[0]


@cache
def indexes() -> tuple[Index, ...]:
    """Our indexes, those of constraints too."""
    return _everything()[1]


@cache
def _everything() -> tuple[tuple[str, ...], tuple[Index, ...]]:
    tables: list[str] = []
    indexes: dict[str, Index] = {}
    for text in _scripts():
        for table, columns in _CREATE_TABLE.findall(text):
            tables.append(table)
            indexes |= {name: Index(name, table, None) for name in _KEY.findall(columns)}
        indexes |= {name: Index(name, table, None) for table, name in _ADD_KEY.findall(text)}
        for unique, name, table, rest in _CREATE_INDEX.findall(text):
            indexes[name] = Index(name, table, " ".join(rest.split()), bool(unique))
        for kind, name in _DROP.findall(text):
            if kind == "TABLE":
                tables.remove(name)
                indexes = {i: index for i, index in indexes.items() if index.table != name}
            else:
                del indexes[name]
    return tuple(tables), tuple(indexes.values())


def _scripts() -> list[str]:
    versions = files("tasklib.migrations").joinpath("versions")
    found = sorted((f for f in versions.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [indexed(_COMMENT.sub("", f.read_text(encoding="utf-8"))) for f in found]
