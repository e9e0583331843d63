"""The doctor's warnings, for every page; read again after a while.

Title and icon of each page show it, and the stream of ticks keeps them true while the page is open.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import Request

from tasklib.doctor.findings import Finding, Severity, worst
from tasklib.doctor.run import examine_async
from tasklib.server.access import Principal, Role
from tasklib.server.services import Services

_VISIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """How many findings there are, and how bad the worst of them is."""

    count: int
    severity: Severity

    @property
    def is_bad(self) -> bool:
        return self.severity.rank >= Severity.WARNING.rank


NONE = Trouble(0, Severity.OK)


async def findings(request: Request, services: Services) -> list[Finding]:
    """What the doctor warns of, the worst first; asked again after a while, for all who look."""
    known: tuple[float, list[Finding]] | None = getattr(request.app.state, "findings", None)
    if known is None or known[0] < time.monotonic():
        found = await examine_async(services.client, thorough=False)
        bad = sorted((f for f in found if f.severity.rank >= Severity.WARNING.rank), key=lambda f: -f.severity.rank)
        known = request.app.state.findings = (time.monotonic() + _VISIT_SECONDS, bad)
    return known[1]


def known_trouble(request: Request, principal: Principal | None) -> Trouble:
    """What was found last, without asking: a page must not wait for it. A submitter isn't told about the fleet."""
    known: tuple[float, list[Finding]] | None = getattr(request.app.state, "findings", None)
    if known is None or principal is None or not principal.may(Role.VIEWER):
        return NONE
    return Trouble(len(known[1]), worst(known[1]))


async def trouble(request: Request, principal: Principal, services: Services) -> Trouble:
    """The same, up to date."""
    if principal.may(Role.VIEWER):
        await findings(request, services)
    return known_trouble(request, principal)
