"""From the API's JSON to what a client returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tasklib.client.explaining import Explanation, Position, Reason
from tasklib.client.failures import FailureReport
from tasklib.client.flows import FlowDetails
from tasklib.client.schedules import Preview
from tasklib.columns import TASK_COLUMNS
from tasklib.schedules import PreviewedSlot
from tasklib.states import TaskState
from tasklib.store.approvals import OpenApproval
from tasklib.store.audit import AuditRecord
from tasklib.store.backpressure import NameBound, QueueBound
from tasklib.store.breakers import BreakerInfo
from tasklib.store.dead_letters import DeadLetterGroup
from tasklib.store.failures import FailureCause, FailureField, FieldValue
from tasklib.store.fleet import WorkerInfo
from tasklib.store.flows import FlowInfo, GateInfo, NodeInfo
from tasklib.store.limits import LimitInfo
from tasklib.store.pauses import Paused
from tasklib.store.replays import Replay
from tasklib.store.saved_searches import SavedSearch
from tasklib.store.schedules import ScheduleInfo
from tasklib.store.tokens import TokenInfo

if TYPE_CHECKING:
    from tasklib.models import Task

Json = Mapping[str, Any]
if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_TASK_TIMES = frozenset(
    {
        "created_at",
        "scheduled_at",
        "next_retry_at",
        "started_at",
        "completed_at",
        "locked_until",
        "cancel_requested_at",
        "idempotency_expires_at",
        "slot",
    }
)
_OTHER_NAMES = {"id": "task_id", "name": "task_type", "state": "status", "kwargs": "parameters"}


def task_of(found: Json) -> Task:
    """A task, as the row has it."""
    values: dict[str, Any] = {column: found.get(_OTHER_NAMES.get(column, column)) for column in TASK_COLUMNS}
    values |= {name: moment_of(values[name]) for name in _TASK_TIMES}
    completed, error = found["status"] == TaskState.COMPLETED, found["error"]
    values |= {
        "id": UUID(found["task_id"]),
        "flow": (flow := found.get("flow")) and UUID(flow),
        "args": {},
        "lane": "",
        "result": found["result"] if completed else None,
        "error": error["traceback"] if error else None,
        "worker_id": found["assigned_worker_id"],
    }
    from tasklib.models import Task  # SQLModel takes half a second to import

    return Task(**values)


def explanation_of(found: Json) -> Explanation:
    """Why a task is not running."""
    return Explanation(
        UUID(found["task_id"]),
        found["name"],
        found["queue"],
        TaskState(found["state"]),
        tuple(_made(Reason, reason) for reason in found["reasons"]),
        position_of(found["position"]),
    )


def position_of(found: Json | None) -> Position | None:
    """Where a task stands in line."""
    return None if found is None else _made(Position, found)


def worker_of(found: Json) -> WorkerInfo:
    times = ("started_at", "last_heartbeat", "drain_requested_at")
    return _made(WorkerInfo, {**found, "id": found["worker_id"]}, **dict.fromkeys(times, moment_of))


def schedule_of(found: Json) -> ScheduleInfo:
    """A schedule, as the row has it; secrets among its arguments are masked."""
    names = ("queue", "max_retries", "timeout_seconds", "priority", "tags", "required_capabilities", "payload_version")
    template = {"kwargs": found["parameters"], **{name: found[name] for name in names}}
    values = {**found, "task": found["task_type"], "spec": found["schedule"], "template": template}
    times = [f.name for f in fields(ScheduleInfo) if f.name.endswith(("_at", "_slot"))]
    return _made(ScheduleInfo, values, last_task=lambda id_: id_ and UUID(id_), **dict.fromkeys(times, moment_of))


def preview_of(found: Json) -> Preview:
    """What a schedule means. Times of its zone have the offset they had there."""
    times = {"utc": _utc, "local": datetime.fromisoformat}
    return Preview(found["description"], [_made(PreviewedSlot, slot, **times) for slot in found["slots"]])


def flow_of(found: Json) -> FlowInfo:
    """A flow, and how far it is."""
    times = ("created_at", "cancel_requested_at", "finished_at", "now")
    values = {**found, "id": found["flow_id"], "now": found["read_at"]}
    return _made(FlowInfo, values, id=UUID, **dict.fromkeys(times, moment_of))


def flow_details_of(found: Json) -> FlowDetails:
    """A flow with its nodes and gates."""
    nodes = [_made(NodeInfo, {**node, "task": node["task_type"]}) for node in found["nodes"]]
    times = dict.fromkeys(("opened_at", "failed_at"), moment_of)
    gates = [_made(GateInfo, {**gate, "id": gate["gate_id"]}, **times) for gate in found["gates"]]
    return FlowDetails(flow_of(found), nodes, gates)


def limit_of(found: Json) -> LimitInfo:
    return _made(LimitInfo, found, changed_at=moment_of, blocked_until=moment_of)


def queue_bound_of(found: Json) -> QueueBound:
    return _made(QueueBound, found, changed_at=moment_of)


def name_bound_of(found: Json) -> NameBound:
    return _made(NameBound, found, changed_at=moment_of)


def breaker_of(found: Json) -> BreakerInfo:
    return _made(BreakerInfo, found, **dict.fromkeys(("since", "until", "changed_at"), moment_of))


def saved_search_of(found: Json) -> SavedSearch:
    return _made(SavedSearch, found, saved_at=moment_of)


def paused_of(found: Json) -> Paused:
    return _made(Paused, found, paused_at=moment_of)


def group_of(found: Json) -> DeadLetterGroup:
    return _made(DeadLetterGroup, found, first_seen=moment_of, last_seen=moment_of, sample_id=UUID)


def failures_of(found: Json) -> FailureReport:
    causes = [
        _made(
            FailureCause,
            {**each, "ids": each["task_ids"]},
            first_seen=moment_of,
            last_seen=moment_of,
            counts=tuple,
            ids=lambda ids: tuple(map(UUID, ids)),
        )
        for each in found["causes"]
    ]
    fields = {
        each["fingerprint"]: [
            _made(FailureField, field, values=lambda values: tuple(FieldValue(**value) for value in values))
            for field in each["fields"]
        ]
        for each in found["causes"]
        if each["fields"]
    }
    times: dict[str, Any] = {name: moment_of(found[name]) for name in ("since", "until", "back_to", "deployed_at")}
    return FailureReport(causes=causes, fields=fields, attempts=found["attempts"], **times)


def replay_of(found: Json) -> Replay:
    times = dict.fromkeys(("created_at", "ended_at"), moment_of)
    return _made(Replay, found, id=UUID, canary_task=lambda id_: id_ and UUID(id_), **times)


def token_of(found: Json) -> TokenInfo:
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    lists: dict[str, Callable[[Any], Any]] = {"roles": tuple, "queues": lambda q: None if q is None else tuple(q)}
    return _made(TokenInfo, found, id=UUID, **lists, **dict.fromkeys(times, moment_of))


def record_of(found: Json) -> AuditRecord:
    return _made(AuditRecord, found, at=moment_of)


def moment_of(text: str | None) -> datetime | None:
    """A time of the API."""
    return None if text is None else datetime.fromisoformat(text)


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _made(kind: type[T], found: Json, **parsers: Callable[[Any], Any]) -> T:
    """A dataclass of what the answer has for its fields. What a newer server says besides is left alone."""
    names = [f.name for f in fields(kind) if f.name in found]
    return kind(**{name: parsers.get(name, _same)(found[name]) for name in names})


def _same(value: Any) -> Any:
    return value


def approval_of(found: Json) -> OpenApproval:
    """An open approval."""
    return OpenApproval(
        UUID(found["task_id"]),
        found["task_type"],
        found["queue"],
        found["name"],
        found["number"],
        datetime.fromisoformat(found["asked_at"]),
        found["title"],
        found["details"],
        found["role"],
        found["form"],
        moment_of(found["expires_at"]),
        found["refused"],
    )
