"""Tasks behind limits, the faults they have to survive, and what they are behind by their names and arguments."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from proof.chaos.tasks import QUICK_RETRY, Running
from proof.history.limits import Bound
from tasklib import Breaker, Client, Limit, Throttled, current_task, task
from tasklib.tasks.submitter import Submission

NAMES = "chaos.limited.%"
KINDS = (
    "worker killed",
    "worker frozen briefly",
    "worker frozen past its lease",
    "leader killed",
    "HTTP server killed",
    "submitter killed",
    "worker restarted",
    "database stopped fast",
    "database stopped immediately",
    "database frozen",
    "backend killed",
    "listeners terminated",
    "connections terminated",
    "links delayed",
    "links stalled",
    "links reset",
    "links half-closed",
    "submission unanswered",
    "claim unanswered",
    "settlement unanswered",
)
"""The faults that limits have to survive."""
LEDGER = "chaos-ledger"
_API = Limit("chaos-api", max_running=2, key="account")
_ACCOUNTS = "abcd"
OUTAGE_EVERY = 60.0


async def _work(seconds: float, fate: str) -> dict[str, int]:
    with Running() as token:
        await asyncio.sleep(seconds)
        if fate == "flaky" and current_task().attempt == 1:
            raise RuntimeError("the first attempt was to fail")
        return {"token": token}


@task(name="chaos.limited.call", retry_policy=QUICK_RETRY, limits=[_API])
async def call(mark: str, account: str, seconds: float, fate: str) -> dict[str, int]:
    return await _work(seconds, fate)


@task(name="chaos.limited.both", retry_policy=QUICK_RETRY, limits=[_API, Limit("chaos-db", max_running=3)])
async def both(mark: str, account: str, seconds: float, fate: str) -> dict[str, int]:
    return await _work(seconds, fate)


@task(name="chaos.limited.rated", retry_policy=QUICK_RETRY, limits=[Limit("chaos-rate", rate=20, per=1, burst=5)])
async def rated(mark: str) -> dict[str, int]:
    return await _work(0.0, "ok")


@task(name="chaos.limited.serial", retry_policy=QUICK_RETRY, serial_key="account")
async def serial(mark: str, account: str, fate: str) -> dict[str, int]:
    return await _work(0.002, fate)


@task(name="chaos.limited.book", retry_policy=QUICK_RETRY, queue=LEDGER)
async def book(mark: str, fate: str) -> dict[str, int]:
    return await _work(0.0, fate)


@task(name="chaos.limited.shared", retry_policy=QUICK_RETRY, share="tenant")
async def shared(mark: str, tenant: str) -> dict[str, int]:
    return await _work(0.0, "ok")


@task(
    name="chaos.limited.refused", retry_policy=QUICK_RETRY, limits=[Limit("chaos-site", max_running=4, key="account")]
)
async def refused(mark: str, account: str) -> dict[str, int]:
    """Calls a system that now and then has enough of an account."""
    with Running() as token:
        if random.random() < 0.1:
            raise Throttled(retry_after=random.choice([0.2, 1.0]))
        return {"token": token}


@task(
    name="chaos.limited.down",
    retry_policy=QUICK_RETRY,
    breaker=Breaker(failures=0.5, at_least=5, within=10, pause=10, probes=2),
)
async def down(mark: str) -> dict[str, int]:
    """Calls a system that is out of order for a quarter of the time."""
    with Running() as token:
        if time.time() % OUTAGE_EVERY < OUTAGE_EVERY / 4:
            raise RuntimeError("the other system is out of order")
        return {"token": token}


def any_limited(chance: random.Random, mark: str) -> Submission:
    """One of these tasks."""
    account, seconds = chance.choice(_ACCOUNTS), chance.choice([0.0, 0.01, 0.1])
    fate = "flaky" if chance.random() < 0.05 else "ok"
    [made] = chance.choices(
        [
            lambda: call.bind(mark=mark, account=account, seconds=seconds, fate=fate),
            lambda: both.bind(mark=mark, account=account, seconds=seconds, fate=fate),
            lambda: rated.bind(mark=mark),
            lambda: serial.bind(mark=mark, account=account, fate=fate),
            lambda: book.bind(mark=mark, fate=fate),
            lambda: shared.bind(mark=mark, tenant=account),
            lambda: refused.bind(mark=mark, account=account),
            lambda: down.bind(mark=mark),
        ],
        [6, 3, 4, 5, 2, 2, 3, 3],
    )
    submission: Submission = made()
    return submission


def bounds_of(name: str, queue_name: str, kwargs: dict[str, Any]) -> tuple[Sequence[Bound], str | None]:
    """What a task is behind, and its serial key."""
    match name.rpartition(".")[2]:
        case "call":
            return [Bound("chaos-api", kwargs["account"])], None
        case "both":
            return [Bound("chaos-api", kwargs["account"]), Bound("chaos-db")], None
        case "rated":
            return [Bound("chaos-rate")], None
        case "refused":
            return [Bound("chaos-site", kwargs["account"])], None
        case "serial":
            return [], kwargs["account"]
        case "book":
            return [], f"queue {queue_name}"
        case _:
            return [], None


def make(client: Client) -> None:
    """What is not declared by functions: here, because importing this must not declare a queue in other programs."""
    client.set_limit(f"queue:{LEDGER}", serial=True)


def change(client: Client, chance: random.Random) -> None:
    """As an operator changes a limit."""
    if chance.random() < 0.2:
        client.reset_limit("chaos-db")
    else:
        client.set_limit("chaos-db", max_running=chance.randrange(0, 6))
