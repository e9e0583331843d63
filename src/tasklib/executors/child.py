"""A child process: takes tasks from its worker over a socket, one after the other, until the socket closes.

    python -m tasklib.executors.child <control> <interruptions> <orders ahead> <lifeline>     (descriptors)

The main thread receives the tasks and runs them, so that a signal can interrupt them. A second thread listens on a
socket of its own: it passes cancellation on, and ends everything when the worker is gone. A third socket holds the next
order while a task runs. The worker can take that order back by reading it, as long as it was not read here.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import fcntl
import os
import select
import signal
import socket
import sys
import threading
import time
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, NoReturn, cast

from tasklib import tracing
from tasklib.config import Config
from tasklib.executors.child_imports import import_for, load, unloadable
from tasklib.executors.child_limits import ChildLimits
from tasklib.executors.child_protocol import (
    Cancel,
    LimitBlockAnswer,
    Message,
    Orders,
    Progress,
    Ready,
    RunAttempt,
    Setup,
    Started,
    Took,
    Unloadable,
    packed,
    rebuilt,
    receive,
)
from tasklib.executors.descriptors import open_standard_streams
from tasklib.executors.functions import call, call_async, failed
from tasklib.executors.outcomes import Done, Failed
from tasklib.tasks import registry
from tasklib.tasks.batches import alone
from tasklib.tasks.context import TaskContext
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.hooks import Lifespan

_EXIT_ON_SIGTERM = 128 + signal.SIGTERM


def main() -> None:
    descriptors = [int(number) for number in sys.argv[1:5]]
    open_standard_streams()
    for descriptor in descriptors:  # the task's own subprocesses must not hold them open
        os.set_inheritable(descriptor, False)
    *sockets, lifeline = descriptors
    die_with(lifeline)
    with contextlib.ExitStack() as stack:
        channels = Channels(*(stack.enter_context(socket.socket(fileno=number)) for number in sockets))
        connection = channels.control
        setup = receive(connection)
        if isinstance(setup, Setup):
            become_like_the_worker(setup)
            if (failure := import_for(setup)) is not None:
                connection.sendall(packed(failure))
                return
            connection.sendall(packed(Ready(os.getpid())))
            ChildRunner(channels, setup).serve()


def die_with(lifeline: int) -> None:
    """Have the kernel kill this process group when the other end of the pipe, which the worker holds, is closed.

    The kernel does so even while C code holds the interpreter. PR_SET_PDEATHSIG would as well, but it kills this
    process alone, and often before anything here could kill the subprocesses of its task.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # elsewhere, _listen has to notice
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # closed before we asked
        os._exit(1)


def become_like_the_worker(setup: Setup) -> None:
    """Import from where the worker imports."""
    sys.path[:] = setup.sys_path
    sys.argv[:] = setup.argv
    # PYTHONPATH was only set to find TaskLib; a task's own subprocesses get what the worker had.
    if setup.pythonpath is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = setup.pythonpath


class Channels(NamedTuple):
    """What connects a child with its worker."""

    control: socket.socket
    interruptions: socket.socket
    ahead: socket.socket


class ChildRunner:
    """Runs the tasks that the worker orders."""

    def __init__(self, channels: Channels, setup: Setup) -> None:
        self._connection = channels.control
        self._interruptions = channels.interruptions
        self._orders = Orders(channels.control, channels.ahead)
        self._setup = setup
        # The outcome needs its limits, and nothing here connects.
        self._config = Config(
            "postgresql://", max_payload_bytes=setup.max_payload_bytes, max_error_bytes=setup.max_error_bytes
        )
        self._pid = os.getpid()
        self._sending = threading.Lock()
        self._context: TaskContext | None = None
        self._order: RunAttempt | None = None
        self._limits: ChildLimits | None = None
        self._busy = False
        self._worker_is_gone = False
        self._cancelled = False
        self._interrupted = False
        self._took = 0.0
        self._lifespan = Lifespan("child")
        self._loop_runner: asyncio.Runner | None = None

    def serve(self) -> None:
        """Run tasks until the worker closes the socket."""
        self._catch_sigterm()
        # Processes that a task forks, such as multiprocessing's, die of SIGTERM as usual. It is blocked in between
        # because Python forgets the signals that come before it has put a fork in order.
        os.register_at_fork(before=block_sigterm, after_in_parent=allow_sigterm, after_in_child=self._release_sigterm)
        threading.Thread(target=self._listen, name="tasklib-listen", daemon=True).start()
        try:
            self._run_orders()
        finally:
            self._stop_hooks()

    def _run_orders(self) -> None:
        while isinstance(order := self._orders.receive(), RunAttempt):
            self._busy = True
            if self._worker_is_gone:  # _listen has seen us idle
                break
            self._catch_sigterm()  # the task before may have changed it
            # A copy of the context variables, so that nothing a task sets reaches the next one.
            outcome = contextvars.copy_context().run(self._attempt, order)
            self._finish(outcome)
            if isinstance(outcome, Unloadable):  # the worker ends this process, and the next order is not for it
                break

    def _attempt(self, order: RunAttempt) -> Done | Failed | Unloadable:
        try:
            function = registry.functions.get(order.name) or load(order.name, order.module, self._setup)
            self._start_hooks()
        except BaseException as e:
            return unloadable(e, self._setup)
        if function is None:
            return Failed(
                f"TaskNotFound: importing {order.module} in a child process didn't register the task {order.name!r}. "
                "Define it at the top level of its module, outside of functions and `if __name__ == '__main__':`."
            )
        self._limits = ChildLimits(partial(self._ask, order))
        self._context = context = rebuilt(order.context, order.kwargs, partial(self._report, order), self._limits)
        self._order = order
        if self._cancelled:  # it came while the modules were being imported
            context.cancel()
        tracing.restore(order.trace)
        if order.timeout_seconds is not None:
            context.deadline = time.monotonic() + order.timeout_seconds
        self._send(Started())
        before = time.monotonic()
        outcome = outcome_of(function, order.kwargs, context, self._config, self._loop_runner)
        self._took = time.monotonic() - before
        return outcome

    def _start_hooks(self) -> None:
        """Before the first task, when all modules are imported. What they open lives on a loop that stays."""
        if self._lifespan.is_needed and self._loop_runner is None:
            runner = asyncio.Runner()
            runner.run(self._lifespan.start(), context=contextvars.copy_context())
            self._loop_runner = runner

    def _stop_hooks(self) -> None:
        if self._loop_runner is not None and os.getpid() == self._pid:
            with self._loop_runner as runner:
                runner.run(self._lifespan.stop(), context=contextvars.copy_context())

    def _finish(self, outcome: Done | Failed | Unloadable) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed or replaced by the task: its own business
                stream.flush()
        if os.getpid() != self._pid:
            # A copy of us that the task forked and let return: it must not answer in our name.
            os._exit(1)
        if self._interrupted:
            sys.exit(_EXIT_ON_SIGTERM)
        self._context = self._order = self._limits = None
        self._busy = False
        self._send(Took(self._took), outcome)

    def _listen(self) -> None:
        while isinstance(message := receive(self._interruptions), Cancel | LimitBlockAnswer):
            if isinstance(message, Cancel):
                self._cancel()
            elif (limits := self._limits) is not None:
                limits.answered(message)
        self._worker_is_gone = True
        if self._busy:
            # Another worker will run this task: stop here and now, subprocesses included.
            self._kill_group()

    def _cancel(self) -> None:
        self._cancelled = True
        if (context := self._context) is not None:
            context.cancel()
        # To the main thread by name: only there does a signal interrupt what the task is waiting for.
        signal.pthread_kill(cast("int", threading.main_thread().ident), signal.SIGTERM)

    def _catch_sigterm(self) -> None:
        signal.signal(signal.SIGTERM, self._on_sigterm)
        allow_sigterm()  # the worker's thread may have blocked it, and we inherit that

    def _release_sigterm(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        allow_sigterm()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        # A service manager signals every process of a service. The worker then lets its tasks finish, so only a
        # SIGTERM that it announced counts. And only once: a second one would break into the task's `finally`.
        if self._cancelled and not self._interrupted:
            self._interrupted = True
            sys.exit(_EXIT_ON_SIGTERM)

    def _report(self, order: RunAttempt, text: str) -> None:
        if len(text) > self._setup.max_payload_bytes:
            raise ValueError(
                f"progress takes {len(text):,} characters as JSON; the limit is {self._setup.max_payload_bytes:,} "
                "(max_payload_bytes). Report less, or store it elsewhere."
            )
        if order is not self._order:
            return  # from a thread that an earlier task has left behind
        with contextlib.suppress(OSError):  # the worker is gone; _listen deals with it
            self._send(Progress(text))

    def _ask(self, order: RunAttempt, message: Message) -> None:
        if order is not self._order or os.getpid() != self._pid:
            raise RuntimeError("a limit can be entered only while its task runs, and not in a process that it forked.")
        self._send(message)

    def _send(self, *messages: Message) -> None:
        if os.getpid() == self._pid:
            with self._sending:  # the task's threads may report too
                self._connection.sendall(b"".join(map(packed, messages)))

    def _kill_group(self) -> NoReturn:
        with contextlib.suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)
        os._exit(1)


def block_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def allow_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def outcome_of(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: TaskContext,
    config: Config,
    runner: asyncio.Runner | None = None,
) -> Done | Failed:
    """Call the function here in the main thread, on a loop if it needs one, and say how that ended."""
    alone.set(True)
    try:
        if function.is_async and runner is not None:
            calling = call_async(function, kwargs, lambda: context, config)
            return runner.run(calling, context=contextvars.copy_context())
        if function.is_async:
            return asyncio.run(call_async(function, kwargs, lambda: context, config))
        return call(function, kwargs, lambda: context, config)
    except BaseException as e:  # whatever a task raises, it is the attempt that ends, not the process
        return failed(e, function, config)


if __name__ == "__main__":
    # Under its own name, not as __main__: that name is for the worker's script.
    from tasklib.executors.child import main as _main

    _main()
