"""The tasks of flows in a chaos run. Joins say what is wrong with what they were handed."""

from __future__ import annotations

from typing import Any

from proof.chaos.tasks import QUICK_RETRY, Running, log
from tasklib import Reject, SettledTask, current_task, task


def met(fate: str) -> None:
    if fate == "dead":
        raise Reject("it was to fail")
    if fate == "flaky" and current_task().attempt == 1:
        raise RuntimeError("the first attempt was to fail")


@task(name="chaos.member", retry_policy=QUICK_RETRY)
async def member(mark: str, fate: str) -> dict[str, Any]:
    with Running() as token:
        met(fate)
        return {"token": token, "mark": mark}


@task(name="chaos.next", retry_policy=QUICK_RETRY)
async def following(before: dict[str, Any], mark: str, fate: str) -> dict[str, Any]:
    """Gets the result of the task before it."""
    with Running() as token:
        if before.get("mark") != mark:
            wrong("I14", f"{current_task().id} of {mark} was handed {before}")
        met(fate)
        return {"token": token, "mark": mark}


@task(name="chaos.join", retry_policy=QUICK_RETRY)
async def join(parts: list[dict[str, Any]], mark: str, least: int) -> dict[str, Any]:
    """Gets the results of all that completed: so many at least."""
    with Running() as token:
        if len(parts) < least or {part["mark"] for part in parts} - {mark}:
            wrong("I14", f"{current_task().id} wants {least} of {mark} and was handed {parts}")
        return {"token": token, "mark": mark}


@task(name="chaos.settled", retry_policy=QUICK_RETRY)
async def settled(parts: list[SettledTask[dict[str, Any]]], mark: str, most: int) -> dict[str, Any]:
    """Gets how each one ended. One that is replayed meanwhile is missing."""
    with Running() as token:
        completed = [part for part in parts if part.state == "completed"]
        if len({part.id for part in parts}) != len(parts) or len(parts) > most:
            wrong("I14", f"{current_task().id} was handed {len(parts)} of {most}")
        if any(part.result is None or part.result["mark"] != mark for part in completed):
            wrong("I14", f"{current_task().id} of {mark} was handed {parts}")
        return {"token": token, "mark": mark}


def wrong(invariant: str, detail: str) -> None:
    log().write(op="violation", invariant=invariant, detail=detail[:500])
