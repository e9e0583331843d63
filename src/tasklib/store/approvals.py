"""Approvals: what durable tasks ask people, and their answers. Each is a step of the kind `approval`, and a signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.columns import SEALED_MARK
from tasklib.db.query import Query, Rows
from tasklib.steps import APPROVAL
from tasklib.store.audit import Action, audited


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """An approval that waits for an answer."""

    task_id: UUID
    task: str
    """The name of the task function."""
    queue: str
    name: str
    """With its key, if it has one: `pay-out[3]`."""
    number: int
    """Distinguishes it from one of the same name that the task asked before it started over."""
    asked_at: datetime
    title: str
    details: Any
    role: str
    """What a token needs to answer it: approver, operator or admin."""
    form: Mapping[str, Any] | None
    """What is to be filled in, as JSON Schema."""
    expires_at: datetime | None
    refused: str | None
    """What was wrong with an answer that was given before."""
    sealed: str | None = None
    """Of a sealed task: what is asked, as ciphertext. Without its key only who may answer is known, and until when."""

    @property
    def signal(self) -> str:
        """The signal that answers it."""
        return f"{APPROVAL}{self.name}"

    def opened(self, asked: Mapping[str, Any]) -> OpenApproval:
        """The same with what is asked."""
        return _open(str(self.task_id), self.task, self.queue, self.name, self.number, self.asked_at, asked)


class ApprovalPlace(NamedTuple):
    """Where a page of approvals ended."""

    asked_at: datetime
    task_id: UUID
    name: str


def approvals(
    *,
    task_id: UUID | None = None,
    name: str | None = None,
    after: ApprovalPlace | None = None,
    owner: str | None,
    limit: int,
) -> Query[list[OpenApproval]]:
    """Approvals that wait for an answer, the oldest first."""
    parameters = {
        "task": None if task_id is None else str(task_id),
        "name": name,
        "after_at": after and after.asked_at,
        "after_task": after and str(after.task_id),
        "after_name": after and after.name,
        "owner": owner,
        "limit": limit,
    }
    return Query("approvals", parameters, lambda rows: [_open(*row) for row in rows], prepare=False, repeatable=True)


def answer_approval(
    approval: OpenApproval,
    *,
    approved: bool,
    comment: str,
    form: str | None,
    sender: str,
    owner: str | None,
    sealed: tuple[str, str] | None = None,
) -> Query[str | None]:
    """Answer it; reads `sent`, `closed`, `not_asked`, `finished`, `sealed`, or None: there is no such task.

    `sealed`: the answer to a sealed task, as JSON text, and its key.
    """
    payload, key_id = sealed or (None, None)
    parameters = {
        "id": str(approval.task_id),
        "approval": approval.name,
        "question": approval.number,
        "approved": approved,
        "comment": "" if sealed else comment,
        "form": None if sealed else form,
        "sender": sender,
        "owner": owner,
        "sealed": payload,
        "sealed_with": key_id,
    }
    return audited(
        "answer_approval",
        parameters,
        _outcome,
        by=sender,
        action=Action.ANSWER_APPROVAL,
        target=str(approval.task_id),
        details={"approval": approval.name, "approved": approved, "comment": None if sealed else comment or None},
    )


def _outcome(rows: Rows) -> str | None:
    return rows[0][0] if rows else None


def _open(
    task_id: str, task: str, queue: str, name: str, number: int, asked_at: datetime, asked: Mapping[str, Any]
) -> OpenApproval:
    expires_at, order = asked.get("expires_at"), asked.get("order") or {}
    return OpenApproval(
        UUID(task_id),
        task,
        queue,
        name,
        number,
        asked_at,
        title=asked.get("title") or name,
        details=_ordered(asked.get("details"), order.get("details", [])),
        role=asked.get("role") or "admin",
        form=_ordered_form(asked.get("form"), order.get("form", [])),
        expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
        refused=asked.get("refused"),
        sealed=asked.get(SEALED_MARK),
    )


def _ordered_form(form: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    return None if form is None else {**form, "properties": _ordered(form.get("properties", {}), names)}


def _ordered(value: Any, names: Sequence[str]) -> Any:
    """An object with these names first: jsonb has lost their order."""
    return {**{name: value[name] for name in names if name in value}, **value} if isinstance(value, dict) else value
