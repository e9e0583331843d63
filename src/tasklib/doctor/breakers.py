"""Circuit breakers that are not closed."""

from __future__ import annotations

from tasklib.client.breakers import state_text
from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, ok, warning
from tasklib.formatting import count, shell_word
from tasklib.store import breakers
from tasklib.store.breakers import BreakerInfo


def look(config: Config) -> Call[list[Finding]]:
    known: list[BreakerInfo] = yield breakers.breakers()
    away = [breaker for breaker in known if breaker.state != "closed"]
    if not away:
        return [
            ok("breakers", f"{count(len(known), 'circuit breaker')}, none open." if known else "No circuit breakers.")
        ]
    return [_open(breaker) for breaker in away]


def _open(breaker: BreakerInfo) -> Finding:
    why = (
        f" after {breaker.seen_failures} of {breaker.seen_attempts} attempts failed"
        if breaker.seen_attempts is not None
        else ""
    )
    return warning(
        "breaker_open",
        f"The circuit breaker of {breaker.name!r} is {state_text(breaker)}{why}.",
        "Tasks of this name wait, without using retries.",
        f"Find out why they fail: tasklib list --name {shell_word(breaker.name)} --state failed. To let them run now: "
        f"tasklib breaker close {shell_word(breaker.name)}",
        name=breaker.name,
        state=breaker.state,
        opened=breaker.opened,
    )
