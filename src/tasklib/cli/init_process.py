"""As the first process of a container: reap what other processes leave behind, and run the worker beside it.

Orphans become children of process 1, and stay as zombies until it asks for their exit status. A worker can't ask for
any child's status: it might be that of a process which a task waits for. So process 1 does nothing else, and the
worker is its child.
"""

from __future__ import annotations

import contextlib
import os
import signal

_PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
}
_WATCHED = _PASSED_ON | {signal.SIGCHLD}


def leave_process_1() -> None:
    """Return in a process that is not process 1. Process 1 ends when that one does, with its exit code."""
    if os.getpid() != 1:
        return
    # Blocked, so that none is lost before it is waited for.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    worker = os.fork()
    if worker:
        os._exit(_reap_until_end_of(worker))
    _take_the_terminal()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reap_until_end_of(worker: int) -> int:
    while True:
        number = signal.sigwait(_WATCHED)
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, number)
            continue
        while ended := _one_that_ended():
            pid, status = ended
            if pid == worker:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _one_that_ended() -> tuple[int, int] | None:
    with contextlib.suppress(ChildProcessError):
        pid, status = os.waitpid(-1, os.WNOHANG)
        return (pid, status) if pid else None
    return None


def _take_the_terminal() -> None:
    """Ctrl-C goes to the group in the foreground: that of the worker alone, or it would be told twice."""
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):  # there is no terminal
        ignored = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            os.tcsetpgrp(0, os.getpgrp())
        finally:
            signal.signal(signal.SIGTTOU, ignored)
