"""The worker protocol: register, poll, heartbeat, result, leave. See docs/reference/worker-protocol.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi import Path as PathParameter

from tasklib.backends.postgres.remote.polls import MOST_TASKS, Delivery, Gone, Poll
from tasklib.backends.postgres.remote.results import NOT_STORABLE, Reported, Verdict
from tasklib.server.access import Principal, Role, allow, allowed_queues, services
from tasklib.server.bodies import LenientRoute, Unreadable
from tasklib.server.caps import slot_of, token_limit
from tasklib.server.openapi import refusals
from tasklib.server.problems import Problem
from tasklib.server.services import Services
from tasklib.server.token_cache import WaitingRequest, token_ended
from tasklib.server.worker_models import (
    PROTOCOL,
    BeginAnswer,
    BeginBody,
    BeginsBody,
    HeartbeatAnswer,
    HeartbeatBody,
    LeaseAnswer,
    PollAnswer,
    PollBody,
    ProgressAnswer,
    ProgressBody,
    ProgressesBody,
    RefusedProgress,
    RegisterAnswer,
    RegisterBody,
    ResultAnswer,
    ResultBody,
    ResultsAnswer,
    ResultsBody,
    Terms,
)
from tasklib.store.claim import Claimed
from tasklib.store.settle import Lease
from tasklib.tasks.payload import dump
from tasklib.tasks.unstorable import UnstorableValue

router = APIRouter(prefix="/internal/workers", tags=["worker protocol"])
Given = Annotated[Services, Depends(services)]
WorkerPrincipal = Annotated[Principal, Depends(allow(Role.WORKER))]
WorkerId = Annotated[str, PathParameter(max_length=300, description="As registering gave it.")]
T = TypeVar("T")
_WAIT_WITHOUT_ROOM_SECONDS = 1.0


@router.get("/terms", operation_id="worker_terms", summary="What a worker has to keep to")
async def terms(principal: WorkerPrincipal, given: Given) -> Terms:
    """The same that registering answers."""
    return _terms(given)


@router.post("/register", operation_id="register_worker", summary="Register a worker", status_code=201)
async def register(body: RegisterBody, principal: WorkerPrincipal, given: Given) -> RegisterAnswer:
    """Register under a new id. If the answer is lost, register again: the unused registration expires."""
    if given.config.shards:
        detail = (
            "A worker over HTTP serves one schema, and this server has several shards. Use a server for each shard."
        )
        raise Problem(409, "several_shards", "Workers over HTTP need one shard", detail)
    members, most = given.remote.members, given.settings.max_workers_per_token
    if not await members.has_room(principal.token_id, most):
        raise token_limit("registered workers", "max_workers_per_token", most)
    queues = allowed_queues(principal, body.queues)
    name = body.name or f"{body.host or 'worker'}-{body.pid}"
    member = await members.register(principal.token_id, name, body.registration(queues))
    named = list(queues) if queues is not None else None
    return RegisterAnswer(worker_id=member.id, queues=named, **_terms(given).model_dump())


@router.post(
    "/{worker_id}/poll",
    operation_id="poll_tasks",
    responses=refusals(404),
    summary="Ask for tasks",
    response_model=PollAnswer,
)
async def poll(
    worker_id: WorkerId, body: PollBody, request: Request, principal: WorkerPrincipal, given: Given
) -> Response:
    """Up to `available_capacity` tasks, best first, leased to this worker.

    Waits up to `wait_seconds` for the first one. One poll at a time: a newer one ends an older one.
    """
    member = await given.remote.members.find(principal.token_id, worker_id)
    asked = Poll(
        min(body.available_capacity, MOST_TASKS),
        min(body.wait_seconds, given.settings.max_wait_seconds),
        sorted(set(body.capabilities)) if body.capabilities is not None else None,
        [held.lease for held in body.holding] if body.holding is not None else None,
        body.reports_begin,
        body.free_slots,
    )
    waits = slot_of(request).waiting(is_needed=asked.wait_seconds > 0, may_be_refused=False)
    with waits, given.token_watch.waiting(principal) as waiting:
        found = await given.remote.polls.answer(member, asked, _gone(request, waiting))
    if waiting.is_over and not found.tasks:
        raise token_ended()
    return Response(_poll_text(found, given.config.lock_timeout_seconds), media_type="application/json")


@router.post(
    "/{worker_id}/heartbeat",
    operation_id="worker_heartbeat",
    responses=refusals(404),
    summary="Say that the worker lives",
)
async def heartbeat(
    worker_id: WorkerId, body: HeartbeatBody, request: Request, principal: WorkerPrincipal, given: Given
) -> HeartbeatAnswer:
    """Extends the leases in `running`, and answers with what the worker should know.

    With `wait_seconds` the answer comes when there is something in it, or after that time.
    """
    _check_batch(body.running, given)
    member = await given.remote.members.find(principal.token_id, worker_id)
    # A heartbeat is never refused for want of room to wait: its tasks would be lost.
    has_room = given.caps.waiting.has_room(principal)
    wait = min(body.wait_seconds, given.settings.max_wait_seconds if has_room else _WAIT_WITHOUT_ROOM_SECONDS)
    waits = slot_of(request).waiting(is_needed=wait > 0 and has_room, may_be_refused=False)
    with waits, given.token_watch.waiting(principal) as waiting:
        heard = await given.remote.heartbeat(member, body.beat(wait), _gone(request, waiting))
    if waiting.is_over:
        raise token_ended()
    return HeartbeatAnswer(
        drain=heard.drain,
        cancel=_lease_answers(heard.cancel),
        lost=_lease_answers(heard.lost),
        locked=_lease_answers(heard.locked),
    )


async def result(
    worker_id: WorkerId, body: ResultBody | ResultsBody, principal: WorkerPrincipal, given: Given
) -> ResultAnswer | ResultsAnswer:
    """One result, or `results` with many.

    A stale one answers 409 and changes nothing; a batch answers 200, with an answer for each.
    """
    results: list[ResultBody | Unreadable] = [*body.results] if isinstance(body, ResultsBody) else [body]
    _check_batch(results, given)
    member = await given.remote.members.find(principal.token_id, worker_id, dead_too=True)
    readable = [_reported(result) for result in results if isinstance(result, ResultBody)]
    verdicts = iter(await given.remote.results.store(member.id, readable))
    if isinstance(body, ResultBody):
        return _answer_or_problem(body, next(verdicts))
    return ResultsAnswer(
        results=[
            _unreadable(place, result) if isinstance(result, Unreadable) else _result_answer(result, next(verdicts))
            for place, result in enumerate(results)
        ]
    )


router.add_api_route(
    "/{worker_id}/result",
    result,
    methods=["POST"],
    operation_id="report_results",
    responses=refusals(404, 409),
    summary="Report how attempts ended",
    route_class_override=LenientRoute,
)


@router.post(
    "/{worker_id}/begin",
    operation_id="report_begin",
    responses=refusals(404, 409),
    summary="Record that attempts begin",
)
async def begin(
    worker_id: WorkerId, body: BeginBody | BeginsBody, principal: WorkerPrincipal, given: Given
) -> BeginAnswer:
    """One attempt, or `tasks` with many. Ask before calling the function, and call it only if it is in `begun`."""
    begins = body.tasks if isinstance(body, BeginsBody) else [body]
    _check_batch(begins, given)
    member = await given.remote.members.find(principal.token_id, worker_id)
    begun, lost = await given.remote.begin(member, {begin.lease: begin.at_most_once for begin in begins})
    if lost and isinstance(body, BeginBody):
        raise Problem(409, "stale_attempt", "The attempt is not this worker's", "It was lost, or has ended.")
    return BeginAnswer(begun=_lease_answers(begun), lost=_lease_answers(lost))


@router.post(
    "/{worker_id}/progress",
    operation_id="report_progress",
    responses=refusals(404, 409),
    summary="Report how far attempts are",
)
async def progress(
    worker_id: WorkerId, body: ProgressBody | ProgressesBody, principal: WorkerPrincipal, given: Given
) -> ProgressAnswer:
    """One report, or `reports` with many. The newest counts; a few a second are plenty."""
    reports = body.reports if isinstance(body, ProgressesBody) else [body]
    _check_batch(reports, given)
    member = await given.remote.members.find(principal.token_id, worker_id)
    texts: dict[Lease, str] = {}
    refused: list[tuple[Lease, str]] = []
    for report in reports:
        try:
            texts[report.lease] = dump(report.progress)
        except UnstorableValue as e:
            refused.append((report.lease, str(e)))
    lost = await given.remote.progress(member, texts)
    if refused and isinstance(body, ProgressBody):
        raise Problem(422, "progress_not_storable", "This progress can't be stored", refused[0][1])
    if lost and isinstance(body, ProgressBody):
        raise Problem(409, "stale_attempt", "The attempt is not this worker's", "It was lost, or has ended.")
    return ProgressAnswer(
        acknowledged=True,
        lost=_lease_answers(lost),
        refused=[RefusedProgress(task_id=at.id, lease_token=at.token, detail=why) for at, why in refused],
    )


@router.delete(
    "/{worker_id}",
    operation_id="deregister_worker",
    responses=refusals(404),
    summary="Leave the fleet",
    status_code=204,
)
async def deregister(worker_id: WorkerId, principal: WorkerPrincipal, given: Given) -> None:
    """Report or release all tasks first. Those still leased to the worker go back to their previous state."""
    await given.remote.leave(await given.remote.members.find(principal.token_id, worker_id, dead_too=True))


def _gone(request: Request, waiting: WaitingRequest) -> Gone:
    """Whether the request is over: the worker has disconnected, or its token has ended."""

    async def gone() -> bool:
        return waiting.is_over or await request.is_disconnected()

    return gone


def _terms(given: Services) -> Terms:
    config, settings = given.config, given.settings
    return Terms(
        protocol=PROTOCOL,
        server_version=given.version,
        lease_seconds=config.lock_timeout_seconds,
        heartbeat_interval_seconds=config.heartbeat_interval_seconds,
        heartbeat_timeout_seconds=config.heartbeat_timeout_seconds,
        poll_interval_ms=max(1, round(config.poll_interval_seconds * 1000)),
        max_wait_seconds=settings.max_wait_seconds,
        max_tasks=MOST_TASKS,
        max_batch=settings.max_batch,
        max_body_bytes=settings.max_body_bytes,
        max_payload_bytes=config.max_payload_bytes,
    )


def _check_batch(items: Sequence[object], given: Services) -> None:
    if len(items) > given.settings.max_batch:
        detail = f"One request may bring {given.settings.max_batch}, not {len(items)}."
        raise Problem(413, "batch_too_large", "Too many at once", detail)


def _poll_text(found: Delivery, lease_seconds: float) -> str:
    """The answer as JSON. Arguments are JSON already, and are not read again to be written again."""
    tasks = ",".join(map(_task_text, found.tasks))
    return f'{{"tasks":[{tasks}],"waited_seconds":{found.waited_seconds:.6f},"lease_seconds":{lease_seconds}}}'


def _task_text(task: Claimed) -> str:
    return (
        f'{{"task_id":"{task.id}","lease_token":{task.token},"task_type":{json.dumps(task.name)},'
        f'"parameters":{task.kwargs},"attempt":{task.attempt},"max_attempts":{task.max_retries + task.crash_count + 1},'
        f'"timeout_seconds":{json.dumps(task.timeout_seconds)},"crash_count":{task.crash_count},'
        f'"priority":{task.priority},"effective_priority":{task.effective_priority},'
        f'"queue":{json.dumps(task.queue)},"trace_id":"{task.trace_id}",'
        f'"trace_context":{task.trace_context or "null"}}}'
    )


def _lease_answers(leases: Sequence[Lease]) -> list[LeaseAnswer]:
    return [LeaseAnswer(task_id=lease.id, lease_token=lease.token) for lease in leases]


def _reported(body: ResultBody) -> Reported:
    return Reported(
        Lease(str(body.task_id), body.lease_token),
        body.status,
        body.result,
        body.error,
        body.reason,
        body.retriable,
        body.retry_in_seconds,
        body.limit,
    )


def _result_answer(result: ResultBody, verdict: Verdict) -> ResultAnswer:
    return ResultAnswer(
        task_id=result.task_id,
        accepted=verdict.code is None,
        status=verdict.state,
        code=verdict.code,
        detail=verdict.detail,
    )


def _unreadable(place: int, result: Unreadable) -> ResultAnswer:
    detail = f"results[{place}] can't be read: {result.reason}. Report this attempt as failed."
    return ResultAnswer(task_id=result.task_id, accepted=False, status=None, code=NOT_STORABLE, detail=detail)


def _answer_or_problem(result: ResultBody, verdict: Verdict) -> ResultAnswer:
    if verdict.code is None:
        return _result_answer(result, verdict)
    detail = verdict.detail or ""
    if verdict.code == NOT_STORABLE:
        raise Problem(422, verdict.code, "This result can't be stored", detail)
    raise Problem(409, verdict.code, "The attempt is not this worker's", detail)
