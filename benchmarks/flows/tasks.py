"""The functions that TaskLib's workers run."""

from __future__ import annotations

from benchmarks.flows.marks import mark
from tasklib import Results, current_task, step, task


@task(name="flows.noop")
async def noop(n: int) -> int:
    return n


@task(name="flows.count")
async def count(numbers: Results[int]) -> int:
    """Reads all results of a group, page by page."""
    mark("join")
    found = 0
    async for _ in numbers:
        found += 1
    return found


@task(name="flows.after")
async def after(numbers: Results[int]) -> None:
    """Runs after a group, and reads no results."""


@task(name="flows.steps", durable=True)
async def steps(number: int) -> int:
    for n in range(number):
        await step("add", _add, n, key=n)
    return number


async def _add(n: int) -> int:
    return n + 1


@task(name="flows.first")
async def first(n: int) -> int:
    mark("begin")
    return n + 1


@task(name="flows.second")
async def second(n: int) -> int:
    return n + 1


@task(name="flows.third")
async def third(n: int) -> int:
    mark("end")
    return n + 1


@task(name="flows.member")
async def member(n: int) -> int:
    mark(f"member{n}")
    return n


@task(name="flows.join")
async def join(parts: list[int]) -> str:
    mark(f"join{parts[0]}")
    return str(current_task().id)
