"""An exception as text, whatever its class does when it is formatted.

`__str__`, `__getattr__`, `__notes__`, `__cause__` and the like are a task's own code and may raise anything. So each
step that runs such code has a plainer one behind it, and the last reads only what the interpreter itself keeps.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from types import CodeType, TracebackType

from tasklib.tasks.unstorable import storable_text

_MOST_EXCEPTIONS = 10_000
"""In one chain of causes and groups; a longer one, or one that makes itself up as it is read, is shown without it."""
_MOST_LEAVES = 5
_LONGEST_MESSAGE = 120
"""Of a group and of each of its leaves, so that their line fits into the 1,000 characters a fingerprint looks at."""
_DIGITS = re.compile(r"\d+")

# Straight from the interpreter: a class or a metaclass can't get in between.
_qualname_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__
_traceback_of = BaseException.__dict__["__traceback__"].__get__
_message_of_group = BaseExceptionGroup.__dict__["message"].__get__
_members_of_group = BaseExceptionGroup.__dict__["exceptions"].__get__


def error_text(error: BaseException, limit: int, ours: tuple[str, ...] = ("tasklib",)) -> str:
    """The traceback below the frames of these packages. Its last line says what happened. Never raises."""
    for step in (_whole, _plain):
        try:
            return storable_text(step(error, ours), limit)
        except BaseException:
            continue
    return class_name(error)


def class_name(error: BaseException) -> str:
    """The name of the exception's class, without its module."""
    return str(_qualname_of(type(error)))


def _whole(error: BaseException, ours: tuple[str, ...]) -> str:
    """What Python would print; below that of a group a line with its leaves, because lists show the last line."""
    _require_an_end(error)
    text = "".join(traceback.format_exception(type(error), error, _below(error, ours))).rstrip()
    return f"{text}\n{headline(error)}" if issubclass(type(error), BaseExceptionGroup) else text


def _plain(error: BaseException, ours: tuple[str, ...]) -> str:
    """The frames and what happened, without causes and notes."""
    last_line = headline(error)
    try:
        frames = "".join(traceback.format_tb(_below(error, ours)))  # reads source files, through loaders of any kind
    except BaseException:
        return last_line
    return f"Traceback (most recent call last):\n{frames}{last_line}" if frames else last_line


def _below(error: BaseException, ours: tuple[str, ...]) -> TracebackType | None:
    tb: TracebackType | None = _traceback_of(error)
    while tb is not None:
        module = tb.tb_frame.f_globals.get("__name__")
        if not isinstance(module, str) or module.partition(".")[0] not in ours:
            break
        tb = tb.tb_next
    return tb


def _require_an_end(error: BaseException) -> None:
    """RecursionError if there is no end to what this exception was caused by and contains."""
    seen = {id(error): error}  # with the exceptions themselves: the id of one that is gone may be another's
    waiting = [error]
    while waiting:
        one = waiting.pop()
        members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        for other in (one.__cause__, one.__context__, *members):
            if other is not None and id(other) not in seen:
                seen[id(other)] = other
                waiting.append(other)
        if len(seen) > _MOST_EXCEPTIONS:
            raise RecursionError


def code_of_frames(error: BaseException) -> Iterator[CodeType]:
    """The code that the exception came through, from where it was caught to where it was raised."""
    tb: TracebackType | None = _traceback_of(error)
    while tb is not None:
        yield tb.tb_frame.f_code
        tb = tb.tb_next


def headline(error: BaseException) -> str:
    """The class and the message, of a group also its leaves."""
    if not issubclass(type(error), BaseExceptionGroup):
        return _named(error, _message(error))
    group = _named(error, _short(_message_of_group(error)))
    # In an order, and without repetitions, that don't depend on which of them failed first, and on what number.
    leaves = {_DIGITS.sub("#", text): text for text in sorted(_leaves(error), reverse=True)}
    shown = [leaves[key] for key in sorted(leaves)[:_MOST_LEAVES]]
    more = f"; and {len(leaves) - len(shown)} more" if len(leaves) > len(shown) else ""
    return f"{group}: {'; '.join(shown)}{more}"


def _leaves(group: BaseException) -> Iterator[str]:
    waiting = [group]
    for _ in range(_MOST_EXCEPTIONS):
        if not waiting:
            return
        one = waiting.pop()
        if issubclass(type(one), BaseExceptionGroup):
            waiting += reversed(_members_of_group(one))
        else:
            yield _named(one, _short(_message(one)))


def _named(error: BaseException, message: str) -> str:
    module, name = _module_of(type(error)), class_name(error)
    if isinstance(module, str) and module not in ("__main__", "builtins"):
        name = f"{module}.{name}"
    return f"{name}: {message}" if message else name


def _message(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # of a subclass of str, too, only the characters
    except BaseException as e:
        return f"<its message can't be shown: str() raised {class_name(e)}>"


def _short(message: str) -> str:
    lines = str.__str__(message).strip().splitlines()
    first = lines[0] if lines else ""
    return first if len(first) <= _LONGEST_MESSAGE else first[: _LONGEST_MESSAGE - 1] + "…"
