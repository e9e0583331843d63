"""`tasklib worker --processes N`: several worker processes under one supervisor, since one Python process is one core.

The supervisor imports no tasks and has no connection. It starts the workers, starts those anew that crash, and passes
signals on. Each worker holds the reading end of a pipe whose writing end only the supervisor has: if the supervisor is
killed, the pipe ends, and the workers stop as after a signal. So none is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterator, Mapping, Sequence

import typer

from tasklib.cli.report import note, show_error
from tasklib.errors import TaskLibError
from tasklib.worker.signals import stop_signals

PIPE = "TASKLIB_SUPERVISOR_PIPE"
"""The variable that tells a worker the number of its end of the pipe."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
STEADY_SECONDS = 60.0
"""A worker that ran for this long is started anew without a growing pause."""
CANT_START = 2
"""The exit code of a worker that can't start with these modules or settings. It is not started again."""


class Processes:
    """Runs as many workers as there are commands, until all have ended."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        environment: Mapping[str, str],
        *,
        first_pause: float = FIRST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands
        self._environment = environment
        self._first_pause = first_pause
        self._clock = clock
        self._children: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._signals = 0
        self._codes: dict[int, int] = {}

    async def run(self) -> int:
        """The exit code: 0 if all workers ended well, else that of the first one in order that did not."""
        theirs, ours = os.pipe()
        try:
            with stop_signals(self._on_signal):
                await asyncio.gather(*(self._keep(number, theirs) for number in range(len(self._commands))))
        finally:
            os.close(ours)
            os.close(theirs)
        return next((self._codes[n] for n in sorted(self._codes) if self._codes[n]), 0)

    async def _keep(self, number: int, pipe: int) -> None:
        """Run one worker, and start it anew after each crash. One that ends well was drained, or had no more to do."""
        crashes = 0
        while not self._stopping.is_set():
            began = self._clock()
            code = self._codes[number] = await self._one_run(number, pipe)
            if code == 0 or self._stopping.is_set():
                return
            if code == CANT_START:  # it has said why
                self._stop()
                return
            crashes = 0 if self._clock() - began > STEADY_SECONDS else crashes + 1
            pause = min(self._first_pause * 2 ** max(0, crashes - 1), LONGEST_PAUSE)
            note(f"worker process {number + 1} ended with {code}; it starts again in {pause:g} s", "yellow")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _one_run(self, number: int, pipe: int) -> int:
        # A process group of its own: the terminal's Ctrl-C reaches the child through us, once. No stdin, as a process
        # in the background that reads the terminal is stopped.
        child = await asyncio.create_subprocess_exec(
            *self._commands[number],
            env={**self._environment, PIPE: str(pipe)},
            stdin=DEVNULL,
            process_group=0,
            pass_fds=(pipe,),
        )
        self._children[number] = child
        for _ in range(self._signals):  # they came too early for it
            self._signal(child)
        code = await child.wait()
        del self._children[number]
        if self._stopping.is_set() and code == -signal.SIGTERM:
            return 0  # it was stopped before it could listen to signals
        return code if code >= 0 else 128 - code

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for child in self._children.values():
            self._signal(child)

    def _signal(self, child: Process) -> None:
        """The first signal lets tasks finish, the second makes the worker release them, the third kills it."""
        signal_child(child, signal.SIGKILL if self._signals > 2 else signal.SIGTERM)


def signal_child(child: Process, number: signal.Signals) -> None:
    """Send a signal to a child that hasn't ended.

    Not `child.send_signal`: before Python 3.12.8 it looks for the exit code of a child that has just ended, and then
    `child.wait` finds none and says 255.
    """
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)


@contextlib.contextmanager
def said_to_supervisor() -> Iterator[None]:
    """In a worker under a supervisor: an error in this block means that it can't be started at all."""
    is_supervised = PIPE in os.environ
    try:
        yield
    except TaskLibError as e:
        if not is_supervised:
            raise
        show_error(e)
        raise typer.Exit(CANT_START) from None


def end_with_supervisor() -> None:
    """In a worker under a supervisor: stop, as after a signal, when the supervisor has ended."""
    number = os.environ.pop(PIPE, None)
    if number is None:
        return
    pipe = int(number)
    os.set_inheritable(pipe, False)
    threading.Thread(target=_wait_for_end, args=(pipe,), name="tasklib supervisor pipe", daemon=True).start()


def _wait_for_end(pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written
    os.kill(os.getpid(), signal.SIGTERM)
