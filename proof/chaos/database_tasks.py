"""Tasks of a chaos run that need a worker with a database: durable ones, and those that add others while they run."""

from __future__ import annotations

from typing import Any

import psycopg

from proof.chaos.flow_tasks import member, met, wrong
from proof.chaos.tasks import QUICK_RETRY, Running
from tasklib import current_task, gather, sleep, step, task, wait_for_signal

LEDGER = "ledger"
"""The transactional step of an order."""


@task(name="chaos.spawner", retry_policy=QUICK_RETRY)
async def spawner(mark: str, number: int, fate: str) -> dict[str, Any]:
    """Spawns so many tasks, the first of which spawns one more; an attempt that is repeated spawns them again."""
    with Running() as token:
        children = {n: spawned.s(mark=mark, grandchildren=int(n == 0)) for n in range(number)}
        if number:
            await current_task().spawn(children.pop(0), key=0)
        await current_task().spawn_many(children)
        met(fate)
        return {"token": token, "mark": mark}


@task(name="chaos.spawned", retry_policy=QUICK_RETRY)
async def spawned(mark: str, grandchildren: int) -> dict[str, Any]:
    with Running() as token:
        for n in range(grandchildren):
            await current_task().spawn(spawned.s(mark=mark, grandchildren=0), key=n)
        return {"token": token, "mark": mark}


@task(name="chaos.gatherer", retry_policy=QUICK_RETRY, durable=True)
async def gatherer(mark: str, fates: list[str]) -> dict[str, Any]:
    """Gathers tasks, and gets as many ends as it has asked for."""
    with Running() as token:
        parts = await gather([member.s(mark=f"{mark} {n}", fate=fate) for n, fate in enumerate(fates)], when="settled")
        completed = {n: part.result for n, part in enumerate(parts) if part.state == "completed"}
        are_right = all(each is not None and each["mark"] == f"{mark} {n}" for n, each in completed.items())
        if len(parts) != len(fates) or not are_right:
            wrong("I14", f"{current_task().id} of {mark} gathered {parts}")
        return {"token": token, "mark": mark}


@task(name="chaos.order", retry_policy=QUICK_RETRY, durable=True)
async def order(mark: str, steps: int, seconds: float, signals: int) -> dict[str, Any]:
    """Steps, a transactional one among them, a sleep, and signals that come in the order of their keys."""
    with Running() as token:
        counted = [await step("count", _counted, n, key=n) for n in range(steps)]
        await step(LEDGER, _ledger, transactional=True)
        if seconds:
            await sleep(seconds)
        got = [await wait_for_signal("go", key=n) for n in range(signals)]
        if counted != list(range(steps)) or got != list(range(signals)):
            wrong("I15", f"{current_task().id} has steps {counted} and signals {got}")
        return {"token": token, "mark": mark}


async def _counted(n: int) -> int:
    return n


async def _ledger(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("INSERT INTO step_ledger VALUES (%s, %s)", (current_task().id, LEDGER))
