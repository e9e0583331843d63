"""The error of a task as an exception again, from the traceback that its row keeps."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from typing import Any

from tasklib.celery.exceptions import CeleryReject, CeleryTaskError

_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?(.*))?$", re.DOTALL)
_UPSTREAM = re.compile(r"^UpstreamFailed: cancelled because .* \(task ([0-9a-f-]{36})\)")
_EXPIRED = "TaskRevokedError: expired"


class RemoteError(CeleryTaskError):
    """What a task raised whose class this program doesn't know, or can't make."""


def exception_of(error: str | None) -> BaseException:
    """The exception that a traceback ends with: of its own class if that is imported here, with its message."""
    name, message = raised(error or "")
    if name == "tasklib.Reject":  # what Celery's Reject has become on the worker
        return CeleryReject(message)
    kind = _class(name)
    if kind is not None:
        try:
            return kind(*_arguments(kind, message))
        except Exception:  # its constructor wants something else
            made: BaseException = kind.__new__(kind)
            made.args = (message,)
            return made
    return RemoteError(f"{name}: {message}" if message else name)


def _arguments(kind: type[BaseException], message: str) -> tuple[Any, ...]:
    """What the exception was made with, as far as its message shows it: Python prints several as their tuple."""
    if not message:
        return ()
    if kind.__str__ in (BaseException.__str__, KeyError.__str__):
        try:
            value = ast.literal_eval(message)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return (message,)
        if isinstance(value, tuple) and len(value) > 1:
            return value
        if kind.__str__ is KeyError.__str__:
            return (value,)
    return (message,)


def raised(error: str) -> tuple[str, str]:
    """The name of the class and the message, from the end of a traceback."""
    lines = error.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    start = frames[-1] + 1 if frames else 0
    for number in range(start, len(lines)):
        if not lines[number].startswith(" ") and (match := _RAISED.match(lines[number])):
            return match[1], "\n".join([match[2] or "", *lines[number + 1 :]]).rstrip()
    return "Exception", error


def upstream_of(error: str | None) -> str | None:
    """The id of the task because of which this one was cancelled."""
    match = _UPSTREAM.match(error or "")
    return match[1] if match else None


def is_expired(error: str | None) -> bool:
    """Whether the task was too late."""
    return bool(error) and str(error).rstrip().endswith(_EXPIRED)


def _class(path: str) -> type[BaseException] | None:
    """A class of exceptions that is imported here. Nothing is imported for it."""
    module, _, name = path.rpartition(".")
    found: Any = getattr(builtins, name, None) if not module else getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
