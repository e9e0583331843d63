"""Tasks: search, live list, cancel or replay many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any
from uuid import UUID

from fastapi import Form, Query, Request
from starlette.responses import Response

from tasklib.client.search_terms import MAX_LENGTH, SearchError, with_term
from tasklib.client.searching import LOOK, MOST_LOOK, Changed, SearchPage
from tasklib.client.suggesting import Suggestion
from tasklib.errors import InvalidOption
from tasklib.formatting import count
from tasklib.server.access import Role, client_of
from tasklib.server.dashboard.screens import Operator, Reader, Serving, screen_router
from tasklib.server.dashboard.searches import MOST_EXPORTED
from tasklib.server.dashboard.searches import tasks_address as _link
from tasklib.server.dashboard.shell import done, page
from tasklib.server.services import Services
from tasklib.server.task_response import refuse_hidden, shown_searches
from tasklib.states import CLAIMABLE, TaskState
from tasklib.store.search import CappedCount, FoundTask

router = screen_router()

PAGE = 20
CONFIRM_UP_TO = 2_000
MOST_CHOSEN = 500
"""More than fit on any page; a form with more is not ours."""
_VERBS = {"cancel": ("Cancel", "Cancelled"), "replay": ("Replay", "Replayed")}


@dataclass(frozen=True, slots=True)
class StateTab:
    """A state to choose, and how many tasks have it if that is known."""

    state: str | None
    title: str
    query: str
    is_here: bool
    count: CappedCount | None = None


@router.get("/tasks")
async def tasks(
    request: Request,
    principal: Reader,
    services: Serving,
    q: Annotated[str, Query()] = "",
    older: Annotated[UUID | None, Query()] = None,
    newer: Annotated[UUID | None, Query()] = None,
    look: Annotated[int, Query(ge=1, le=MOST_LOOK)] = LOOK,
) -> Response:
    client = client_of(principal, services)
    found, error = SearchPage([]), None
    try:
        refuse_hidden(q, principal, services)
        found = await client.search_tasks(q, limit=PAGE, look=look, older_than=older, newer_than=newer)
    except SearchError as e:
        error = e
    found = replace(found, tasks=services.redaction.found(found.tasks))
    # Others' tasks are not counted either.
    # The counts are of all tasks: beside other terms they would mislead.
    is_by_state = with_term(q, "state", None) == ""
    counts = {} if principal.only_own or not is_by_state else await client.count_states()
    saved = shown_searches(await client.saved_searches(), services) if principal.may(Role.VIEWER) else []
    return page(
        request,
        "tasks.html",
        status=422 if error else 200,
        q=q,
        error=error,
        found=found,
        tabs=_tabs(q, counts),
        look=look,
        further=min(look * 10, MOST_LOOK) if look < MOST_LOOK else None,
        only=cache(lambda qualifier, value: _link(with_term(q, qualifier, value))),
        seconds_of=seconds_of,
        waits=lambda task: task.state in CLAIMABLE,
        is_first=older is None and newer is None,
        saved=saved,
        most_exported=MOST_EXPORTED,
        saved_here=next((s.name for s in saved if s.search == q), None),
    )


@router.get("/tasks/suggest")
async def suggest(
    principal: Reader, services: Serving, q: Annotated[str, Query(max_length=MAX_LENGTH)] = ""
) -> list[Suggestion]:
    """How the search can go on, for the script of the search box."""
    try:
        found: list[Suggestion] = await client_of(principal, services).suggest(q)
        return [s for s in found if not _shows_secret(s.term, services)]
    except SearchError:
        return []


def _shows_secret(term: str, services: Services) -> bool:
    """True of a suggestion with a masked value. The names of such arguments and tags are no secret."""
    return not term.endswith((":", "=", ".")) and services.redaction.hidden_term(term) is not None


@router.post("/tasks/act")
async def act(
    request: Request,
    principal: Operator,
    services: Serving,
    action: Annotated[str, Form(pattern="^(cancel|replay)(_all)?$")],
    id: Annotated[list[UUID] | None, Form(max_length=MOST_CHOSEN)] = None,
    q: Annotated[str, Form()] = "",
    older: Annotated[UUID | None, Form()] = None,
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    """Asks first, with how many they are; does it when that is confirmed."""
    verb, is_all = action.removesuffix("_all"), action.endswith("_all")
    back = _link(q)
    if not is_all and not id:
        return done(request, back, "No task was selected.", "warn")
    client = client_of(principal, services, to_change=True)
    try:
        refuse_hidden(q, principal, services)
        if not confirmed:
            return await _ask(request, client, verb, None if is_all else id or [], q)
        if is_all:
            call = client.cancel_found if verb == "cancel" else client.replay_found
            changed = await call(q, older_than=older)
        else:
            chosen = client.cancel_chosen if verb == "cancel" else client.replay_chosen
            changed = await chosen(id or [])
    except InvalidOption as e:
        return done(request, back, str(e), "bad")
    if changed.next is not None:
        return page(
            request, "tasks_confirm.html", verb=verb, title=_VERBS[verb][0], ids=[], q=q, is_all=True, back=back,
            number=None, older=changed.next, said=_said(verb, changed), looked_at=None,
        )  # fmt: skip
    return done(request, back, _said(verb, changed), "good" if changed.count else "warn")


async def _ask(request: Request, client: Any, verb: str, ids: list[UUID] | None, q: str) -> Response:
    number, looked_at = len(ids or []), None
    if ids is None:
        found: SearchPage = await client.search_tasks(changeable(q, verb), limit=CONFIRM_UP_TO)
        number, looked_at = len(found.tasks), found.looked_at
        more = found.older is not None and looked_at is None
    return page(
        request, "tasks_confirm.html", verb=verb, title=_VERBS[verb][0], ids=ids or [], q=q, is_all=ids is None,
        back=_link(q), number=f"{number:,}{'+' if ids is None and more else ''}", older=None, said=None,
        looked_at=looked_at,
    )  # fmt: skip


def changeable(q: str, verb: str) -> str:
    """The same search of what can be cancelled, or replayed."""
    finished = "completed,cancelled,dead_letter"
    return f"{q} -state:{finished if verb == 'cancel' else 'pending,running,failed'}"


def seconds_of(task: FoundTask, now: Any) -> float | None:
    """How long its last attempt took, or takes."""
    if task.started_at is None or (task.completed_at is None and task.state != TaskState.RUNNING):
        return None
    return float(((task.completed_at or now) - task.started_at).total_seconds())


def _tabs(q: str, counts: dict[str, CappedCount]) -> list[StateTab]:
    tabs = [StateTab(None, "All", _link(with_term(q, "state", None)), "state:" not in q)]
    for state in TaskState:
        link = with_term(q, "state", state.value)
        tabs.append(
            StateTab(state.value, state.value.replace("_", " ").capitalize(), _link(link), link == q, counts.get(state))
        )
    return tabs


def _said(verb: str, changed: Changed) -> str:
    if not changed.count:
        return (
            f"Nothing to {verb}: none of these tasks {'waits or runs' if verb == 'cancel' else 'is finished'} any more."
        )
    asked = f"; of these, {changed.asked:,} run, and their workers were requested to stop them" if changed.asked else ""
    return f"{_VERBS[verb][1]} {count(changed.count, 'task')}{asked}."
