"""Knowing when a worker, or a server for one of its workers, has looked for the last time and waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tasklib.backends.postgres.sleep import Wakeup


def note_rests(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set whenever one begins to wait, for long or for a moment."""
    rests = threading.Event()

    def noting(wait: Any) -> Any:
        async def noted(self: Wakeup, *arguments: Any) -> None:
            rests.set()
            await wait(self, *arguments)

        return noted

    for name in ("nap", "sleep"):
        monkeypatch.setattr(Wakeup, name, noting(getattr(Wakeup, name)))
    return rests
