"""The columns of `tasks`, in the order of the model (`models.py`): reading rows must not import SQLModel."""

from typing import Any

SEALED_MARK = "$sealed"
"""The key under which a column holds ciphertext: see tasks/sealing.py."""
SEALED_OF = "$of"
"""Of a sealed result that is handed on: the id and the name of its task."""
SEALED_FROM = "$from"
"""Among sealed arguments: which tasks of the flow the others are the results of."""
LARGE_COLUMNS = ("args", "kwargs", "result", "error", "tags", "trace_context", "progress", "history")
"""Those that may have any size."""

TASK_COLUMNS: tuple[str, ...] = (
    "id",
    "name",
    "queue",
    "lane",
    "state",
    "args",
    "kwargs",
    "tags",
    "required_capabilities",
    "created_at",
    "scheduled_at",
    "lease_token",
    "priority",
    "max_retries",
    "retry_count",
    "crash_count",
    "next_retry_at",
    "started_at",
    "completed_at",
    "cancel_requested_at",
    "locked_until",
    "worker_id",
    "timeout_seconds",
    "result",
    "error",
    "progress",
    "history",
    "awaited_signals",
    "signals_sent",
    "begun_token",
    "at_most_once",
    "idempotency_key",
    "idempotency_expires_at",
    "trace_context",
    "submitted_by",
    "schedule",
    "slot",
    "flow",
    "node",
    "waits_for",
    "reports_to",
    "merge_key",
    "merge_while",
    "payload_version",
    "key_id",
)


def returned(stored: Any) -> Any:
    """What a function returned, of the column `result`: it holds {"value": ...}, or NULL before the task completed."""
    if isinstance(stored, dict) and stored.keys() <= {"value"}:
        return stored.get("value")
    return stored  # written by hand
