"""Limits, shares, bounds and circuit breakers: what is allowed, what runs and waits; and what an operator changes."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Form, Query, Request
from starlette.responses import Response

from tasklib.client.breakers import terms_text
from tasklib.client.limits import said
from tasklib.errors import InvalidOption, TaskLibError
from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Operator, Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.problems import Problem
from tasklib.store import breakers as stored_breakers
from tasklib.store import limits as stored
from tasklib.store.limits import MOST_OF_A_LANE

router = screen_router()

_MOST_KEYS = 100
_MOST_HOLDERS = 50
_MOST_SHARES = 200
_MOST_RECORDS = 20
_SHOWN = 80
Name = Annotated[str, Query(max_length=20_000)]
GivenName = Annotated[str, Form(min_length=1, max_length=20_000)]
Number = Annotated[str, Form(max_length=40)]


@router.get("/limits")
async def limits(request: Request, principal: Viewer, services: Serving) -> Response:
    return page(
        request,
        "limits.html",
        limits=await services.run(stored.limits()),
        waiting=await services.run(stored.waiting()),
        most_of_a_lane=MOST_OF_A_LANE,
        breakers=await services.run(stored_breakers.breakers()),
        said=said,
        terms=terms_text,
        one=address,
    )


@router.get("/limits/show")
async def limit(request: Request, principal: Viewer, services: Serving, name: Name) -> Response:
    info = next((each for each in await services.run(stored.limits()) if each.name == name), None)
    if info is None:
        raise Problem(404, "not_found", "There is no such limit", f"No limit is named {name[:_SHOWN]!r}.")
    records = await client_of(principal, services).audit(target=f"limit:{name}", limit=_MOST_RECORDS)
    return page(
        request,
        "limit.html",
        info=info,
        allows=said(info) or "no bound",
        waiting=(await services.run(stored.waiting())).get(name, 0),
        most_of_a_lane=MOST_OF_A_LANE,
        keys=await services.run(stored.keys(name, _MOST_KEYS)),
        holders=await services.run(stored.holders(name, _MOST_HOLDERS)),
        most_keys=_MOST_KEYS,
        most_holders=_MOST_HOLDERS,
        records=services.redaction.records(records),
    )


@router.get("/limits/shares")
async def shares(request: Request, principal: Viewer, services: Serving) -> Response:
    found = await services.run(stored.shares(_MOST_SHARES))
    return page(request, "shares.html", shares=found, most=_MOST_SHARES, one=address)


@router.post("/limits/set")
async def set_limit(
    request: Request,
    principal: Operator,
    services: Serving,
    name: GivenName,
    max_running: Number = "",
    rate: Number = "",
    per: Number = "",
    burst: Number = "",
    serial: Annotated[str, Form(pattern="^(hold|aside)?$")] = "",
    weight: Number = "",
    may_burst: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """All bounds, in place of what they were; an empty field is no bound."""
    try:
        changed = await client_of(principal, services).set_limit(
            name,
            max_running=_whole("Running at a time", max_running),
            rate=_number("Begin", rate),
            per=_number("Within seconds", per),
            burst=_whole("At once", burst),
            serial="hold" if serial == "hold" else "aside" if serial else None,
            weight=_whole("Weight", weight),
            may_burst=True if may_burst else None,
        )
    except TaskLibError as e:
        return done(request, "/limits", str(e)[:300], "bad")
    text = f"Set the limit {name[:_SHOWN]}. It applies from the next claim on; running tasks go on."
    return done(request, address(name), text if changed else "It was set that way already.")


@router.post("/limits/remove")
async def remove_limit(request: Request, principal: Operator, services: Serving, name: GivenName) -> Response:
    changed = await client_of(principal, services).remove_limit(name)
    text = f"Removed the limit {name[:_SHOWN]}." if changed else "It was removed already."
    return done(request, "/limits", text, "good" if changed else "warn")


@router.post("/limits/reset")
async def reset_limit(request: Request, principal: Operator, services: Serving, name: GivenName) -> Response:
    changed = await client_of(principal, services).reset_limit(name)
    text = f"The limit {name[:_SHOWN]} is as the code declares it." if changed else "There was nothing to reset."
    return done(request, "/limits", text, "good" if changed else "warn")


@router.post("/limits/breaker")
async def change_breaker(
    request: Request,
    principal: Operator,
    services: Serving,
    name: GivenName,
    action: Annotated[str, Form(pattern="^(open|close|remove|reset)$")],
) -> Response:
    client = client_of(principal, services)
    match action:
        case "open":
            changed, text = await client.open_breaker(name), "is open: its tasks wait until you close it"
        case "close":
            changed, text = await client.close_breaker(name), "is closed: its tasks run"
        case "remove":
            changed, text = await client.remove_breaker(name), "is removed"
        case _:
            changed, text = await client.reset_breaker(name), "is as the code declares it"
    if not changed:
        return done(request, "/limits", "That changed nothing.", "warn")
    return done(request, "/limits", f"The circuit breaker of {name[:_SHOWN]} {text}.")


@router.post("/limits/breaker/set")
async def set_breaker(
    request: Request,
    principal: Operator,
    services: Serving,
    name: GivenName,
    failures: Number = "50",
    at_least: Number = "20",
    within: Number = "60",
    pause: Number = "60",
    probes: Number = "3",
) -> Response:
    try:
        changed = await client_of(principal, services).set_breaker(
            name,
            failures=(_number("Failures", failures) or 0.0) / 100,
            at_least=_whole("Attempts", at_least) or 0,
            within=_number("Within", within) or 0.0,
            pause=_number("Pause", pause) or 0.0,
            probes=_whole("Probes", probes) or 0,
        )
    except TaskLibError as e:
        return done(request, "/limits", str(e)[:300], "bad")
    text = f"Set the circuit breaker of {name[:_SHOWN]}." if changed else "It was set that way already."
    return done(request, "/limits", text)


@router.post("/limits/bounds")
async def set_bounds(
    request: Request,
    principal: Operator,
    services: Serving,
    kind: Annotated[str, Form(pattern="^(queue|name)$")],
    value: GivenName,
    max_wait: Number = "",
    max_pending: Number = "",
) -> Response:
    """What may wait of a queue or a task name; without any bound, they are removed."""
    client = client_of(principal, services)
    back = f"/{kind}s/{quote(value, safe='')}"
    try:
        wait, pending = _number("Oldest waits", max_wait), _whole("Waiting", max_pending)
        bound = client.bound_queue if kind == "queue" else client.bound_name
        changed = await bound(value, max_wait=wait, max_pending=pending)
    except TaskLibError as e:
        return done(request, back, str(e)[:300], "bad")
    text = "Removed the bounds." if wait is pending is None else "Set the bounds: they apply within five seconds."
    return done(request, back, text if changed else "It was set that way already.")


def address(name: str) -> str:
    """The page of one limit."""
    return f"/limits/show?{urlencode({'name': name})}"


def _number(label: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidOption(f"{label} must be a number, not {text!r}.") from None


def _whole(label: str, text: str) -> int | None:
    if not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidOption(f"{label} must be a whole number, not {text!r}.") from None
