"""Approvals that durable tasks ask for: list them, answer them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from tasklib.client.cursors import cursor, moment, place_of
from tasklib.server.access import checked, client_of
from tasklib.server.approval_models import AnswerBody, AnsweredAnswer, ApprovalsAnswer, approval_answer
from tasklib.server.openapi import refusals
from tasklib.server.routing import Approver, Cursor, Given, Limit, Reader, page_size
from tasklib.store.approvals import ApprovalPlace
from tasklib.store.tokens import Role

router = APIRouter(prefix="/api/v1", tags=["approvals"])


@router.get("/approvals", operation_id="list_approvals", summary="List open approvals")
async def list_approvals(
    principal: Reader,
    given: Given,
    task_id: Annotated[UUID | None, Query(description="Only approvals of this task.")] = None,
    limit: Limit = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
) -> ApprovalsAnswer:
    """Approvals that wait for an answer, the oldest first. A submitter: only those of its own tasks."""
    size = page_size(limit, given)
    after = None if cursor_ is None else ApprovalPlace(*place_of("approvals", cursor_, moment, UUID, str))
    found = await client_of(principal, given).approvals(task_id=task_id, after=after, limit=size + 1)
    shown = [approval_answer(each, given.redaction) for each in found[:size]]
    last = found[size - 1] if len(found) > size else None
    following = None if last is None else cursor("approvals", last.asked_at.isoformat(), str(last.task_id), last.name)
    return ApprovalsAnswer(approvals=shown, next=following)


@router.post(
    "/tasks/{task_id}/answer",
    operation_id="answer_approval",
    summary="Approve or reject",
    responses=refusals(404, 409),
)
async def answer_approval(task_id: UUID, body: AnswerBody, principal: Approver, given: Given) -> AnsweredAnswer:
    """Answer an approval that a task waits for. It counts once; it is recorded in the audit."""
    client = client_of(principal, given)
    approval = await client.approval(task_id, body.name)
    checked(principal, frozenset({Role(approval.role)}))
    await client.answer(approval, approved=body.approved, form=body.form, comment=body.comment)
    return AnsweredAnswer(task_id=task_id, name=approval.name, approved=body.approved)
