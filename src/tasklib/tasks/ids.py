"""Time-ordered ids (UUID version 7), growing within a process even inside one millisecond.

The 128 bits of an id, the first one first; `tasklib_new_id()` in the database makes the same:

    48  milliseconds since 1970
     4  the version, 7
    12  a count within the millisecond (in the database: the microseconds within it)
     2  the variant, binary 10
    10  the shard: which of the schemas that tasks are spread over has the task; 0 if there is only one
    52  chance
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from array import array
from collections.abc import Sequence
from uuid import UUID, SafeUUID

from tasklib.errors import InvalidOption

# A signal handler that submits may come in between, in the same thread: it must not wait for itself. At worst its ids
# and those it interrupted count from the same millisecond; they differ by chance all the same.
_lock = threading.RLock()
_last = 0
_CHANCE_BITS = 52
_CHANCE = (1 << _CHANCE_BITS) - 1
_MOST_SHARD = (1 << 10) - 1
_VARIANT = 0b10 << 62
_MOST_OFF_SECONDS = 86400


class Ids:
    """New ids in growing order, each made when it is first asked for."""

    def __init__(self, count: int, kind: type[UUID] = UUID, shard: int = 0) -> None:
        global _last
        self._kind = kind
        self._variant_and_shard = _VARIANT | shard << _CHANCE_BITS
        with _lock:
            # The count runs over into the milliseconds: order matters more than the last millisecond of truth.
            self._start = max(_last + 1, time.time_ns() // 1_000_000 << 12)
            _last = self._start + count - 1
        self._chances = array("Q", os.urandom(8 * count))
        self._made: list[UUID] = []

    def first(self, count: int) -> list[UUID]:
        """At least the first `count` of them, in a list that grows."""
        made = self._made
        if count > (known := len(made)):
            stamped = enumerate(self._chances[known:count], self._start + known)
            kind, middle = self._kind, self._variant_and_shard
            made += [_uuid7(kind, stamp, middle, chance) for stamp, chance in stamped]
        return made


class Given:
    """Ids that a caller has made, to be able to repeat a submission."""

    def __init__(self, ids: Sequence[UUID]) -> None:
        self._ids = list(ids)
        if len(set(self._ids)) != len(self._ids):
            raise InvalidOption("two tasks were given the same id. Make a new one for each task.")
        for id_ in self._ids:
            check_id(id_, "task")

    def first(self, count: int) -> list[UUID]:
        """At least the first `count` of them."""
        return self._ids


def check_id(id_: UUID, what: str) -> None:
    """Refuse an id without its true time in it: tasks and flows are listed in the order of their ids."""
    if id_.version != 7 or abs((id_.int >> 80) / 1000 - time.time()) > _MOST_OFF_SECONDS:
        raise InvalidOption(f"a {what}'s id is a UUID of version 7 that was made today, not {id_}.")


def new_id(shard: int = 0) -> UUID:
    """A new task id."""
    return new_ids(1, shard)[0]


def new_ids(count: int, shard: int = 0) -> list[UUID]:
    """`count` ids in growing order."""
    return Ids(count, shard=shard).first(count)


def spawned_id(parent: UUID, key: str | int) -> UUID:
    """The id of a task that another one spawns: the same for the same parent and key, with its time and shard."""
    text = f"{parent.hex}/{type(key).__name__}/{key}"
    chance = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    milliseconds = parent.int >> 80
    middle = _VARIANT | shard_of(parent) << _CHANCE_BITS
    return _uuid7(UUID, milliseconds << 12 | chance >> _CHANCE_BITS, middle, chance)


def start_of_millisecond(id_: UUID) -> UUID:
    """No id of the same millisecond is lower: nor is that of a task that this one spawns."""
    return UUID(int=id_.int >> 80 << 80)


def shard_of(id_: UUID) -> int:
    """The shard that an id names, from 0 to 1023. Only ids made by TaskLib name one; in others it is chance."""
    return id_.int >> _CHANCE_BITS & _MOST_SHARD


# UUID's own constructor takes four times as long: it repeats checks that are not needed here.
_make, _set, _UNKNOWN = UUID.__new__, object.__setattr__, SafeUUID.unknown


def _uuid7(kind: type[UUID], stamp: int, variant_and_shard: int, chance: int) -> UUID:
    # The count's 12 bits stay where they are; the milliseconds make room for the version before them.
    time_and_count = stamp >> 12 << 16 | 0x7000 | stamp & 0xFFF
    id_ = _make(kind)
    _set(id_, "int", time_and_count << 64 | variant_and_shard | chance & _CHANCE)
    if kind is UUID:  # a TaskId has it from its class
        _set(id_, "is_safe", _UNKNOWN)
    return id_
