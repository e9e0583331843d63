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
from typing import Protocol


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


class HasState(Protocol):
    """A task, or anything else that says which state it is in."""

    @property
    def state(self) -> str: ...


def is_pending(task: HasState) -> bool:
    """Waiting for its time or for a worker."""
    return task.state == TaskState.PENDING


def is_running(task: HasState) -> bool:
    """Leased by a worker."""
    return task.state == TaskState.RUNNING


def is_completed(task: HasState) -> bool:
    """Done; the return value is `task.result`."""
    return task.state == TaskState.COMPLETED


def is_failed(task: HasState) -> bool:
    """An attempt failed and a retry is scheduled at `task.next_retry_at`."""
    return task.state == TaskState.FAILED


def is_cancelled(task: HasState) -> bool:
    """Cancelled before it could complete."""
    return task.state == TaskState.CANCELLED


def is_dead_letter(task: HasState) -> bool:
    """Failed for good; `task.error` says why."""
    return task.state == TaskState.DEAD_LETTER


def is_terminal(task: HasState) -> bool:
    """Completed, cancelled or dead letter: nothing more happens to it unless it is replayed."""
    return TaskState(task.state).is_terminal


def attempts_begun(state: str, retry_count: int, crash_count: int, last_recorded: object) -> int:
    """How many attempts of a task have begun; `last_recorded` is the number of the last one in its history.

    The last attempt of a dead letter is counted in neither column if it failed, and in one of them if it crashed.
    """
    begun = retry_count + crash_count
    if state in (TaskState.RUNNING, TaskState.COMPLETED):
        return begun + 1
    if state == TaskState.DEAD_LETTER and isinstance(last_recorded, int):
        return last_recorded
    return begun
