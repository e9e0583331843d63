"""The two runners over shards: each runs any `Query` on the shards that its route names, and merges their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from tasklib.config import Config
from tasklib.db.database import AsyncDatabase, Database
from tasklib.db.query import Query
from tasklib.sharding.asking import Located, Question, Unreachable, question
from tasklib.sharding.current import CurrentShards

T = TypeVar("T")
D = TypeVar("D", Database, AsyncDatabase)


class _Members(Generic[D]):
    """A database for each shard, opened when it is first asked."""

    def __init__(self, shards: CurrentShards, open_: Callable[[Config], D]) -> None:
        self._shards = shards
        self._open: Callable[[Config], D] = open_
        self._open_ones: dict[int, D] = {}

    def of(self, number: int) -> D:
        config = self._shards.config_of(number)
        known = self._open_ones.get(number)
        if known is None or known.config is not config:
            if known is not None:  # it has moved
                known.close()
            known = self._open_ones[number] = self._open(config)
        return known

    def close(self) -> None:
        for database in self._open_ones.values():
            database.close()


class ShardedDatabase(Database):
    """Runs queries over all shards, synchronously. A single connection of it would see one shard: it has none."""

    def __init__(self, config: Config, role: str = "client") -> None:
        super().__init__(config, role)
        self.shards = CurrentShards(config)
        self.located = Located()
        self.unreachable = Unreachable()
        self._members: _Members[Database] = _Members(self.shards, partial(Database, role=role))

    def of(self, number: int) -> Database:
        """The database of one shard."""
        return self._members.of(number)

    def run(self, query: Query[T]) -> T:
        """Run a statement on the shards that its route names, each in its own transaction."""
        return self._answered(question(query, self.shards, self.located, self.unreachable))

    def each(self, works: Mapping[int, Callable[[], Any]]) -> dict[int, Any]:
        """Do these at the same time; the value of each, or its exception."""
        if len(works) == 1:
            return {number: _attempt(work) for number, work in works.items()}
        with ThreadPoolExecutor(len(works), "tasklib shard") as threads:
            running = {number: threads.submit(_attempt, work) for number, work in works.items()}
            return {number: future.result() for number, future in running.items()}

    def close(self) -> None:
        """Close the idle connections."""
        super().close()
        self._members.close()

    def _answered(self, asking: Question[T]) -> T:
        try:
            asked = next(asking)
            while True:
                asked = asking.send(self.each({n: partial(self.of(n).run, query) for n, query in asked.items()}))
        except StopIteration as end:
            answer: T = end.value
            return answer


class AsyncShardedDatabase(AsyncDatabase):
    """Runs queries over all shards, asynchronously. A single connection of it would see one shard: it has none."""

    def __init__(self, config: Config, role: str = "client") -> None:
        super().__init__(config, role)
        self.shards = CurrentShards(config)
        self.located = Located()
        self.unreachable = Unreachable()
        self._members: _Members[AsyncDatabase] = _Members(self.shards, partial(AsyncDatabase, role=role))

    def of(self, number: int) -> AsyncDatabase:
        """The database of one shard."""
        return self._members.of(number)

    async def run(self, query: Query[T]) -> T:
        """Run a statement on the shards that its route names, each in its own transaction."""
        asking = question(query, self.shards, self.located, self.unreachable)
        try:
            asked = next(asking)
            while True:
                answers = await self.each({n: partial(self.of(n).run, query) for n, query in asked.items()})
                asked = asking.send(answers)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def each(self, works: Mapping[int, Callable[[], Coroutine[Any, Any, Any]]]) -> dict[int, Any]:
        """Do these at the same time; the value of each, or its exception."""
        if len(works) == 1:
            return {number: await _attempt_async(work) for number, work in works.items()}
        async with asyncio.TaskGroup() as group:
            running = {number: group.create_task(_attempt_async(work)) for number, work in works.items()}
        return {number: task.result() for number, task in running.items()}

    def close(self) -> None:
        """Close the idle connections."""
        super().close()
        if hasattr(self, "_members"):  # else it was refused before it had any
            self._members.close()


def _attempt(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as e:
        return e


async def _attempt_async(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    try:
        return await work()
    except Exception as e:
        return e
