"""Workers: who they are, and asking one to drain."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path

from tasklib.server.access import client_of
from tasklib.server.fleet_response_models import DrainAnswer, WorkerAnswer, WorkersAnswer
from tasklib.server.openapi import refusals
from tasklib.server.request_models import Text
from tasklib.server.routing import Given, Operator, Viewer
from tasklib.store import dashboard, fleet

router = APIRouter(prefix="/api/v1/workers", tags=["workers"])


@router.get("", operation_id="list_workers", summary="List workers")
async def list_workers(principal: Viewer, given: Given) -> WorkersAnswer:
    """Every registered worker, with the ids of its leased tasks; of a very large fleet a part of them.

    The tasks themselves: `GET /api/v1/tasks?worker=...`.
    """
    found = await client_of(principal, given).workers()
    held: dict[str, list[UUID]] = {}
    for task in await given.run(dashboard.running([worker.id for worker in found])):
        held.setdefault(task.worker, []).append(task.id)
    answers = [WorkerAnswer.model_validate(worker) for worker in found]
    for answer in answers:
        answer.current_tasks = sorted(held.get(answer.worker_id, ()))
    return WorkersAnswer(workers=answers, leader=await given.run(fleet.leader()))


# A worker's id may have a slash in it: people choose the first part.
@router.post(
    "/{worker_id:path}/drain",
    operation_id="drain_worker",
    summary="Drain a worker",
    status_code=202,
    responses=refusals(404),
)
async def drain_worker(worker_id: Annotated[Text, Path()], principal: Operator, given: Given) -> DrainAnswer:
    """Request a worker to take no more tasks, finish those it has, and end. Repeating it changes nothing."""
    await client_of(principal, given).drain_worker(worker_id)
    return DrainAnswer(worker_id=worker_id, status="draining")
