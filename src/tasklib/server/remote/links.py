"""The server's connections for its workers: a few for each purpose, with the settings that a worker's own have."""

from __future__ import annotations

from typing import TypeVar

from tasklib.config import Config
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection

T = TypeVar("T")


class Links:
    """Runs each query on the connection that has the least to do; opened when needed."""

    def __init__(self, config: Config, purpose: str, count: int) -> None:
        self._links = [ReconnectingConnection(config, purpose) for _ in range(count)]
        self._busy = [0] * count

    async def run(self, query: Query[T]) -> T:
        """DatabaseUnavailable means that the connection broke: it may have taken effect or not."""
        least = self._busy.index(min(self._busy))
        self._busy[least] += 1
        try:
            return await self._links[least].run(query)
        finally:
            self._busy[least] -= 1

    def close(self) -> None:
        for link in self._links:
            link.drop()
