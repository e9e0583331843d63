"""Tasks as the API and the dashboard show them: secrets masked, with what the row alone doesn't say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from tasklib.client.explaining import Explanation, Reason
from tasklib.models import Task
from tasklib.priorities import effective_priority
from tasklib.server.access import Principal, Role, checked, client_of
from tasklib.server.answers import OutcomeAnswer, TaskAnswer
from tasklib.server.redaction import Redaction
from tasklib.server.services import Services
from tasklib.states import CLAIMABLE
from tasklib.store import audit
from tasklib.store.audit import Action
from tasklib.store.lookup import Outcome

_RECORDED_SECONDS = 60.0
"""A page that is revealed refreshes itself: one record for this long is enough."""
_MOST_REMEMBERED = 10_000
NOTHING_HIDDEN = Redaction(())


async def shown(
    tasks: Sequence[Task], principal: Principal, services: Services, redaction: Redaction | None = None
) -> list[TaskAnswer]:
    """Each with its effective priority, by the thresholds in force, and without its secrets."""
    redaction = redaction or services.redaction
    if not any(task.state in CLAIMABLE for task in tasks):
        return [TaskAnswer.of(redaction.task(task), task.priority) for task in tasks]
    settings, now = await client_of(principal, services).settings(), datetime.now(UTC)
    return [
        TaskAnswer.of(
            redaction.task(task),
            effective_priority(
                task,
                now,
                promote_to_medium_after_seconds=settings.promote_to_medium_after_seconds,
                promote_to_high_after_seconds=settings.promote_to_high_after_seconds,
            ),
        )
        for task in tasks
    ]


def shown_outcome(task_id: UUID, outcome: Outcome, principal: Principal, redaction: Redaction) -> OutcomeAnswer:
    """How a task ended. Whoever has submitted it is not shown its result but given it, as the function returned it."""
    if outcome.submitted_by == principal.submitted_by:
        redaction = NOTHING_HIDDEN
    result, error = redaction.result(outcome.result, outcome.error)
    return OutcomeAnswer.of(task_id, Outcome(outcome.name, outcome.state, result, error))


def shown_explanation(explanation: Explanation, task: Task, redaction: Redaction) -> Explanation:
    """Why this task is not running; the task as it is in the table, before anything in it is masked."""
    texts = redaction.texts_of(task)
    reasons = (
        Reason(r.code, texts(r.sentence), texts(r.hint), redaction.masked(dict(r.details), texts))
        for r in explanation.reasons
    )
    return replace(explanation, reasons=tuple(reasons))


def may_reveal(principal: Principal) -> bool:
    """Who may change everybody's tasks may see their secrets."""
    return principal.may(Role.OPERATOR)


async def redaction_for(principal: Principal, services: Services, task_id: UUID, reveal: bool) -> Redaction:
    """What to mask in this task: nothing if it is to be revealed, which is refused or goes into the audit."""
    if not reveal:
        return services.redaction
    checked(principal, frozenset({Role.OPERATOR}))
    key, now = (principal.actor, task_id), time.monotonic()
    if services.revealed.get(key, -_RECORDED_SECONDS) + _RECORDED_SECONDS <= now:
        await services.run(audit.record(by=principal.actor, action=Action.REVEAL_TASK, target=str(task_id)))
        if len(services.revealed) >= _MOST_REMEMBERED:
            services.revealed.clear()
        services.revealed[key] = now
    return NOTHING_HIDDEN
