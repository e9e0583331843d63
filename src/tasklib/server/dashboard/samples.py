"""The sample task of a cause, with its traceback: for the pages of failures and of dead letters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tasklib.server.access import Principal, client_of
from tasklib.server.services import Services

_MOST_SHOWN = 20_000
"""Characters of a traceback, from its end."""


async def sample_of(principal: Principal, services: Services, task_id: UUID | None) -> dict[str, Any]:
    """For a template: the task, and its traceback without the last line, which the page shows above it."""
    sample = None if task_id is None else await client_of(principal, services).get_task(task_id)
    if sample is None:
        return {"sample": None, "before_error": ""}
    services.redaction.task(sample)
    return {"sample": sample, "before_error": (sample.error or "").rstrip().rpartition("\n")[0][-_MOST_SHOWN:]}
