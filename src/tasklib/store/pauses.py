"""Pauses: queues and names that no worker may claim for now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tasklib.db.query import Query
from tasklib.store.audit import Action, audited

Kind = Literal["queue", "name"]


@dataclass(frozen=True, slots=True)
class Paused:
    """A queue or a name that is paused. Running tasks go on; no new ones start."""

    kind: Kind
    value: str
    paused_at: datetime

    def holds(self, queue: str, name: str) -> bool:
        """True if a task of this queue and name is held back by it."""
        return self.value == (queue if self.kind == "queue" else name)


def pause(kind: Kind, value: str, *, by: str) -> Query[bool]:
    """Reads whether it was not paused before."""
    return audited("pause", {"kind": kind, "value": value}, bool, by=by, action=Action.PAUSE, target=f"{kind}:{value}")


def resume(kind: Kind, value: str, *, by: str) -> Query[bool]:
    """Reads whether it was paused."""
    parameters = {"kind": kind, "value": value, "message": ""}
    return audited("resume", parameters, bool, by=by, action=Action.RESUME, target=f"{kind}:{value}")


def pauses() -> Query[list[Paused]]:
    return Query("pause_list", {}, lambda rows: [Paused(*row) for row in rows], repeatable=True)
