"""Flows: submit, list, show, draw, cancel, replay."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response

from tasklib.client.cursors import cursor, place_of
from tasklib.client.flow_drawings import drawn
from tasklib.server.access import client_of
from tasklib.server.flow_models import (
    CancelledFlowAnswer,
    FlowBody,
    FlowDetailsAnswer,
    FlowGraphAnswer,
    FlowsAnswer,
    ReplayedFlowAnswer,
    SubmittedFlowAnswer,
    details_answer,
    flow_answer,
    submitted_answer,
)
from tasklib.server.openapi import refusals
from tasklib.server.problems import Problem
from tasklib.server.request_models import Name
from tasklib.server.routes.tasks import TraceParent, TraceState, trace_of
from tasklib.server.routing import Cursor, Given, Limit, Reader, Submitter, page_size

router = APIRouter(prefix="/api/v1/flows", tags=["flows"])


@router.post(
    "",
    operation_id="submit_flow",
    summary="Submit a flow",
    status_code=201,
    responses={200: {"model": SubmittedFlowAnswer, "description": "The flow with this id was there before."}},
)
async def submit_flow(
    body: FlowBody,
    principal: Submitter,
    given: Given,
    response: Response,
    traceparent: TraceParent = None,
    tracestate: TraceState = None,
) -> SubmittedFlowAnswer:
    """Store tasks that wait for each other, all or none. Arguments of functions that the server knows are checked."""
    if body.task_count > given.settings.max_batch:
        raise Problem(
            413,
            "batch_too_large",
            "Too many tasks at once",
            f"A flow over HTTP has at most {given.settings.max_batch} tasks; this one has {body.task_count}.",
        )
    client = client_of(principal, given, to_change=True)
    graph = body.as_graph(trace_of(traceparent, tracestate))
    run, is_new = await client.perform(client.calls.submit_graph(graph, body.flow_id))
    if not is_new:
        response.status_code = 200
    return submitted_answer(run, is_new)


@router.get("", operation_id="list_flows", summary="List flows")
async def list_flows(
    principal: Reader,
    given: Given,
    name: Annotated[Name | None, Query(description="Only flows of this name.")] = None,
    unfinished: Annotated[bool, Query(description="Only flows that are not finished.")] = False,
    limit: Limit = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
) -> FlowsAnswer:
    """One page of flows, the newest first, each with its progress. A submitter: only its own."""
    size = page_size(limit, given)
    after = None if cursor_ is None else place_of("flows", cursor_, UUID)[0]
    found = await client_of(principal, given).flows(after=after, name=name, unfinished=unfinished, limit=size + 1)
    following = cursor("flows", str(found[size - 1].id)) if len(found) > size else None
    return FlowsAnswer(flows=[flow_answer(info) for info in found[:size]], next=following)


@router.get("/{flow_id}", operation_id="get_flow", summary="Get a flow", responses=refusals(404))
async def get_flow(flow_id: UUID, principal: Reader, given: Given) -> FlowDetailsAnswer:
    """A flow with its progress, its nodes, and the gates between them."""
    return details_answer(await client_of(principal, given).get_flow(flow_id))


@router.get("/{flow_id}/graph", operation_id="draw_flow", summary="Draw a flow", responses=refusals(404))
async def draw_flow(
    flow_id: UUID,
    principal: Reader,
    given: Given,
    format_: Annotated[
        Literal["mermaid", "dot"], Query(alias="format", description="The language of the drawing.")
    ] = "mermaid",
) -> FlowGraphAnswer:
    """The graph of a flow as text for Mermaid or Graphviz; a group of any size is one node."""
    details = await client_of(principal, given).get_flow(flow_id)
    return FlowGraphAnswer(format=format_, text=drawn(details, format_))


@router.post("/{flow_id}/cancel", operation_id="cancel_flow", summary="Cancel a flow", responses=refusals(404))
async def cancel_flow(flow_id: UUID, principal: Submitter, given: Given) -> CancelledFlowAnswer:
    """Cancel all tasks of a flow that have not ended; those that run are requested to stop."""
    done = await client_of(principal, given, to_change=True).cancel_flow(flow_id)
    return CancelledFlowAnswer(cancelled=done.cancelled, asked=done.asked)


@router.post("/{flow_id}/replay", operation_id="replay_flow", summary="Replay a flow", responses=refusals(404))
async def replay_flow(flow_id: UUID, principal: Submitter, given: Given) -> ReplayedFlowAnswer:
    """Let a flow go on where it failed or was cancelled; what has completed stays."""
    count = await client_of(principal, given, to_change=True).replay_flow(flow_id)
    return ReplayedFlowAnswer(count=count)
