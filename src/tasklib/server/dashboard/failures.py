"""Failures by cause in a time range: what broke, since when, and for whom; and a page for each cause."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Path, Query, Request
from starlette.responses import Response

from tasklib.client.failures import FailureReport
from tasklib.client.search_terms import quoted
from tasklib.errors import InvalidOption
from tasklib.server.access import Principal, client_of
from tasklib.server.dashboard import charts
from tasklib.server.dashboard.charts import ChartData
from tasklib.server.dashboard.samples import sample_of
from tasklib.server.dashboard.screens import Reader, Serving, screen_router
from tasklib.server.dashboard.shell import page
from tasklib.server.failure_models import shown_failures
from tasklib.server.services import Services
from tasklib.store.failures import LOOK, LOOK_AT_OTHERS, STEPS, FailureCause, FailureField
from tasklib.tasks.masking import MASK

router = screen_router()

RANGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}
FIRST_RANGE = "15m"
MOST_CAUSES = 50
_FIELDS_SHOWN = 3
"""Tags and arguments of a cause in the list; its page has all of them."""
_VALUES_OF_ONE = 10
_KEPT_SECONDS = 10.0
"""How long pages that refresh themselves are given the same figures."""
_MOST_KEPT = 100
Fingerprint = Annotated[str, Path(pattern="^[0-9a-f]{6,32}$")]
Name = Annotated[str | None, Query(max_length=1000)]
Moment = Annotated[datetime | None, Query()]


@dataclass(frozen=True, slots=True)
class Window:
    """The time range of a page."""

    key: str | None
    """Of RANGES; None: the user's own."""
    since: datetime | timedelta
    until: datetime | None

    @property
    def query(self) -> dict[str, str]:
        """The parameters of a link to the same range."""
        if self.key is not None:
            return {"range": self.key}
        assert isinstance(self.since, datetime)
        assert self.until is not None
        return {"since": _local(self.since), "until": _local(self.until)}


@router.get("/failures")
async def failures(
    request: Request,
    principal: Reader,
    services: Serving,
    range: str = FIRST_RANGE,
    since: Moment = None,
    until: Moment = None,
    name: Name = None,
    queue: Name = None,
) -> Response:
    window, error = _window(range, since, until), None
    try:
        report = await _report(request, principal, services, window, name=name, queue=queue, limit=MOST_CAUSES)
    except InvalidOption as e:
        window, error = _window(FIRST_RANGE, None, None), str(e)
        report = await _report(request, principal, services, window, limit=MOST_CAUSES)
    return page(
        request,
        "failures.html",
        status=422 if error else 200,
        error=error,
        window=window,
        ranges=[(key, key) for key in RANGES],
        report=report,
        whom={
            cause.fingerprint: telling(report.fields.get(cause.fingerprint, []), len(cause.ids))
            for cause in report.causes
        },
        name=name,
        queue=queue,
        **_common(window),
    )


@router.get("/failures/{fingerprint}")
async def cause(
    request: Request,
    principal: Reader,
    services: Serving,
    fingerprint: Fingerprint,
    range: str = "24h",
    since: Moment = None,
    until: Moment = None,
) -> Response:
    window, error = _window(range, since, until), None
    try:
        report = await _one(request, principal, services, window, fingerprint)
    except InvalidOption as e:
        window, error = _window("24h", None, None), str(e)
        report = await _one(request, principal, services, window, fingerprint)
    found = report.causes[0] if report.causes else None
    sample = await sample_of(principal, services, found.ids[0] if found else None)
    # A submitter sees its own failures; replays concern all dead letters of a cause.
    jobs = [] if principal.only_own else await client_of(principal, services).replays(fingerprint=fingerprint, limit=5)
    return page(
        request,
        "failure.html",
        replays=jobs,
        is_replaying=any(job.is_open for job in jobs),
        status=422 if error else 200,
        error=error,
        window=window,
        ranges=[(key, key) for key in RANGES],
        report=report,
        fingerprint=fingerprint,
        cause=found,
        fields=report.fields.get(found.fingerprint, []) if found else [],
        chart=_chart(report, found) if found else None,
        **sample,
        **_common(window),
    )


def telling(fields: list[FailureField], tasks: int) -> list[FailureField]:
    """The fields that say most about whom it hits: values that many of its tasks share, and none that only one has."""

    def share(field: FailureField) -> float:
        return field.values[0].tasks / tasks

    hidden = [field for field in fields if field.values[0].text == MASK]
    open_ = [
        field
        for field in fields
        if field not in hidden and not (field.different == field.tasks > 3) and (field.values[0].tasks > 1 or tasks < 3)
    ]
    return sorted(open_, key=lambda f: (f.kind != "tag", -share(f), f.key))[:_FIELDS_SHOWN]


async def _one(
    request: Request, principal: Principal, services: Services, window: Window, fingerprint: str
) -> FailureReport:
    return await _report(request, principal, services, window, fingerprint=fingerprint, limit=1, values=_VALUES_OF_ONE)


async def _report(
    request: Request, principal: Principal, services: Services, window: Window, **options: Any
) -> FailureReport:
    """From the database for one who opens the page; pages that refresh themselves share it for a while."""
    client = client_of(principal, services)
    kept: dict[Any, tuple[float, FailureReport]] = services_kept(request)
    key = (client.calls.identity.owner, window, *sorted(options.items()))
    known = kept.get(key)
    if "hx-request" in request.headers and known is not None and known[0] > time.monotonic():
        return known[1]
    report = await shown_failures(client, services.redaction, since=window.since, until=window.until, **options)
    if len(kept) >= _MOST_KEPT:
        kept.clear()
    kept[key] = (time.monotonic() + _KEPT_SECONDS, report)
    return report


def services_kept(request: Request) -> dict[Any, tuple[float, FailureReport]]:
    """The reports of the last seconds."""
    state = request.app.state
    if not hasattr(state, "failure_reports"):
        state.failure_reports = {}
    found: dict[Any, tuple[float, FailureReport]] = state.failure_reports
    return found


def _window(range: str, since: datetime | None, until: datetime | None) -> Window:
    if since is None and until is None:
        key = range if range in RANGES else FIRST_RANGE
        return Window(key, RANGES[key], None)
    end = _aware(until) or datetime.now(UTC)
    return Window(None, _aware(since) or end - RANGES["24h"], end)


def _aware(moment: datetime | None) -> datetime | None:
    """Fields for a time have no zone: the page says that they are UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _local(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


def _common(window: Window) -> dict[str, Any]:
    return {
        "look": LOOK,
        "look_at_others": LOOK_AT_OTHERS,
        "same_range": urlencode(window.query),
        "search": lambda *terms: f"/tasks?{urlencode({'q': ' '.join(terms)})}",
        "quoted": quoted,
        "local": _local,
    }


def _chart(report: FailureReport, cause: FailureCause) -> charts.Chart:
    step = (report.until - report.since) / STEPS
    points = [(report.since + i * step, {"failed": float(n)}) for i, n in enumerate(cause.counts)]
    seconds = max(1, round(step.total_seconds()))
    return charts.draw(
        ChartData("Failed attempts", "failures", True, False, {"failed": "Failed attempts"}, points, seconds), []
    )
