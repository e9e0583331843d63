"""Commands that do the same in every shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasklib.config import Config


def each_shard(config: Config) -> Iterator[tuple[int | None, Config]]:
    """The number and the configuration of each shard; without shards the configuration itself."""
    if not config.shards:
        yield None, config
    for shard in config.shards:
        yield shard.number, config.for_shard(shard.number)


def named(number: int | None) -> str:
    """What a line about a shard begins with."""
    return "" if number is None else f"shard {number}: "
