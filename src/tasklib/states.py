"""The states of a task and the legal moves between them: one place, as data.

                 claim                    complete
    pending ───────────────▶ running ───────────────▶ completed
       ▲  ▲                  │ │ │ │
       │  └──── release ─────┘ │ │ └─ give up ──────▶ dead_letter
       │                  fail │ │                      ▲
       │                       ▼ └──── cancel ──▶ cancelled
       │         claim ◀─── failed ── cancel ─────▶ ▲
       └──────────── replay, from any terminal state

`failed` means: an attempt failed and a retry is scheduled. It is claimed like `pending`.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class TaskState(StrEnum):
    """Where a task is in its life. A plain string in the table, JSON and the CLI."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD_LETTER = "dead_letter"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


CLAIMABLE = frozenset({TaskState.PENDING, TaskState.FAILED})
TERMINAL = frozenset({TaskState.COMPLETED, TaskState.CANCELLED, TaskState.DEAD_LETTER})

# from -> {to: what makes the move}
MOVES = MappingProxyType(
    {
        TaskState.PENDING: {TaskState.RUNNING: "claim", TaskState.CANCELLED: "cancel"},
        TaskState.FAILED: {TaskState.RUNNING: "claim", TaskState.CANCELLED: "cancel"},
        TaskState.RUNNING: {
            TaskState.COMPLETED: "complete",
            TaskState.FAILED: "fail or release a retry",
            TaskState.PENDING: "release",
            TaskState.DEAD_LETTER: "give up",
            TaskState.CANCELLED: "cancel",
        },
        TaskState.COMPLETED: {TaskState.PENDING: "replay"},
        TaskState.CANCELLED: {TaskState.PENDING: "replay"},
        TaskState.DEAD_LETTER: {TaskState.PENDING: "replay"},
    }
)


def is_legal(before: TaskState, after: TaskState) -> bool:
    """True if a task may go from one state to the other in a single move."""
    return after in MOVES[before]
