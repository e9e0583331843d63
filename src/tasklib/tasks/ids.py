"""Time-ordered ids (UUID version 7), growing within a process even inside one millisecond."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_lock = threading.Lock()
_last = 0


def new_id() -> UUID:
    """A new task id: 48 bits of milliseconds, a 12-bit count within them, 62 random bits."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[UUID]:
    """`count` ids in growing order."""
    global _last
    with _lock:
        # The count runs over into the milliseconds: order matters more than the last millisecond of truth.
        first = max(_last + 1, time.time_ns() // 1_000_000 << 12)
        _last = first + count - 1
    chance = os.urandom(8 * count)
    return [_uuid7(first + i, int.from_bytes(chance[8 * i : 8 * i + 8])) for i in range(count)]


def _uuid7(stamp: int, chance: int) -> UUID:
    milliseconds, within = stamp >> 12, stamp & 0xFFF
    return UUID(int=milliseconds << 80 | 0x7 << 76 | within << 64 | 0b10 << 62 | chance & (1 << 62) - 1)
