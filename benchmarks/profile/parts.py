"""What one task takes, part by part, on rows that a worker has claimed.

Timed while it runs among others, each part would be shorter than the reading of the clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.profile.drain import Noop
from tasklib import Config
from tasklib.cli.running import _loop_factory
from tasklib.executors.functions import done, eager_task
from tasklib.store.claim import Claimed

REPEATS = 9
ARGUMENTS = "arguments checked (Pydantic)"
BODY = "the function itself"
RESULT = "result as JSON"
TASK = "an asyncio task"
BOOKKEEPING = "attempt begun and ended: slots, deadline, average, outcome"
RUNS_AT_ONCE = sys.version_info >= (3, 12)
"""Tasks start eagerly; before Python 3.12 the loop runs them, which counts as the loop's time."""


def parts_of(rows: Sequence[Claimed], function: Noop, config: Config) -> dict[str, float]:
    """Seconds per task, at best: what disturbs them is no part of them."""
    texts = [row.kwargs for row in rows]
    body: Callable[..., Any] = function.function
    arguments = [function.arguments.from_json(text) for text in texts]
    numbers = range(len(rows))
    return {
        ARGUMENTS: _each(function.arguments.from_json, texts),
        BODY: _each(lambda given: _finished(body(**given)), arguments),
        RESULT: _each(lambda value: done(value, function, config), numbers),
        TASK: asyncio.Runner(loop_factory=_loop_factory()).run(_an_asyncio_task(len(rows))),
    }


def _each(call: Callable[[Any], object], values: Sequence[Any]) -> float:
    """Without what the loop itself takes."""
    return _least(lambda: _loop(call, values)) - _least(lambda: _loop(_nothing, values))


def _loop(call: Callable[[Any], object], values: Sequence[Any]) -> float:
    before = time.thread_time()
    for value in values:
        call(value)
    return (time.thread_time() - before) / len(values)


def _least(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(REPEATS))


def _nothing(_: object) -> None:
    pass


def _finished(coroutine: Any) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return


async def _an_asyncio_task(count: int) -> float:
    """Made, run and over. Without its coroutine's frame, which would be there anyhow."""

    async def empty() -> None:
        pass

    async def rounds(start: Callable[[Any], object]) -> float:
        measured = []
        for _ in range(REPEATS):
            before = time.thread_time()
            for _ in range(count):
                start(empty())
            await asyncio.sleep(0)
            measured.append((time.thread_time() - before) / count)
        return min(measured)

    loop = asyncio.get_running_loop()
    return await rounds(lambda coroutine: eager_task(coroutine, loop)) - await rounds(_finished)
