"""The template: imports the task modules once, then forks child processes, which cost milliseconds and share memory.

    python -m tasklib.executors.template <control's descriptor> <lifeline's descriptor>

It has one thread, no event loop and no connection, and runs no task. Its worker asks over a socket that keeps
messages apart: to fork a child, whose own sockets and lifeline come along, or for the exit status of one that died.
What happens to the template doesn't touch the children: each speaks with the worker through its own sockets.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import random
import signal
import socket
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any, NoReturn

from tasklib.executors.child import Channels, ChildRunner, become_like_the_worker, die_with
from tasklib.executors.child_imports import import_for
from tasklib.executors.child_protocol import (
    EXIT_CODE,
    EXIT_CODE_OF,
    FORK,
    Message,
    NotForked,
    Ready,
    Setup,
    Unforkable,
    packed,
    receive,
)
from tasklib.executors.descriptors import open_standard_streams

_SERVICE_SIGNALS: dict[signal.Signals, Any] = {
    # A service manager signals every process of a service; the worker decides what ends when.
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


@dataclass(frozen=True, slots=True)
class ChildStart:
    """What a child has from its worker."""

    channels: Channels
    lifeline: int
    setup: Setup


def main() -> None:
    control, lifeline = int(sys.argv[1]), int(sys.argv[2])
    open_standard_streams()
    for descriptor in (control, lifeline):
        os.set_inheritable(descriptor, False)
    die_with(lifeline)
    for number in _SERVICE_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=control) as requests:
        forked = serve(requests)
    if forked is not None:
        os.close(lifeline)
        become_a_child(forked)


def serve(requests: socket.socket) -> ChildStart | None:
    """Answer until the worker is gone. Returns in every child as well, with what is the child's."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, 64, 4, socket.MSG_CMSG_CLOEXEC)
        if not request:
            return None
        if request != FORK:
            (pid,) = EXIT_CODE_OF.unpack(request)
            with contextlib.suppress(ChildProcessError):  # no child of ours: there is nothing to say
                requests.send(EXIT_CODE.pack(pid, exit_code(pid)))
            continue
        *sockets, lifeline = descriptors
        channels = Channels(*(socket.socket(fileno=descriptor) for descriptor in sockets))
        setup = receive(channels.control)
        if isinstance(setup, Setup) and fork(channels.control, setup):
            return ChildStart(channels, lifeline, setup)
        for channel in channels:
            channel.close()
        os.close(lifeline)


def fork(connection: socket.socket, setup: Setup) -> bool:
    """Fork a child and report the result to the worker. True in the child only."""
    become_like_the_worker(setup)
    if (failure := import_for(setup)) is not None:
        _tell(connection, failure)
        sys.exit()  # what is imported halfway is no base for a child
    try:
        if (reason := why_not_to_fork()) is not None:
            _tell(connection, Unforkable(reason))
            return False
        _put_memory_in_order()
        pid = os.fork()
    except OSError as e:
        _tell(connection, NotForked(str(e)))
        return False
    if pid == 0:
        return True
    _tell(connection, Ready(pid))
    return False


def why_not_to_fork() -> str | None:
    """A thread is not copied by a fork, but a lock it holds is: code that needs the lock would wait for ever."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"importing the modules has started threads: {', '.join(others)}"
    if _native_threads() > 1:
        # Libraries made for this, such as OpenBLAS, put their threads away before a fork: see whether they did.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    if (count := _native_threads()) > 1:
        return f"importing the modules has started {count - 1} threads in native code"
    return None


def become_a_child(forked: ChildStart) -> None:
    """Be a process of its own, with nothing of the template's but what it has imported."""
    os.setsid()
    die_with(forked.lifeline)
    for number, usual in _SERVICE_SIGNALS.items():
        if signal.getsignal(number) is signal.SIG_IGN:  # else a module has set its own
            signal.signal(number, usual)
    # What the modules want done at exit is the template's to do: a directory that the first child removed would be
    # missing in the others.
    atexit._clear()
    if "logging" in sys.modules:
        atexit.register(sys.modules["logging"].shutdown)
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    leave(_served(forked))


def _served(forked: ChildStart) -> int:
    """Run tasks; the exit code."""
    try:
        ChildRunner(forked.channels, forked.setup).serve()
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    return 0


def leave(code: int) -> NoReturn:
    """End as the interpreter would, but leave its memory to the kernel: taking it apart would first copy all of it."""
    # Private, because the interpreter alone is expected to end: it joins the threads that are left.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _flush()
    os._exit(code)


def exit_code(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _put_memory_in_order() -> None:
    """Children share what the collector leaves alone; and nothing that is printed should be printed twice."""
    if not gc.get_freeze_count():
        gc.collect()
    gc.freeze()
    _flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or replaced by a module: its own business
            stream.flush()


def _native_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def _tell(connection: socket.socket, message: Message) -> None:
    with contextlib.suppress(OSError):  # the worker no longer wants the child; a forked one ends by its lifeline
        connection.sendall(packed(message))


if __name__ == "__main__":
    # Under its own name, not as __main__: that name is for the worker's script.
    from tasklib.executors.template import main as _main

    _main()
