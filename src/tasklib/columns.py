"""The columns of `tasks`, in the order of the model (`models.py`): reading rows must not import SQLModel."""

LARGE_COLUMNS = ("args", "kwargs", "result", "error", "tags", "trace_context", "progress", "history")
"""Those that may have any size."""

TASK_COLUMNS: tuple[str, ...] = (
    "id",
    "name",
    "queue",
    "state",
    "args",
    "kwargs",
    "result",
    "error",
    "retry_count",
    "max_retries",
    "next_retry_at",
    "scheduled_at",
    "started_at",
    "completed_at",
    "created_at",
    "worker_id",
    "locked_until",
    "timeout_seconds",
    "priority",
    "tags",
    "required_capabilities",
    "idempotency_key",
    "idempotency_expires_at",
    "trace_context",
    "lease_token",
    "crash_count",
    "cancel_requested_at",
    "progress",
    "history",
    "begun_token",
    "at_most_once",
    "submitted_by",
)
