"""From what the server says went wrong to the error that a client with a database would raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from tasklib.errors import (
    AccessDenied,
    ApprovalNotOpen,
    DatabaseUnavailable,
    DuplicateTask,
    FlowNotFound,
    IdempotencyKeyTaken,
    InvalidOption,
    KeyMissing,
    QueueFull,
    ReplayNotFound,
    ScheduleNotFound,
    SchemaError,
    ServerUnavailable,
    TaskExecutionError,
    TaskLibError,
    TaskNotEditable,
    TaskNotFound,
    TokenNotFound,
    UnexpectedAnswer,
    WorkerNotFound,
)
from tasklib.http.requests import Answer, Request

_DENIED = (401, 403, 421)
_BUSY = (429, 502, 503, 504)


def is_busy(answer: Answer) -> bool:
    """True if the same request may have a better answer in a while."""
    return answer.status in _BUSY and _problem(answer).get("code") not in ("schema_not_current", "queue_full")


def was_not_begun(answer: Answer) -> bool:
    """True if the server has refused to do anything yet: to ask again can't do it twice."""
    return answer.status == 429


def code_and_detail(answer: Answer) -> tuple[str, str]:
    """What an answer that is none says went wrong: the code, and a sentence for people."""
    problem = _problem(answer)
    return str(problem.get("code", "unknown")), str(problem.get("detail", "no reason given"))


def error_of(request: Request, answer: Answer) -> TaskLibError:
    """What an answer that is none means."""
    problem, about = _problem(answer), request.about
    detail, code = str(problem.get("detail", "")), str(problem.get("code", ""))
    match code:
        case "task_not_found":
            return TaskNotFound(detail, task_id=about.get("task_id"))
        case "unknown_task_type":
            return TaskNotFound(detail, name=problem.get("name"))
        case "worker_not_found":
            return WorkerNotFound(detail, worker_id=about.get("worker_id", ""))
        case "schedule_not_found":
            return ScheduleNotFound(str(problem.get("name", "")))
        case "flow_not_found":
            return FlowNotFound(about["flow_id"])
        case "replay_not_found":
            return ReplayNotFound(about["replay_id"])
        case "approval_not_open":
            return ApprovalNotOpen(about["task_id"], about.get("approval"))
        case "token_not_found":
            return TokenNotFound(about.get("id_or_prefix", ""))
        case "idempotency_key_taken":
            return IdempotencyKeyTaken(str(problem.get("name", "")), str(problem.get("key", "")))
        case "task_not_editable":
            return TaskNotEditable(detail, about["task_id"])
        case "duplicate_task":
            task_id, state = UUID(str(problem.get("task_id"))), str(problem.get("state", ""))
            return DuplicateTask(str(problem.get("name", "")), task_id, state)
        case "queue_full":
            queue, reason, after = str(problem["queue"]), str(problem["reason"]), float(problem["retry_after"])
            return QueueFull(queue, reason, after, name=problem.get("name"))
        case "invalid_arguments":
            return TaskExecutionError(detail, task=problem.get("task"), field=problem.get("field"))
        case "key_missing":
            return KeyMissing(problem.get("key_id"), detail)
        case "schema_not_current":
            return SchemaError(detail)
        case "database_unavailable":
            return DatabaseUnavailable(f"The server says: {detail}")
    if not code:
        return _not_ours(request, answer)
    if answer.status in _DENIED:
        return AccessDenied(_denied(answer.status, detail), code=code, roles=problem.get("roles", ()))
    if answer.status in _BUSY:
        return ServerUnavailable(f"the server has no time for this now: {detail}")
    if 400 <= answer.status < 500 and code not in ("not_found", "method_not_allowed"):
        return InvalidOption(detail)
    return UnexpectedAnswer(
        f"the server answered {request.method} {request.path} with {answer.status} {code}: {detail}",
        status=answer.status,
        request_id=problem.get("request_id"),
    )


def _denied(status: int, detail: str) -> str:
    if status == 401:
        return f"the server doesn't know who is asking: {detail} Give it as token=, or set TASKLIB_TOKEN."
    return f"the server doesn't allow this: {detail}"


def _not_ours(request: Request, answer: Answer) -> TaskLibError:
    where = f"{request.method} {request.path} was answered with {answer.status}"
    if answer.status in _BUSY:
        return ServerUnavailable(f"{where}, by something in front of the server. Is the server running?")
    return UnexpectedAnswer(f"{where}, which TaskLib's server doesn't say so. Check the URL.", status=answer.status)


def _problem(answer: Answer) -> Mapping[str, Any]:
    found = answer.json
    return found if isinstance(found, dict) else {}
