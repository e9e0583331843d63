"""Commands that clean up after themselves: SIGTERM is like Ctrl-C, and cleaning up is not interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP clean up like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # nohup has a terminal's end ignored.
    hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    numbers = (signal.SIGINT, signal.SIGTERM, *hang_up)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def no_more_interruptions() -> None:
    """A second Ctrl-C would only leave a mess; clearing takes a few seconds at most."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
