"""The signals that stop a worker, wherever it runs: in the command, in `run_sync()`, in a loop of the program's own."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# A closed terminal hangs up: its worker gives its tasks back like any other, unless nohup said not to listen.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_listeners: list[Callable[[], None]] = []
"""Several workers may run on one loop: a signal is for all of them."""
_replaced: dict[signal.Signals, Any] = {}
"""What each signal that we handle did before."""


@contextmanager
def stop_signals(on_signal: Callable[[], None]) -> Iterator[None]:
    """Call this on each stop signal while the block runs; afterwards signals do again what they did.

    A signal for which the program has a handler of its own, or which it ignores, is left alone. Outside of the main
    thread, where Python delivers no signals, nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    _listeners.append(on_signal)
    for number in STOP_SIGNALS:
        if number not in _replaced and _is_free(signal.getsignal(number)):
            _replaced[number] = signal.getsignal(number)
            loop.add_signal_handler(number, _tell)
    try:
        yield
    finally:
        _listeners.remove(on_signal)
        if not _listeners:
            while _replaced:
                number, before = _replaced.popitem()
                loop.remove_signal_handler(number)
                signal.signal(number, before)


def _tell() -> None:
    for on_signal in list(_listeners):
        on_signal()


def _is_free(handler: Any) -> bool:
    """True if the signal does what it does in every program: end it, or raise KeyboardInterrupt."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # asyncio.run() puts a handler of its own on SIGINT, which cancels the main task.
    function = handler.func if isinstance(handler, functools.partial) else handler
    return isinstance(getattr(function, "__self__", None), asyncio.Runner)
