"""Time-ordered ids (UUID version 7), growing within a process even inside one millisecond."""

from __future__ import annotations

import os
import threading
import time
from array import array
from uuid import UUID, SafeUUID

_lock = threading.Lock()
_last = 0
_CHANCE = (1 << 62) - 1
_VARIANT = 0b10 << 62


class Ids:
    """New ids in growing order, each made when it is first asked for."""

    def __init__(self, count: int) -> None:
        global _last
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
            made += [_uuid7(stamp, c) for stamp, c in enumerate(self._chances[known:count], self._start + known)]
        return made


def new_id() -> UUID:
    """A new task id: 48 bits of milliseconds, a 12-bit count within them, 62 random bits."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[UUID]:
    """`count` ids in growing order."""
    return Ids(count).first(count)


# UUID's own constructor takes four times as long: it checks what is known here.
_make, _set, _UNKNOWN = UUID.__new__, object.__setattr__, SafeUUID.unknown


def _uuid7(stamp: int, chance: int) -> UUID:
    # The count's 12 bits stay where they are; the milliseconds make room for the version before them.
    time_and_count = stamp >> 12 << 16 | 0x7000 | stamp & 0xFFF
    id_ = _make(UUID)
    _set(id_, "int", time_and_count << 64 | _VARIANT | chance & _CHANCE)
    _set(id_, "is_safe", _UNKNOWN)
    return id_
