"""Flows: a list with their progress, one of them as a graph, cancel and replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Form, Query, Request
from starlette.responses import Response

from tasklib.client.flows import FlowDetails
from tasklib.client.search_terms import quoted
from tasklib.formatting import count
from tasklib.server.access import Role, client_of
from tasklib.server.dashboard.flow_graph import HEIGHT, STATES, WIDTH, drawing, policy_words
from tasklib.server.dashboard.screens import Operator, Reader, Serving, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.store.flows import FlowInfo, GateInfo, NodeInfo
from tasklib.tasks.options import is_name

router = screen_router()

PAGE = 50
MOST_NODES = 500
"""Nodes in the table."""
MOST_RECORDS = 20
_STATES = {"": "All", "unfinished": "Not finished"}


@dataclass(frozen=True, slots=True)
class ShownNode:
    """A node in the table."""

    info: NodeInfo
    after: list[str]
    policy: str
    gate: GateInfo | None

    @property
    def waits(self) -> bool:
        return self.gate is not None and self.gate.opened_at is None and self.gate.failed_at is None

    @property
    def states(self) -> list[tuple[str, int]]:
        return [(state, self.info.states[state]) for state in STATES if self.info.states.get(state)]


@router.get("/flows")
async def flows(
    request: Request,
    principal: Reader,
    services: Serving,
    q: Annotated[str, Query(max_length=2000)] = "",
    state: str = "",
    after: UUID | None = None,
) -> Response:
    name, state = q.strip(), state if state in _STATES else ""
    found: list[FlowInfo] = []
    if not name or is_name(name):
        found = await client_of(principal, services).flows(
            after=after, name=name or None, unfinished=state == "unfinished", limit=PAGE + 1
        )
    return page(
        request,
        "flows.html",
        shown=found[:PAGE],
        took=seconds_of,
        q=q,
        state=state,
        states=_STATES,
        older={"after": found[PAGE - 1].id} if len(found) > PAGE else None,
        newer={"after": None} if after else None,
    )


@router.get("/flows/{flow_id}")
async def flow(request: Request, principal: Reader, services: Serving, flow_id: UUID) -> Response:
    client = client_of(principal, services)
    details = await client.get_flow(flow_id)
    records = []
    if principal.may(Role.VIEWER):
        records = services.redaction.records(await client.audit(target=str(flow_id), limit=MOST_RECORDS))
    nodes = _shown(details)
    return page(
        request,
        "flow.html",
        info=details.info,
        drawing=drawing(details),
        size=(WIDTH, HEIGHT),
        nodes=nodes[:MOST_NODES],
        node_count=len(nodes),
        failed=[gate for gate in details.gates if gate.failed_at is not None][:MOST_RECORDS],
        took=seconds_of(details.info),
        left=_left(details.info),
        records=records,
        only=lambda node=None, state=None: _search(flow_id, node, state),
    )


@router.get("/flows/{flow_id}/confirm")
async def confirm(
    request: Request,
    principal: Operator,
    services: Serving,
    flow_id: UUID,
    action: Annotated[str, Query(pattern="^(cancel|replay)$")],
) -> Response:
    """Asks first, with how many tasks it is about."""
    details = await client_of(principal, services).get_flow(flow_id)
    return page(request, "flow_confirm.html", info=details.info, verb=action, number=_concerned(details, action))


@router.post("/flows/{flow_id}/{action}")
async def act(
    request: Request,
    principal: Operator,
    services: Serving,
    flow_id: UUID,
    action: str,
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    client, back = client_of(principal, services, to_change=True), f"/flows/{flow_id}"
    if action not in ("cancel", "replay") or not confirmed:
        return done(request, back, "Nothing was changed: confirm it first.", "warn")
    if action == "replay":
        number = await client.replay_flow(flow_id)
        if not number:
            return done(request, back, "Nothing to replay: no task of this flow has failed or was cancelled.", "warn")
        return done(request, back, f"Replayed {count(number, 'task')}; those that wait for them follow.")
    counts = await client.cancel_flow(flow_id)
    if not counts.cancelled and not counts.asked:
        return done(request, back, "Nothing to cancel: this flow is finished.", "warn")
    asked = f"; {counts.asked:,} more run, and their workers were requested to stop them" if counts.asked else ""
    return done(request, back, f"Cancelled {count(counts.cancelled, 'task')}{asked}.")


def seconds_of(info: FlowInfo) -> float:
    """How long it took, or takes since it was submitted."""
    return ((info.finished_at or info.now) - info.created_at).total_seconds()


def _left(info: FlowInfo) -> int:
    return info.total - info.completed - info.failed


def _concerned(details: FlowDetails, action: str) -> int:
    """How many tasks an action is about: what has not ended, or what has ended without completing."""
    wanted = ("pending", "running", "failed") if action == "cancel" else ("dead_letter", "cancelled")
    return sum(node.states.get(state, 0) for node in details.nodes for state in wanted)


def _shown(details: FlowDetails) -> list[ShownNode]:
    gates = {waiter: gate for gate in details.gates for waiter in gate.waiters}
    shown = []
    for node in details.nodes:
        gate = gates.get(node.name)
        shown.append(ShownNode(node, list(gate.nodes) if gate else [], policy_words(gate.policy) if gate else "", gate))
    return shown


def _search(flow_id: UUID, node: str | None, state: str | None) -> str:
    terms = [f"flow:{flow_id}", f"node:{quoted(node)}" if node is not None else "", f"state:{state}" if state else ""]
    return f"/tasks?{urlencode({'q': ' '.join(filter(None, terms))})}"
