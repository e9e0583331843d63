"""One state of the table, and what the worker that claims from it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.schema import NAME, BenchSchema
from tasklib.store.claim import Served

Columns = Mapping[str, str]
ALL = Served([NAME])
"""A worker that takes everything."""

ENOUGH = 2_000
"""Rows for a round and to spare, where the worker serves few of those that wait."""

FINISHED: Columns = {
    "state": "'completed'",
    "started_at": "now()",
    "completed_at": "now()",
    "lease_token": "1",
    "result": """'{"value": null}'""",
}


@dataclass(frozen=True)
class Scene:
    """A point of a dimension. Rows are described by SQL expressions of their number `n`."""

    dimension: str
    at: int
    label: str
    pending: int = 20_000
    """Rows waiting to be claimed, of this kind:"""
    columns: Columns = field(default_factory=dict)
    claimed: Columns | None = None
    """The kind of rows that takes the place of what was claimed; the same unless given."""
    served: Served = ALL
    finished: int = 0
    grows: bool = False
    """The table is what the scene before has left, and only what is missing is added: no millions of rows twice."""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def set(self, schema: BenchSchema) -> None:
        """Make the table look like this."""
        pending = finished = 0
        if self.grows:
            pending = schema.value("SELECT count(*) FROM tasks WHERE state = 'pending'")
            finished = schema.value("SELECT count(*) FROM tasks") - pending
        else:
            schema.clear()
        # History is older than what waits.
        schema.insert(max(0, self.finished - finished), FINISHED)
        schema.insert(max(0, self.pending - pending), self.columns, self.parameters)
        if self.claimed is not None:
            self.refill(schema, ENOUGH)
        schema.calm()

    def refill(self, schema: BenchSchema, count: int) -> None:
        """New tasks for those that were claimed."""
        schema.insert(count, self.columns if self.claimed is None else self.claimed, self.parameters)
