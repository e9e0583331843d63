"""The calls about approvals that durable tasks ask for: list them, approve, reject."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

from tasklib.client import validation
from tasklib.client.approval_forms import checked_values
from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.client.sealing import seal_for
from tasklib.errors import ApprovalNotOpen, InvalidOption
from tasklib.store import approvals, audit, durable, lookup
from tasklib.store.approvals import ApprovalPlace, OpenApproval
from tasklib.store.audit import Action
from tasklib.store.durable import SealedWith
from tasklib.tasks.keyring import keyring_of
from tasklib.tasks.payload import dump
from tasklib.tasks.sealed_records import opened_question, sealed_signal
from tasklib.tasks.sealing import TaskSeal, key_id_of
from tasklib.tasks.unstorable import UnstorableValue

MAX_COMMENT = 4000
MAX_FORM_BYTES = 200 * 1024


class ApprovalCalls(OnBehalf):
    """Approvals."""

    def approvals(
        self,
        *,
        task_id: UUID | str | None = None,
        after: OpenApproval | ApprovalPlace | None = None,
        limit: int = 100,
    ) -> Call[list[OpenApproval]]:
        """Approvals that wait for an answer, the oldest first; `after` the last of the page before."""
        validation.check_limit(limit, validation.MAX_PAGE)
        task_id = None if task_id is None else validation.as_id(task_id)
        place = None if after is None else ApprovalPlace(after.asked_at, after.task_id, after.name)
        found: list[OpenApproval] = yield approvals.approvals(
            task_id=task_id, after=place, owner=self.identity.owner, limit=limit
        )
        return found

    def approval(self, task_id: UUID | str, name: str | None = None) -> Call[OpenApproval]:
        """One approval that waits for an answer. Without a name, the only one of the task."""
        task_id = validation.as_id(task_id)
        owner = self.identity.owner
        found: list[OpenApproval] = yield approvals.approvals(task_id=task_id, name=name, owner=owner, limit=100)
        if len(found) == 1:
            return (yield from self._opened(found[0]))
        if found:
            names = ", ".join(repr(each.name) for each in found[:10])
            raise InvalidOption(f"task {task_id} waits for {len(found)} approvals: say which of {names}.")
        validation.known(task_id, (yield lookup.outcome(task_id, owner=owner)))
        raise ApprovalNotOpen(task_id, name)

    def approve(
        self, task_id: UUID | str, name: str | None = None, *, form: Any = None, comment: str = ""
    ) -> Call[None]:
        """Approve a request of a durable task. `form`: the values of its form, if it has one."""
        yield from self.answer((yield from self.approval(task_id, name)), approved=True, form=form, comment=comment)

    def reject(self, task_id: UUID | str, name: str | None = None, *, comment: str = "") -> Call[None]:
        """Reject what a durable task asks for."""
        yield from self.answer((yield from self.approval(task_id, name)), approved=False, form=None, comment=comment)

    def answer(self, approval: OpenApproval, *, approved: bool, form: Any, comment: str) -> Call[None]:
        """Answer this very approval; ApprovalNotOpen if it was answered meanwhile."""
        if approval.sealed is not None:
            approval, seal = yield from self._unsealed(approval)
        else:
            seal = None
        text = json.dumps(checked_values(approval, plain(form))) if approved and approval.form is not None else None
        if approved and approval.form is None and form:
            raise InvalidOption(f"the approval {approval.name!r} has no form, so nothing can be filled in.")
        comment, actor = checked_comment(comment), self.identity.actor
        sealed = None
        if seal is not None:
            said = {"approved": approved, "comment": comment, "form": json.loads(text or "null"), "by": actor}
            sealed = sealed_signal(seal, approval.signal, json.dumps(said)), seal.key_id
        outcome: str | None = yield approvals.answer_approval(
            approval,
            approved=approved,
            comment=comment,
            form=text,
            sender=actor,
            owner=self.identity.owner,
            sealed=sealed,
        )
        if outcome != "sent":
            raise ApprovalNotOpen(approval.task_id, approval.name)

    def _opened(self, approval: OpenApproval) -> Call[OpenApproval]:
        """With its question opened, recorded in the audit, if this program has the key of the sealed task."""
        ring = keyring_of(self.config)
        if approval.sealed is None or ring is None or key_id_of(approval.sealed) not in ring:
            return approval
        opened, _ = yield from self._unsealed(approval)
        target = str(approval.task_id)
        yield audit.record(by=self.identity.actor, action=Action.REVEAL_TASK, target=target)
        return replace(opened, sealed=approval.sealed)

    def _unsealed(self, approval: OpenApproval) -> Call[tuple[OpenApproval, TaskSeal]]:
        assert approval.sealed is not None
        seal = seal_for(self.config, approval.task_id, approval.task, key_id_of(approval.sealed))
        opened = approval.opened(opened_question(seal, approval.name, approval.sealed))
        # The question may be older than the key that the task has now.
        wanted: SealedWith | None = yield durable.sealed_with(approval.task_id, owner=self.identity.owner)
        if wanted is None or wanted.key_id is None:
            raise ApprovalNotOpen(approval.task_id, approval.name)
        return opened, seal_for(self.config, approval.task_id, approval.task, wanted.key_id)


def plain(form: Any) -> Any:
    """A form as JSON has it; models and dataclasses too."""
    try:
        text = dump(form)
    except UnstorableValue as e:
        raise InvalidOption(f"the filled-in form can't be stored: {e.reason}.") from e
    if len(text.encode()) > MAX_FORM_BYTES:
        raise InvalidOption(f"the filled-in form takes more than {MAX_FORM_BYTES:,} bytes as JSON.")
    return json.loads(text)


def checked_comment(comment: object) -> str:
    if not isinstance(comment, str) or len(comment) > MAX_COMMENT or "\0" in comment:
        raise InvalidOption(f"a comment is a text of at most {MAX_COMMENT:,} characters.")
    return comment
