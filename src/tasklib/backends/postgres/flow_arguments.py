"""Arguments that are results of other tasks of a flow: read after the claim, before the task is handed on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tasklib.db.query import Runs
from tasklib.store import flows
from tasklib.store.claim import Claimed, FlowPart, need_results
from tasklib.store.flows import TaskEnd
from tasklib.tasks.blobs import FETCH, IN_TEXT
from tasklib.tasks.sealed_results import OWNED
from tasklib.tasks.serializers import IN_TEXT as SERIALIZED

MOST_IN_LIST = 1_000_000
"""More than a submission allows: a group that grew while it ran is cut off only here."""


async def with_results(db: Runs, claimed: Sequence[Claimed]) -> list[Claimed]:
    """These with all their arguments."""
    if not need_results(claimed):
        return list(claimed)
    parts = {c.id: c.in_flow for c in claimed}
    single = {r["task"] for part in parts.values() if part for r in part.results.values() if "task" in r}
    ended = await db.run(flows.results_of(sorted(single))) if single else {}
    return [await _filled_in(db, c, parts[c.id], ended) for c in claimed]


async def _filled_in(db: Runs, claimed: Claimed, part: FlowPart | None, ended: Mapping[str, TaskEnd]) -> Claimed:
    if part is None or not part.results:
        return claimed
    values: dict[str, Any] = {}
    for name, reference in part.results.items():
        settled = bool(reference.get("settled"))
        if "task" in reference:
            found = ended.get(reference["task"])
            values[name] = None if found is None else found.as_settled if settled else found.result
        elif reference.get("pages"):
            values[name] = {"flow": part.flow, "nodes": reference["nodes"], "settled": settled}
        else:
            query = flows.node_results(part.flow or "", reference["nodes"], settled, None, MOST_IN_LIST)
            values[name] = [value for _, value in await db.run(query)]
    results = json.dumps(values)
    # The worker has the store, the serializers and the keys.
    fetch = {FETCH: True} if any(mark in results for mark in (IN_TEXT, SERIALIZED, OWNED)) else {}
    return claimed._replace(kwargs=json.dumps({**fetch, **json.loads(claimed.kwargs), **values}))
