"""Databases that are the shards of one TaskLib, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from tasklib import Client, Config, Shard
from tasklib.migrations import migrate
from tasklib.testing import databases
from tests.server.outages import Way, way_to


@dataclass
class Sharded:
    """The shards, and a client of each."""

    config: Config
    clients: dict[int, Client]
    ways: dict[int, Way]
    """To shards that can be refused and silenced."""

    def counts(self, state: str = "completed") -> dict[int, int]:
        """How many tasks of this state each shard has."""
        return {
            number: self.rows(number, "SELECT count(*) FROM tasks WHERE state = %s", state) for number in self.clients
        }

    def rows(self, number: int, statement: str, *parameters: object) -> Any:
        """The first value that a statement returns in one shard."""
        with psycopg.connect(self.clients[number].config.database_url) as connection:
            row = connection.execute(statement, parameters).fetchone()  # type: ignore[arg-type]
            return None if row is None else row[0]


@contextmanager
def sharded(
    server_url: str, template: str, numbers: Sequence[int] = (0, 1, 2), *, ways: Sequence[int] = ()
) -> Iterator[Sharded]:
    """Migrated databases that know their numbers."""
    with ExitStack() as stack:
        direct, shards, to = [], [], {}
        for number in numbers:
            shard = Shard(number, stack.enter_context(databases.database(server_url, template)))
            direct.append(shard)
            if number in ways:
                to[number] = stack.enter_context(way_to(Config(shard.database_url)))
                shard = replace(shard, database_url=to[number].config.database_url)
            shards.append(shard)
        clients = {}
        for shard in direct:
            one = Config(shards=direct, retry_jitter=0.0).for_shard(shard.number)
            migrate(one)
            clients[shard.number] = stack.enter_context(Client(one))
        yield Sharded(Config(shards=tuple(shards), retry_jitter=0.0), clients, to)


def write_shards(file: Path, shards: Sequence[Shard]) -> None:
    """As `tasklib shard` does: the whole file at once."""
    new = file.with_suffix(".new")
    new.write_text("".join(f'[[shard]]\nnumber = {s.number}\ndatabase_url = "{s.database_url}"\n' for s in shards))
    new.replace(file)
