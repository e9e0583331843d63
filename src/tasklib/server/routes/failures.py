"""Failures by cause in a time range."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from tasklib.client.failures import MOST_CAUSES
from tasklib.server.access import client_of
from tasklib.server.failure_models import FailuresAnswer, shown_failures
from tasklib.server.filters import Fingerprint, NameFilter
from tasklib.server.routing import Given, Reader
from tasklib.tasks.options import MAX_DELAY_SECONDS

router = APIRouter(prefix="/api/v1/failures", tags=["dead letters"])


@router.get("", operation_id="list_failures", summary="Failed attempts by cause")
async def list_failures(
    principal: Reader,
    given: Given,
    seconds: Annotated[
        float, Query(gt=0, le=MAX_DELAY_SECONDS, description="The length of the range, which ends at `until`.")
    ] = 3600.0,
    since: Annotated[AwareDatetime | None, Query(description="Where the range begins, instead of `seconds`.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="The end of the range; default: now.")] = None,
    name: NameFilter = None,
    queue: NameFilter = None,
    fingerprint: Fingerprint = None,
    limit: Annotated[int, Query(ge=1, le=MOST_CAUSES, description="The maximum number of causes.")] = 50,
    values: Annotated[
        int, Query(ge=1, le=100, description="The maximum number of values of each tag and argument.")
    ] = 3,
) -> FailuresAnswer:
    """What broke, since when, and for whom: attempts that are retried and dead letters, by name and error.

    A bounded number of rows is read; `back_to` says how far back that goes. A submitter: only its own tasks.
    """
    report = await shown_failures(
        client_of(principal, given),
        given.redaction,
        since=since or timedelta(seconds=seconds),
        until=until,
        name=name,
        queue=queue,
        fingerprint=fingerprint,
        limit=limit,
        values=values,
    )
    return FailuresAnswer.of(report)
