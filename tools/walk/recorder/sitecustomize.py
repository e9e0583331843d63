"""Python imports this at the start of each measured process, because its folder is on PYTHONPATH.

It logs every function of the measured source that is entered or, for a coroutine, resumed, in any thread:

    nanoseconds (monotonic, the same clock in all processes) <tab> role <tab> function;its caller;the caller's caller
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import CodeType, FrameType

_LOG = os.environ.get("WALK_LOG", "")
_SOURCE = os.environ.get("WALK_SOURCE", "")
_ROLE = os.environ.get("WALK_ROLE", "")
_names: dict[CodeType, str] = {}


def _name(frame: FrameType) -> str:
    """`worker/claimer.py:Claimer.run`, or nothing for code from elsewhere and for the program's own main module."""
    code = frame.f_code
    if (name := _names.get(code)) is None:
        ours = code.co_filename.startswith(_SOURCE)
        name = f"{code.co_filename[len(_SOURCE) :]}:{code.co_qualname}" if ours else ""
        if code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            name = ""
        _names[code] = name
    return name


def _entered(frame: FrameType, event: str, _: object) -> None:
    if event != "call" or not (name := _name(frame)):
        return
    stack = [name]
    above = frame.f_back
    while above is not None:
        if caller := _name(above):
            stack.append(caller)
        above = above.f_back
    # Opened anew for each line: a child process closes the descriptors that it doesn't know.
    log = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, f"{time.monotonic_ns()}\t{_ROLE}\t{';'.join(stack)}\n".encode())
    finally:
        os.close(log)


if _LOG and _SOURCE:
    threading.setprofile(_entered)
    sys.setprofile(_entered)
