"""Shards that could not be reached: reported to `missing_shards()` blocks, else by a Python warning.

with missing_shards() as missing:
    tasks = client.list_tasks(state="failed")
if missing:
    print("without the tasks of", *missing)      # {2: "can't connect to PostgreSQL at ..."}
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar


class MissingShardsWarning(UserWarning):
    """An answer has nothing of some shards. `shards` holds why, by their numbers."""

    def __init__(self, shards: Mapping[int, str]) -> None:
        self.shards = dict(shards)
        super().__init__(said(shards))


class PerShardWarning(UserWarning):
    """Something holds within each shard that one might expect to hold over all of them."""


_listening: ContextVar[dict[int, str] | None] = ContextVar("tasklib_missing_shards", default=None)


@contextmanager
def missing_shards() -> Iterator[dict[int, str]]:
    """Collect the shards that answers inside the block are without, each with the reason."""
    found: dict[int, str] = {}
    token = _listening.set(found)
    try:
        yield found
    finally:
        _listening.reset(token)


def missing_now() -> Mapping[int, str]:
    """What is missing so far, inside of `missing_shards`."""
    return _listening.get() or {}


def report(shards: Mapping[int, str]) -> None:
    """Say that the answer that is being made is without these."""
    if not shards:
        return
    listening = _listening.get()
    if listening is not None:
        listening.update(shards)
    else:
        warnings.warn(MissingShardsWarning(shards), stacklevel=2)


def said(shards: Mapping[int, str]) -> str:
    """Which shards are missing, in one line."""
    numbers = ", ".join(str(number) for number in sorted(shards))
    what, they = ("shard", "it") if len(shards) == 1 else ("shards", "them")
    reason = next(iter(shards.values()), "")
    return f"{what} {numbers} could not be reached; what is on {they} is missing from this answer: {reason}"
