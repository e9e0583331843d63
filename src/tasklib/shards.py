"""Shards: the schemas, on any servers, over which one logical TaskLib is spread.

Config(shards=(Shard(0, "postgresql://app@db1/app", "tasklib"), Shard(1, "postgresql://app@db2/app", "tasklib")))

Or a file, named by `shards_file`, which `tasklib shard` changes while programs run:

    [[shard]]
    number = 0
    database_url = "postgresql://app@db1/app"
    schema = "tasklib"
    weight = 1.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tasklib.addresses import check_schema, checked_url, place_of
from tasklib.errors import ConfigError

MOST_SHARD = 1023
"""The highest number of a shard: ids have ten bits for it."""


class PastWeight(NamedTuple):
    """A weight that a shard had before."""

    until: datetime
    weight: float


@dataclass(frozen=True, slots=True)
class NewAddress:
    """Where a shard is moving to: `tasklib shard move`."""

    id: str
    """That of the move, which both schemas are marked with."""
    database_url: str = field(repr=False)
    schema: str | None = None
    listen_database_url: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not isinstance(self.schema, str | None):
            raise ConfigError("moving_to of a shard needs an `id`, a database_url and perhaps a schema, all strings.")
        object.__setattr__(self, "database_url", checked_url("database_url of moving_to", self.database_url))
        if self.listen_database_url is not None:
            direct = checked_url("listen_database_url of moving_to", self.listen_database_url)
            object.__setattr__(self, "listen_database_url", direct)
        check_schema(self.schema)


@dataclass(frozen=True, slots=True)
class Shard:
    """One schema with all of TaskLib's tables."""

    number: int
    """From 0 to 1023. The ids of its tasks have it in them, so it never changes."""
    database_url: str = field(repr=False)
    schema: str | None = None
    weight: float = 1.0
    """Its part of the submissions, relative to the other shards. 0: closed. It takes none, and the rest goes on."""
    listen_database_url: str | None = field(default=None, repr=False)
    past: tuple[PastWeight, ...] = ()
    """Its weights before the present one, oldest first. Keys submitted then are looked for where they went then."""
    moving_to: NewAddress | None = None
    """While it moves: workers leave it, and submissions without a key go to other shards."""

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or not 0 <= self.number <= MOST_SHARD:
            raise ConfigError(f"a shard's number is a whole number from 0 to {MOST_SHARD}, not {self.number!r}.")
        where = f"database_url of shard {self.number}"
        object.__setattr__(self, "database_url", checked_url(where, self.database_url))
        if self.listen_database_url is not None:
            direct = checked_url(f"listen_{where}", self.listen_database_url)
            object.__setattr__(self, "listen_database_url", direct)
        if not isinstance(self.schema, str | None):
            raise ConfigError(f"schema of shard {self.number} must be a string or None, not {self.schema!r}.")
        check_schema(self.schema)
        _check_weight(self.number, self.weight)
        object.__setattr__(self, "past", tuple(PastWeight(*each) for each in self.past))
        for until, weight in self.past:
            _check_weight(self.number, weight)
            if not isinstance(until, datetime) or until.tzinfo is None:
                raise ConfigError(f"a past weight of shard {self.number} needs `until`, a time with a zone.")

    @property
    def is_open(self) -> bool:
        """Whether it takes submissions."""
        return self.weight > 0


def _check_weight(number: int, weight: object) -> None:
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not math.isfinite(weight) or weight < 0:  # type: ignore[arg-type,operator]
        raise ConfigError(f"weight of shard {number} must be a number of 0 or more, not {weight!r}.")


def checked_shards(shards: object) -> tuple[Shard, ...]:
    """These shards by their numbers; ConfigError unless they can be one TaskLib."""
    if not isinstance(shards, Sequence) or not all(isinstance(each, Shard) for each in shards):
        raise ConfigError(f"shards must be a sequence of Shard(number, database_url, schema), not {shards!r}.")
    in_order: list[Shard] = sorted(shards, key=lambda shard: shard.number)
    places: dict[tuple[str, ...], int] = {}
    numbers: set[int] = set()
    for shard in in_order:
        if shard.number in numbers:
            raise ConfigError(f"two shards have the number {shard.number}.")
        numbers.add(shard.number)
        here = [each for each in (shard, shard.moving_to) if each is not None]
        for other in (places.setdefault(place(each), shard.number) for each in here):
            if other == shard.number:
                continue
            raise ConfigError(
                f"shards {other} and {shard.number} are in one schema ({shard.schema or 'of the search_path'}) of one "
                "database. Give each a schema of its own."
            )
    if in_order and not any(shard.is_open for shard in in_order):
        raise ConfigError("all shards are closed (weight 0). At least one must be open to take submissions.")
    return tuple(in_order)


def place(of: Shard | NewAddress) -> tuple[str, ...]:
    """Equal for two addresses that lead to one schema."""
    return (*place_of(of.database_url), of.schema or "")


def read_shards(file: Path) -> tuple[Shard, ...]:
    """The shards that a file names."""
    import tomllib  # only here: a module that only defines tasks has no such file

    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ConfigError(f"the shards can't be read from {file}: {e}.") from None
    entries = said.get("shard")
    if not isinstance(entries, list) or not entries or set(said) != {"shard"}:
        raise ConfigError(f"{file} should hold nothing but a [[shard]] for each shard.")
    try:
        return checked_shards([_shard_of(entry) for entry in entries])
    except ConfigError as e:
        raise ConfigError(f"{file}: {e}") from None


_NAMES = [f.name for f in fields(Shard)]


def _shard_of(entry: Mapping[str, Any]) -> Shard:
    if unknown := [name for name in entry if name not in _NAMES]:
        raise ConfigError(f"a shard has no {unknown[0]!r}. It has {', '.join(_NAMES)}.")
    if missing := [name for name in ("number", "database_url") if name not in entry]:
        raise ConfigError(f"a shard has no {missing[0]}.")
    try:
        past = tuple(PastWeight(each["until"], each["weight"]) for each in entry.get("past", ()))
    except (KeyError, TypeError):
        raise ConfigError(f"past of shard {entry['number']} must be tables with `until` and `weight`.") from None
    moving_to = entry.get("moving_to")
    try:
        destination = None if moving_to is None else NewAddress(**moving_to)
    except TypeError as e:
        raise ConfigError(f"moving_to of shard {entry['number']} can't be read: {e}.") from None
    return Shard(**{**entry, "past": past, "moving_to": destination})
