"""What nobody may claim for now: queues and names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tasklib.db.query import Query

Kind = Literal["queue", "name"]


@dataclass(frozen=True, slots=True)
class Paused:
    """A queue or a name that is paused. What runs goes on; nothing of it begins."""

    kind: Kind
    value: str
    paused_at: datetime

    def holds(self, queue: str, name: str) -> bool:
        """True if a task of this queue and name is held back by it."""
        return self.value == (queue if self.kind == "queue" else name)


def pause(kind: Kind, value: str) -> Query[bool]:
    """Reads whether it was not paused before."""
    return Query("pause", {"kind": kind, "value": value}, bool)


def resume(kind: Kind, value: str) -> Query[bool]:
    """Reads whether it was paused."""
    return Query("resume", {"kind": kind, "value": value, "message": ""}, bool)


def pauses() -> Query[list[Paused]]:
    return Query("pause_list", {}, lambda rows: [Paused(*row) for row in rows], repeatable=True)
