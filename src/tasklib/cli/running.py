"""Running a worker as a process: its event loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable, Iterator

from tasklib.events import Event, WorkerStarted
from tasklib.worker.worker import Worker

# A closed terminal hangs up: its worker gives its tasks back like any other, unless nohup said not to listen.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(worker: Worker) -> None:
    """Run the worker until its work is done or a signal has ended it."""
    _spare_the_collector()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(worker))


async def serve(worker: Worker) -> None:
    """The first signal drains the worker, the second makes it give everything back, further ones change nothing."""
    started = asyncio.Event()
    signalled = asyncio.Event()

    def watch(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            started.set()

    def on_signal() -> None:
        signalled.set()
        if started.is_set():
            worker.stop()
        else:
            running.cancel()  # still connecting: there is nothing to drain

    worker.events.subscribe(watch, routine=False)
    running = asyncio.create_task(worker.run())
    with handled(on_signal):
        try:
            await running
        except asyncio.CancelledError:
            if not signalled.is_set():
                raise


@contextlib.contextmanager
def handled(on_signal: Callable[[], None]) -> Iterator[None]:
    """Call this on each stop signal; afterwards signals do again what they did."""
    loop = asyncio.get_running_loop()
    taken = [s for s in STOP_SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]
    for number in taken:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def _spare_the_collector() -> None:
    """Look for garbage less often, and never in what was imported: it took a third of a short task's time."""
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
