"""What the API answers. A `status` is one of the states of a task, in the words of the table."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, Field

from tasklib.client.identity import said_key
from tasklib.client.submissions import Submitted
from tasklib.formatting import last_line
from tasklib.models import Task
from tasklib.priorities import HIGH, MEDIUM
from tasklib.server.models import example
from tasklib.states import TaskState
from tasklib.steps import StepKind
from tasklib.store.lookup import Outcome

_ID = "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"
_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_TASK = {
    "task_id": _ID,
    "task_type": "process_video",
    "status": "running",
    "queue": "default",
    "parameters": {"video_id": 17, "format": "webm"},
    "priority": 100,
    "level": "high",
    "effective_priority": 100,
    "effective_level": "high",
    "required_capabilities": ["gpu"],
    "tags": {"customer": "acme"},
    "timeout_seconds": 600,
    "max_retries": 5,
    "retry_count": 0,
    "crash_count": 0,
    "created_at": "2026-05-21T08:30:00Z",
    "scheduled_at": "2026-05-21T08:30:00Z",
    "next_retry_at": None,
    "started_at": "2026-05-21T08:30:01Z",
    "completed_at": None,
    "assigned_worker_id": "gpu1-4711-9f3a",
    "locked_until": "2026-05-21T08:40:01Z",
    "lease_token": 1,
    "cancel_requested_at": None,
    "progress": {"percent": 40},
    "result": None,
    "error": None,
    "idempotency_key": "video-17-webm",
    "idempotency_expires_at": "2026-05-22T08:30:00Z",
    "merge_key": None,
    "merge_while": None,
    "payload_version": None,
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "trace_context": {"traceparent": _TRACE},
    "history": None,
    "submitted_by": "0196f29f-1b2c-7000-8000-5a5a5a5a5a5a",
    "schedule": None,
    "slot": None,
    "flow": None,
    "node": None,
    "left_out": [],
}


class SubmittedAnswer(BaseModel):
    """A task that is stored."""

    model_config = example({"task_id": _ID, "status": "pending", "is_new": True, "queue_position": 5})

    task_id: UUID
    status: TaskState
    is_new: bool = Field(description="False: its key belongs to this task, which was there before.")
    queue_position: int | None = Field(
        description="1 for the next task. Counting ends at 10,001. Null if it isn't waiting in a queue: not due yet, "
        "paused, running, finished; or if the request said `queue_position=false`."
    )


class BatchItem(BaseModel):
    """One task of a batch."""

    task_id: UUID
    is_new: bool

    @classmethod
    def of(cls, submitted: Submitted) -> Self:
        return cls(task_id=submitted.id, is_new=submitted.is_new)


class BatchAnswer(BaseModel):
    """The tasks of a batch, in its order."""

    model_config = example({"tasks": [{"task_id": _ID, "is_new": True}]})

    tasks: list[BatchItem]


class ErrorAnswer(BaseModel):
    """What the last attempt that failed said."""

    message: str = Field(description="The last line of the traceback.")
    traceback: str
    retriable: bool = Field(description="True while a retry is scheduled.")


class TaskAnswer(BaseModel):
    """A task."""

    model_config = example(_TASK)

    task_id: UUID
    task_type: str
    status: TaskState
    queue: str
    parameters: dict[str, Any] | None = Field(description="null only where `left_out` names it.")
    priority: int
    level: str = Field(description="`high` from 100 on, `medium` from 0 on, `low` below.")
    effective_priority: int = Field(description="What waiting has made of the priority.")
    effective_level: str
    required_capabilities: list[str]
    tags: dict[str, Any] | None
    timeout_seconds: int | None
    max_retries: int
    retry_count: int
    crash_count: int = Field(description="Attempts that took their worker or child process down.")
    created_at: datetime
    scheduled_at: datetime
    next_retry_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None = Field(description="Set in every terminal state.")
    assigned_worker_id: str | None
    locked_until: datetime | None
    lease_token: int = Field(description="Grows with every claim.")
    cancel_requested_at: datetime | None = Field(description="Its worker was requested to stop it.")
    progress: Any
    result: Any = Field(description="What the function returned; null unless completed.")
    error: ErrorAnswer | None
    idempotency_key: str | None
    idempotency_expires_at: datetime | None
    merge_key: str | None = Field(description="Submissions with this key were merged into this task.")
    merge_while: str | None = Field(description="Until when: `pending` or `unfinished`.")
    payload_version: int | None = Field(description="The version of its arguments, if its function has versions.")
    trace_id: str
    trace_context: dict[str, Any] | None
    history: list[dict[str, Any]] | None = Field(description="The attempts that failed, as far as they are kept.")
    submitted_by: str | None = Field(description="The id of the token it was submitted with.")
    schedule: str | None = Field(description="The schedule that it is a run of.")
    slot: datetime | None = Field(description="The slot it runs for; null for a run that was started by hand.")
    flow: UUID | None = Field(description="The flow that it is part of.")
    node: str | None = Field(description="Its node in the flow.")
    left_out: list[str] = Field(
        default_factory=list,
        description="In lists and streams: the fields that are null because they are large, or cut to their end "
        "(`error`). `GET /api/v1/tasks/{task_id}` has them.",
    )

    @classmethod
    def of(cls, task: Task, effective_priority: int) -> Self:
        return cls(
            task_id=task.id,
            task_type=task.name,
            status=TaskState(task.state),
            parameters=task.kwargs,
            level=level_of(task.priority),
            effective_priority=effective_priority,
            effective_level=level_of(effective_priority),
            assigned_worker_id=task.worker_id,
            result=task.result,
            error=_error(task.error, TaskState(task.state)),
            idempotency_key=said_key(task.idempotency_key, task.submitted_by),
            merge_key=said_key(task.merge_key, task.submitted_by),
            trace_id=task.trace_id,
            **{name: getattr(task, name) for name in _AS_THEY_ARE},
        )


_AS_THEY_ARE = (
    "queue",
    "priority",
    "required_capabilities",
    "tags",
    "timeout_seconds",
    "max_retries",
    "retry_count",
    "crash_count",
    "created_at",
    "scheduled_at",
    "next_retry_at",
    "started_at",
    "completed_at",
    "locked_until",
    "lease_token",
    "cancel_requested_at",
    "progress",
    "idempotency_expires_at",
    "merge_while",
    "payload_version",
    "trace_context",
    "history",
    "submitted_by",
    "schedule",
    "slot",
    "flow",
    "node",
)


class TaskPage(BaseModel):
    """Tasks, the newest first."""

    model_config = example({"tasks": [_TASK], "next": "eyJhZnRlciI6IjAxOTZmMmEwIn0"})

    tasks: list[TaskAnswer]
    next: str | None = Field(description="Pass it as `cursor` for the next page; null on the last one.")
    looked_at: int | None = Field(
        default=None,
        description="How many tasks the search read before it stopped; `next` continues there. Null: it read all.",
    )


class SignalAnswer(BaseModel):
    """Whether a signal was sent, now or before under the same key. It isn't to a task that is finished."""

    model_config = example({"task_id": _ID, "sent": True})

    task_id: UUID
    sent: bool


class StepAnswer(BaseModel):
    """A record of a durable task."""

    kind: StepKind
    name: str
    recorded_at: datetime


class StepsAnswer(BaseModel):
    """All records of a durable task, the oldest first."""

    model_config = example(
        {"items": [{"kind": "step", "name": "charge", "recorded_at": "2026-05-21T09:30:04.123456Z"}]}
    )

    items: list[StepAnswer]


class StatusAnswer(BaseModel):
    """How a task stands now."""

    model_config = example({"task_id": _ID, "status": "cancelled"})

    task_id: UUID
    status: TaskState


class OutcomeAnswer(BaseModel):
    """How a task ended, or that it hasn't."""

    model_config = example(
        {
            "task_id": _ID,
            "task_type": "process_video",
            "status": "completed",
            "result": {"frames": 1440},
            "error": None,
        },
        {"task_id": _ID, "task_type": "process_video", "status": "running", "result": None, "error": None},
    )

    task_id: UUID
    task_type: str
    status: TaskState
    result: Any = Field(description="What the function returned; null unless completed.")
    error: ErrorAnswer | None = Field(description="Of a dead letter, and of a task that waits for its retry.")

    @classmethod
    def of(cls, task_id: UUID, outcome: Outcome) -> Self:
        status = TaskState(outcome.state)
        return cls(
            task_id=task_id,
            task_type=outcome.name,
            status=status,
            result=outcome.result,
            error=_error(outcome.error, status),
        )


class ReasonAnswer(BaseModel):
    """One thing that keeps a task from running, or says why nothing does."""

    code: str
    sentence: str
    hint: str = Field(description="What to do about it, if anything.")
    details: dict[str, Any]


class PositionAnswer(BaseModel):
    """Where a task stands in line."""

    number: int = Field(description="1 for the next task.")
    ahead: int
    is_capped: bool = Field(description="True: there are at least so many ahead; counting ended there.")
    workers: int = Field(description="Live workers that could take it.")
    slots: int = Field(description="How many tasks these run at a time.")
    average_seconds: float | None
    eta_seconds: float | None


class ExplanationAnswer(BaseModel):
    """Why a task is not running: every reason that holds, the most decisive first."""

    model_config = example(
        {
            "task_id": _ID,
            "name": "process_video",
            "queue": "default",
            "state": "pending",
            "reasons": [
                {
                    "code": "paused",
                    "sentence": "The queue default is paused since 2 min 5 s.",
                    "hint": "Resume it: tasklib resume --queue default",
                    "details": {"queue": "default"},
                }
            ],
            "position": None,
        }
    )

    task_id: UUID
    name: str
    queue: str
    state: TaskState
    reasons: list[ReasonAnswer]
    position: PositionAnswer | None


class CancelledAnswer(BaseModel):
    """What a cancel by filter did, or would do."""

    model_config = example({"cancelled": 120, "asked": 3, "dry_run": False})

    cancelled: int = Field(description="Tasks that waited.")
    asked: int = Field(description="Tasks that run, and whose workers were asked to stop them.")
    dry_run: bool


class ErasedAnswer(BaseModel):
    """What an erasure did, or would do."""

    model_config = example({"erased": 120, "left": 3, "dry_run": False})

    erased: int = Field(description="Tasks whose arguments, results, errors, steps and signals are gone.")
    left: int = Field(description="Tasks that match and are not finished: cancel them, and erase again.")
    dry_run: bool


def level_of(priority: int) -> str:
    """The level a priority stands on."""
    return "high" if priority >= HIGH else "medium" if priority >= MEDIUM else "low"


def _error(error: str | None, status: TaskState) -> ErrorAnswer | None:
    if error is None:
        return None
    return ErrorAnswer(message=last_line(error), traceback=error, retriable=status is TaskState.FAILED)
