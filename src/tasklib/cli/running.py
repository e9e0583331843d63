"""Running a worker as a process of its own: its event loop and its memory. Its signals are the worker's own affair."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

from tasklib.worker.worker import Worker


def run(worker: Worker) -> None:
    """Run the worker until its work is done or a signal has ended it."""
    _spare_the_collector()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(worker.run())


def _spare_the_collector() -> None:
    """Collect garbage less often, and never scan imported objects: that took a third of a short task's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's if it is installed; it is quicker."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
