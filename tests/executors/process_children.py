"""Running functions in children, and looking at processes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import process_tasks as tasks
import pytest

import tasklib
from tasklib import Config, TaskContext, TaskFunction
from tasklib.executors.outcomes import Done, Failed, Released
from tasklib.executors.processes import ProcessExecutor
from tests.eventually import soon

CONFIG = Config("postgresql://nobody:secret@nowhere/none", process_kill_grace_seconds=5.0)
SOURCE = str(Path(tasklib.__file__).parents[1])


def context(name: str = "test", report: Callable[[str], None] | None = None, **fields: Any) -> TaskContext:
    usual = {"attempt": 1, "max_attempts": 4, "token": 7, "queue": "default", "worker_id": "w1"}
    return TaskContext(**({"id": uuid4(), "name": name} | usual | fields), _report=report)


async def run(executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> Done | Failed | Released:
    return await executor.run(function, function.arguments.to_json(kwargs), context(function.name))


async def value(executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> Any:
    outcome = await run(executor, function, **kwargs)
    assert isinstance(outcome, Done), outcome
    return json.loads(outcome.result)["value"]


async def failure(executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> Failed:
    outcome = await run(executor, function, **kwargs)
    assert isinstance(outcome, Failed), outcome
    return outcome


class Running:
    """An attempt that goes on until it is stopped. Its first report says that it has begun."""

    def __init__(self, executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> None:
        loop = asyncio.get_running_loop()
        self.report: asyncio.Future[Any] = loop.create_future()
        text = function.arguments.to_json(kwargs)
        self.task = asyncio.create_task(executor.run(function, text, context(function.name, self._reported)))

    def _reported(self, text: str) -> None:
        if not self.report.done():
            self.report.set_result(json.loads(text))

    async def begun(self) -> Any:
        async with asyncio.timeout(120):
            await asyncio.wait([self.report, self.task], return_when=asyncio.FIRST_COMPLETED)
        assert self.report.done(), self.task.result()
        return self.report.result()

    async def cancel(self) -> float:
        """Cancel it; how many seconds that took."""
        before = time.monotonic()
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task
        return time.monotonic() - before


async def held(pid: int) -> int:
    """Wait until the process holds its interpreter's lock; the process id of the shell it has started."""
    mark = tasks.holding(pid)
    await soon(mark.exists, "the lock is held")
    shell = int(mark.read_text())
    mark.unlink()
    return shell


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found.update((task / "children").read_text().split())
    return found
