"""Bodies and answers about approvals."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tasklib.client.approvals import MAX_COMMENT
from tasklib.server.redaction import Redaction
from tasklib.server.request_models import Body, Name
from tasklib.store.approvals import OpenApproval

_ID = "0199d3c5-2f0e-7c3a-8a01-3f9a11c2aa01"
_APPROVAL: dict[str, JsonValue] = {
    "task_id": _ID,
    "task_type": "pay_out",
    "queue": "default",
    "name": "pay-out",
    "number": 1,
    "title": "Pay 5,000 to ACME?",
    "details": {"invoice": "R-17"},
    "role": "approver",
    "form": {
        "type": "object",
        "properties": {"account": {"type": "string", "title": "Account"}},
        "required": ["account"],
    },
    "asked_at": "2026-05-21T09:30:04.123456Z",
    "expires_at": "2026-05-28T09:30:04.123456Z",
    "refused": None,
}


class ApprovalAnswer(BaseModel):
    """An approval that waits for an answer."""

    model_config = ConfigDict(json_schema_extra={"examples": [_APPROVAL]})

    task_id: UUID
    task_type: str
    queue: str
    name: str = Field(description="With its key, if it has one: `pay-out[3]`.")
    number: int = Field(
        description="Distinguishes it from one of the same name that the task asked before it started over."
    )
    title: str
    details: Any = Field(description="What the task says about it. Values that look like secrets are masked.")
    role: str = Field(description="The role that a token needs to answer it: approver, operator or admin.")
    form: dict[str, Any] | None = Field(description="The form to fill in, as JSON Schema; null: none.")
    asked_at: datetime
    expires_at: datetime | None
    refused: str | None = Field(description="The error of an answer that was given before.")


class ApprovalsAnswer(BaseModel):
    """Approvals that wait for an answer, the oldest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"approvals": [_APPROVAL], "next": None}]})

    approvals: list[ApprovalAnswer]
    next: str | None = Field(description="Pass it as `cursor` for the next page; null on the last one.")


class AnswerBody(Body):
    """The answer to an approval."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"approved": True, "name": "pay-out", "comment": "fine", "form": {"account": "DE02"}}]
        },
    )

    approved: bool
    name: Annotated[
        Name | None, Field(description="Which approval; may be left out if the task asks for one only.")
    ] = None
    comment: Annotated[str, Field(max_length=MAX_COMMENT)] = ""
    form: Annotated[dict[str, Any] | None, Field(description="The values of the form's fields.")] = None


class AnsweredAnswer(BaseModel):
    """The approval that was answered."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"task_id": _ID, "name": "pay-out", "approved": True}]})

    task_id: UUID
    name: str
    approved: bool


def approval_answer(approval: OpenApproval, redaction: Redaction) -> ApprovalAnswer:
    approval = redaction.approval(approval)
    return ApprovalAnswer(
        task_id=approval.task_id,
        task_type=approval.task,
        queue=approval.queue,
        name=approval.name,
        number=approval.number,
        title=approval.title,
        details=approval.details,
        role=approval.role,
        form=None if approval.form is None else dict(approval.form),
        asked_at=approval.asked_at,
        expires_at=approval.expires_at,
        refused=approval.refused,
    )
