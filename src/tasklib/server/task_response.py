"""Tasks as the API and the dashboard show them: secrets masked, with what the row alone doesn't say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from starlette.responses import Response

from tasklib.client.call_arguments import typed
from tasklib.client.effects import Call
from tasklib.client.explaining import Explanation, Reason
from tasklib.client.sealing import opened_task
from tasklib.client.search_terms import SearchError
from tasklib.db.query import Query
from tasklib.errors import KeyMissing, PayloadDamaged, TaskNotFound
from tasklib.models import Task
from tasklib.priorities import effective_priority
from tasklib.server.access import Principal, Role, checked, client_of
from tasklib.server.redaction import Redaction
from tasklib.server.response_models import OutcomeAnswer, TaskAnswer
from tasklib.server.services import Services
from tasklib.states import CLAIMABLE
from tasklib.store import audit
from tasklib.store.audit import Action
from tasklib.store.lookup import Listed, Outcome, within
from tasklib.store.saved_searches import SavedSearch
from tasklib.tasks import registry

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


def edited_arguments(
    task: Task | None, task_id: UUID, edited: Mapping[str, Any], services: Services
) -> Mapping[str, Any]:
    """Arguments that came back as JSON: with masks replaced by what they hid, as the function declares them."""
    if task is None:
        raise TaskNotFound.with_id(task_id)
    restored: dict[str, Any] = services.redaction.restored(dict(edited), task.kwargs, services.redaction.texts_of(task))
    function = registry.functions.get(task.name)
    # Those of another version can't be read here, and sealed ones not at all: edit_task refuses them.
    is_ours = function is not None and function.version == task.payload_version and task.key_id is None
    return typed(task.name, restored) if is_ours else restored


_API_NAMES = {"kwargs": "parameters"}


async def shown_listed(listed: Sequence[Listed], principal: Principal, services: Services) -> list[TaskAnswer]:
    """The same of tasks without their large values."""
    answers = await shown([one.task for one in listed], principal, services)
    for answer, one in zip(answers, listed, strict=True):
        answer.left_out = [_API_NAMES.get(column, column) for column in one.left_out]
    return answers


def listed(call: Call[list[Task]], most: int) -> Call[list[Listed]]:
    """A call for a list of tasks, without values of more than so many bytes: the database doesn't send them."""
    effect = next(call)
    while True:
        asked = within(effect, most) if isinstance(effect, Query) and "most" in effect.parameters else effect
        answer = yield asked
        try:
            effect = call.send(answer)
        except StopIteration as end:
            found: list[Listed] = end.value
            return found


async def shown_page(
    found: Sequence[Listed],
    size: int,
    principal: Principal,
    services: Services,
    cursor_of: Callable[[Task], str],
    *,
    following: str | None = None,
    looked_at: int | None = None,
) -> Response:
    """A page of a list, as JSON: so many tasks, or fewer if it gets too long. Of those found, one more says `next`.

    A search says `following` itself, and how many tasks it looked at if it ended early.
    """
    texts: list[str] = []
    left = services.settings.max_answer_bytes
    for answer in await shown_listed(found[:size], principal, services):
        texts.append(answer.model_dump_json())
        left -= len(texts[-1])
        if left <= 0:
            break
    if len(texts) < len(found):
        following = cursor_of(found[len(texts) - 1].task)
    ends = f'"next":{json.dumps(following)},"looked_at":{json.dumps(looked_at)}'
    return Response(f'{{"tasks":[{",".join(texts)}],{ends}}}', media_type="application/json")


def refuse_hidden(search: str, principal: Principal, services: Services) -> None:
    """A value that is masked for a reader can't be guessed by searching for it."""
    if not may_reveal(principal) and (term := services.redaction.hidden_term(search)) is not None:
        raise SearchError("this value is masked; searching it takes the role operator.", term.at)


def refuse_to_save(search: str, services: Services) -> None:
    """Saved searches are shown to all who may see all tasks."""
    if services.redaction.search(search) != search:
        term = services.redaction.hidden_term(search)
        raise SearchError("this value is masked: a saved search would show it.", 0 if term is None else term.at)


def shown_searches(found: Sequence[SavedSearch], services: Services) -> list[SavedSearch]:
    """Saved searches as they may be shown: a command saves any."""
    return [replace(saved, search=services.redaction.search(saved.search)) for saved in found]


async def shown_outcome(
    task_id: UUID, outcome: Outcome, principal: Principal, services: Services, redaction: Redaction
) -> OutcomeAnswer:
    """How a task ended. The submitter gets the result unmasked, as the function returned it."""
    others: list[Any] = []
    if outcome.submitted_by == principal.submitted_by:
        redaction = NOTHING_HIDDEN
    elif redaction is not NOTHING_HIDDEN:
        task = await client_of(principal, services).get_task(task_id)
        others = [] if task is None else [task.args, task.kwargs, task.tags, task.progress]
    result, error = redaction.result(outcome.result, outcome.error, *others)
    return OutcomeAnswer.of(task_id, Outcome(outcome.name, outcome.state, result, error))


def shown_explanation(explanation: Explanation, task: Task, redaction: Redaction) -> Explanation:
    """Why this task is not running; the task as it is in the table, before anything in it is masked."""
    texts = redaction.texts_of(task)
    reasons = (
        Reason(r.code, texts(r.sentence), texts(r.hint), redaction.masked(dict(r.details), texts))
        for r in explanation.reasons
    )
    return replace(explanation, reasons=tuple(reasons))


def revealed(task: Task, services: Services) -> Task:
    """This task with all that was sealed in it, if this server has the key; else as it is."""
    with suppress(KeyMissing, PayloadDamaged):
        return opened_task(services.config, task)
    return task


def may_reveal(principal: Principal) -> bool:
    """A principal that may change all tasks may see their secrets."""
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
