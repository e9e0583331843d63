"""Waiting for changes without a notification: rows that others write, the server's view, another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 120.0


def eventually(condition: Callable[[], object], what: str = "what was waited for") -> None:
    """Look until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


async def soon(condition: Callable[[], object], what: str = "what was waited for") -> None:
    """The same, while the loop goes on."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.01)
