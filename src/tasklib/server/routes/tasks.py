"""Tasks: submit, list, get, cancel, replay, edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response

from tasklib import tracing
from tasklib.client.call_arguments import of_another_version, submission, typed
from tasklib.client.cursors import cursor, place_of
from tasklib.client.search_terms import MAX_LENGTH
from tasklib.columns import SEALED_MARK
from tasklib.errors import InvalidOption, TaskExecutionError, TaskLibError, TaskNotFound
from tasklib.server import filters
from tasklib.server.access import Principal, Role, checked, client_of
from tasklib.server.openapi import refusals
from tasklib.server.problems import Problem, problem_of
from tasklib.server.request_models import BatchBody, CancelBody, EditBody, EraseBody, SignalBody, SubmitBody
from tasklib.server.response_models import (
    BatchAnswer,
    BatchItem,
    CancelledAnswer,
    ErasedAnswer,
    ExplanationAnswer,
    SignalAnswer,
    StatusAnswer,
    StepAnswer,
    StepsAnswer,
    SubmittedAnswer,
    TaskAnswer,
    TaskPage,
)
from tasklib.server.routing import (
    Cursor,
    Given,
    Limit,
    Operator,
    Reader,
    Reveal,
    Submitter,
    page_size,
)
from tasklib.server.services import Services
from tasklib.server.task_response import (
    edited_arguments,
    listed,
    redaction_for,
    refuse_hidden,
    revealed,
    shown,
    shown_explanation,
    shown_page,
)
from tasklib.states import TaskState
from tasklib.store.filters import EVERY_TASK, TaskFilter
from tasklib.tasks.ids import new_id
from tasklib.tasks.options import options_of
from tasklib.tasks.submitter import Submission

router = APIRouter(prefix="/api/v1/tasks", tags=["tasks"])

TraceParent = Annotated[str | None, Header(max_length=512, description="W3C trace context, kept with the task.")]
TraceState = Annotated[str | None, Header(max_length=512)]


@router.post(
    "",
    operation_id="submit_task",
    summary="Submit a task",
    status_code=201,
    responses={
        200: {"model": SubmittedAnswer, "description": "The key belongs to this task, which was there before."},
        **refusals(409, 429),
    },
)
async def submit_task(
    body: SubmitBody,
    principal: Submitter,
    given: Given,
    response: Response,
    queue_position: Annotated[bool, Query(description="False spares the server the counting.")] = True,
    traceparent: TraceParent = None,
    tracestate: TraceState = None,
) -> SubmittedAnswer:
    """Store a task; a worker that sleeps is woken at once.

    The server need not know the task function. If it does (a module was given to it), the arguments are checked first.
    """
    client = client_of(principal, given, to_change=True)
    item = _submission(body, trace_of(traceparent, tracestate))
    [stored] = await client.submit_each([item], ids=None if body.task_id is None else [body.task_id])
    state: str = TaskState.PENDING
    if not stored.is_new:
        response.status_code = 200
        task = await client.get_task(stored.id)
        state = task.state if task else state
    position = await client.queue_position(stored.id) if queue_position else None
    return SubmittedAnswer(
        task_id=stored.id,
        status=TaskState(state),
        is_new=stored.is_new,
        queue_position=position.number if position else None,
    )


@router.post(
    "/batch",
    operation_id="submit_batch",
    summary="Submit many tasks, all or none",
    status_code=201,
    responses=refusals(409, 429),
)
async def submit_batch(
    body: BatchBody, principal: Submitter, given: Given, traceparent: TraceParent = None, tracestate: TraceState = None
) -> BatchAnswer:
    """Store tasks of any kinds together. Answers in their order; what has a known key is not new."""
    if len(body.tasks) > given.settings.max_batch:
        raise Problem(
            413,
            "batch_too_large",
            "Too many tasks at once",
            f"A batch has at most {given.settings.max_batch} tasks; this one has {len(body.tasks)}.",
        )
    trace = trace_of(traceparent, tracestate)
    ids = [item.task_id or new_id() for item in body.tasks] if any(item.task_id for item in body.tasks) else None
    try:
        items = [_submission(item, trace, index) for index, item in enumerate(body.tasks)]
        stored = await client_of(principal, given, to_change=True).submit_each(items, ids=ids)
    except (InvalidOption, TaskExecutionError) as e:
        problem = problem_of(e)
        problem.detail = " ".join([problem.detail, *getattr(e, "__notes__", ())])  # which item it was
        raise problem from e
    return BatchAnswer(tasks=[BatchItem.of(s) for s in stored])


@router.get("", operation_id="list_tasks", summary="List tasks", response_model=TaskPage)
async def list_tasks(
    principal: Reader,
    given: Given,
    chosen: filters.Tasks,
    search: Annotated[
        str | None,
        Query(
            max_length=MAX_LENGTH,
            description="A search as in the dashboard, instead of filters: `state:failed name:send_* failed:<10m`.",
        ),
    ] = None,
    limit: Limit = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
) -> Response:
    """One page of the tasks that match every filter, or a search, the newest first. New tasks don't shift the pages.

    Large values are left out, and a page may end before its limit: go on with `next`.
    """
    if search is not None:
        return await _searched(search, chosen, principal, given, page_size(limit, given), cursor_)
    if given.redaction.masked(chosen.tags) != chosen.tags and not principal.only_own:
        # What is masked for a viewer can't be guessed by asking for it.
        checked(principal, frozenset({Role.OPERATOR}))
    client = client_of(principal, given)
    size = page_size(limit, given)
    after = None if cursor_ is None else place_of("tasks", cursor_, UUID)[0]
    call = client.calls.list_tasks(chosen, after=after, limit=size + 1)
    found = await client.perform(listed(call, given.settings.max_list_value_bytes))
    return await shown_page(found, size, principal, given, lambda task: cursor("tasks", str(task.id)))


@router.post("/cancel", operation_id="cancel_tasks", summary="Cancel tasks by filter")
async def cancel_tasks(body: CancelBody, principal: Submitter, given: Given) -> CancelledAnswer:
    """Cancel every unfinished task that matches, or count them. A submitter: only its own tasks."""
    done = await client_of(principal, given, to_change=True).cancel_tasks(
        body.filter(), everything=body.everything, dry_run=body.dry_run
    )
    return CancelledAnswer(cancelled=done.cancelled, asked=done.asked, dry_run=body.dry_run)


@router.post("/erase", operation_id="erase_tasks", summary="Erase what finished tasks hold")
async def erase_tasks(body: EraseBody, principal: Operator, given: Given) -> ErasedAnswer:
    """Erase arguments, results, errors, progress, steps and signals of finished tasks that match; the rows stay."""
    done = await client_of(principal, given, to_change=True).erase_tasks(body.filter(), dry_run=body.dry_run)
    return ErasedAnswer(erased=done.erased, left=done.left, dry_run=body.dry_run)


@router.get("/{task_id}", operation_id="get_task", summary="Get a task", responses=refusals(404))
async def get_task(task_id: UUID, principal: Reader, given: Given, reveal: Reveal = False) -> TaskAnswer:
    """Everything about one task. Values that look like secrets are masked."""
    task = await client_of(principal, given).get_task(task_id)
    if task is None:
        raise TaskNotFound.with_id(task_id)
    redaction = await redaction_for(principal, given, task_id, reveal)
    task = revealed(task, given) if reveal else task
    return (await shown([task], principal, given, redaction))[0]


@router.patch(
    "/{task_id}", operation_id="edit_task", summary="Change a waiting task", responses=refusals(404, 409, 429)
)
async def edit_task(task_id: UUID, body: EditBody, principal: Submitter, given: Given) -> StatusAnswer:
    """Change arguments and options of a task that no worker has taken yet. A submitter: only of its own tasks."""
    client = client_of(principal, given, to_change=True)
    kwargs = None
    if body.parameters is not None:
        kwargs = edited_arguments(await client.get_task(task_id), task_id, body.parameters, given)
    state = await client.edit_task(task_id, kwargs=kwargs, **body.said())
    return StatusAnswer(task_id=task_id, status=state)


@router.delete(
    "/{task_id}",
    operation_id="cancel_task",
    summary="Cancel a task",
    responses={
        202: {"model": StatusAnswer, "description": "It runs; its worker was asked to stop it."},
        **refusals(404),
    },
)
async def cancel_task(task_id: UUID, principal: Submitter, given: Given, response: Response) -> StatusAnswer:
    """Cancel a waiting task at once, or request a running one to stop. A finished task is unchanged; see `status`."""
    state = await client_of(principal, given, to_change=True).cancel_task(task_id)
    if state is TaskState.RUNNING:
        response.status_code = 202
    return StatusAnswer(task_id=task_id, status=state)


@router.post(
    "/{task_id}/replay", operation_id="replay_task", summary="Run a finished task again", responses=refusals(404, 409)
)
async def replay_task(task_id: UUID, principal: Submitter, given: Given) -> StatusAnswer:
    """Start a completed, cancelled or dead letter task afresh, with the same arguments and all retries anew."""
    try:
        await client_of(principal, given, to_change=True).replay_task(task_id)
    except InvalidOption as e:
        raise Problem(409, "task_not_finished", "The task is not finished", str(e)) from e
    return StatusAnswer(task_id=task_id, status=TaskState.PENDING)


@router.post(
    "/{task_id}/run",
    operation_id="run_task_now",
    summary="Run a waiting task before its time",
    responses=refusals(404, 409),
)
async def run_task_now(task_id: UUID, principal: Submitter, given: Given) -> StatusAnswer:
    """A task with a start time or a retry in the future is due now; its retries stay as they are."""
    try:
        state = await client_of(principal, given, to_change=True).run_task_now(task_id)
    except InvalidOption as e:
        raise Problem(409, "task_not_waiting", "The task doesn't wait for its time", str(e)) from e
    return StatusAnswer(task_id=task_id, status=state)


@router.post(
    "/{task_id}/signals", operation_id="signal_task", summary="Send a signal to a durable task", responses=refusals(404)
)
async def signal_task(task_id: UUID, body: SignalBody, principal: Submitter, given: Given) -> SignalAnswer:
    """The task goes on if it waits for this signal, else the signal is kept. A submitter: only to its own tasks."""
    client = client_of(principal, given, to_change=True)
    sent = await client.signal_on_record(task_id, body.name, body.payload, key=body.key)
    return SignalAnswer(task_id=task_id, sent=sent)


@router.get(
    "/{task_id}/steps", operation_id="task_steps", summary="What a durable task has on record", responses=refusals(404)
)
async def task_steps(task_id: UUID, principal: Reader, given: Given) -> StepsAnswer:
    """Every step, sleep and signal of a durable task that is on record, the oldest first; without their values."""
    steps = await client_of(principal, given).steps_of(task_id)
    return StepsAnswer(items=[StepAnswer(kind=s.id.kind, name=s.id.name, recorded_at=s.recorded_at) for s in steps])


@router.get(
    "/{task_id}/explain", operation_id="explain_task", summary="Why is it not running?", responses=refusals(404)
)
async def explain_task(task_id: UUID, principal: Reader, given: Given) -> ExplanationAnswer:
    """Every reason that holds, the most decisive first, and what to do about it; and where it stands in line."""
    client = client_of(principal, given)
    explanation = await client.explain_task(task_id)
    task = await client.get_task(task_id)
    if task is None:
        raise TaskNotFound.with_id(task_id)
    return ExplanationAnswer.model_validate(shown_explanation(explanation, task, given.redaction).as_dict())


async def _searched(
    search: str, chosen: TaskFilter, principal: Principal, given: Services, size: int, cursor_: str | None
) -> Response:
    if chosen != EVERY_TASK:
        raise InvalidOption("give a search or filters, not both: in a search, state=failed is state:failed.")
    refuse_hidden(search, principal, given)
    client = client_of(principal, given)
    after = None if cursor_ is None else place_of("tasks", cursor_, UUID)[0]
    page = await client.search_tasks(search, limit=size, older_than=after)
    ids = [task.id for task in page.tasks]
    call = client.calls.list_tasks(TaskFilter(ids=ids), limit=max(1, len(ids)))
    found = await client.perform(listed(call, given.settings.max_list_value_bytes)) if ids else []
    return await shown_page(
        found, size, principal, given, lambda task: cursor("tasks", str(task.id)),
        following=None if page.older is None else cursor("tasks", str(page.older)), looked_at=page.looked_at,
    )  # fmt: skip


def _submission(body: SubmitBody, trace: Mapping[str, str] | None, index: int | None = None) -> Submission:
    try:
        options = options_of(body.options(trace))
        if SEALED_MARK in body.parameters:  # only a worker with the key can check them
            return Submission(body.task_type, body.parameters, options)
        if (other := of_another_version(body.task_type, body.parameters, options)) is not None:
            return other
        arguments = typed(body.task_type, body.parameters)
        return submission(body.task_type, (), options, arguments, {}, registered_elsewhere=True)
    except TaskLibError as e:
        if index is not None:
            e.add_note(f"This was item {index}; none of them was submitted.")
        raise


def trace_of(traceparent: str | None, tracestate: str | None) -> dict[str, str] | None:
    """As W3C specifies: malformed headers are ignored, and a tracestate needs a traceparent.

    Where this server traces itself, its own span is the parent: it is part of the same trace.
    """
    if traceparent is None or tracing.has_span():
        return None
    return tracing.from_headers({"traceparent": traceparent, "tracestate": tracestate or ""})
