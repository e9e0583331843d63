"""Approvals over HTTP."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from tasklib.client import validation
from tasklib.client.approvals import checked_comment, plain
from tasklib.client.cursors import cursor
from tasklib.client.effects import Call
from tasklib.http import responses
from tasklib.http.flows import HttpFlowCalls
from tasklib.http.requests import API, Request, query_of
from tasklib.http.transport import checked
from tasklib.store.approvals import ApprovalPlace, OpenApproval


class HttpApprovalCalls(HttpFlowCalls):
    """What a program does with approvals."""

    def approvals(
        self,
        *,
        task_id: UUID | str | None = None,
        after: OpenApproval | ApprovalPlace | None = None,
        limit: int = 100,
    ) -> Call[list[OpenApproval]]:
        checked(super().approvals(task_id=task_id, after=after, limit=limit))
        start = None
        if after is not None:
            start = cursor("approvals", after.asked_at.isoformat(), str(after.task_id), after.name)
        query = query_of(task_id=None if task_id is None else str(validation.as_id(task_id)))
        return (yield from self._pages("/approvals", "approvals", query, start, limit, responses.approval_of))

    def approve(
        self, task_id: UUID | str, name: str | None = None, *, form: Any = None, comment: str = ""
    ) -> Call[None]:
        yield from self._answer(task_id, name, approved=True, form=plain(form), comment=comment)

    def reject(self, task_id: UUID | str, name: str | None = None, *, comment: str = "") -> Call[None]:
        yield from self._answer(task_id, name, approved=False, form=None, comment=comment)

    def _answer(self, task_id: UUID | str, name: str | None, *, approved: bool, form: Any, comment: str) -> Call[None]:
        id_ = validation.as_id(task_id)
        answer = {"approved": approved, "name": name, "form": form, "comment": checked_comment(comment)}
        about = {"task_id": id_, "approval": name}
        yield from self._ask(Request("POST", f"{API}/tasks/{id_}/answer", body=json.dumps(answer), about=about))
