"""Submitting the flow that a durable function waits for, in the transaction that records it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

from tasklib.client.flow_graphs import graph_of
from tasklib.client.flow_plans import planned
from tasklib.client.sealing import refuse_unsealed
from tasklib.client.submissions import Defaults
from tasklib.db.database import execute, execute_async
from tasklib.db.query import Query
from tasklib.store import flows
from tasklib.store.flows import NewGate
from tasklib.tasks.durable_run import LoseTask
from tasklib.tasks.gathering import ChildFlow
from tasklib.tasks.ids import new_id
from tasklib.worker.attempt import Attempt


class ChildSubmission:
    """The statements that submit a flow, in this order; one of them may find that the task is not ours any more."""

    def __init__(self, children: ChildFlow, attempt: Attempt, defaults: Defaults, schema: str | None) -> None:
        plan = planned(graph_of(children.flow), defaults, UUID, None)
        for terms in plan.tasks.kinds:
            if terms.key_id is not None and attempt.seal is None:
                refuse_unsealed(attempt.claimed.name, "what gather() returns", terms.name)
        gates = list(plan.flow.gates)
        self._adopt: Query[bool] | None = None
        if children.if_cancelled == "cancel":
            gate = NewGate(new_id(), {"kind": "all"}, (), 1, kind="parent")
            gates.append(gate)
            self._adopt = flows.adopt(attempt.claimed, attempt.worker_id, gate.id)
            attempt.claimed = attempt.claimed.reporting_to(str(gate.id))  # it may end in this very attempt
        name = f"{attempt.claimed.name}.gather"[:100]
        plan.flow = plan.flow._replace(name=name, gates=gates, parent=UUID(attempt.claimed.id))
        self._statements = plan.statements()
        self._schema = schema
        self._record = {"value": {"flow": str(plan.flow.id), "nodes": children.places}}

    async def submit_async(self, connection: psycopg.AsyncConnection) -> dict[str, Any]:
        if self._adopt is not None and not await execute_async(connection, self._adopt, self._schema):
            raise LoseTask
        for query in self._statements:
            await execute_async(connection, query, self._schema)
        return self._record

    def submit(self, connection: psycopg.Connection) -> dict[str, Any]:
        """The same for a sync function."""
        if self._adopt is not None and not execute(connection, self._adopt, self._schema):
            raise LoseTask
        for query in self._statements:
            execute(connection, query, self._schema)
        return self._record
