"""Reads what the recorder has logged."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

OTHER_DUTIES = ("overdue", "gates", "snapshot", "tallies", "stats", "idempotency", "dead_letters", "retention")
"""Modules of maintenance/ that a sweep also runs, and that no recovery needs."""

_IS_OTHER_DUTY = re.compile(rf"maintenance/({'|'.join(OTHER_DUTIES)})\.py:")
_IS_IMPORT = ":<module>"
_HAS_NO_NAME = re.compile(r"(\.<locals>\.|(?<=:))<(lambda|listcomp|setcomp|dictcomp|genexpr)>$")

Stack: TypeAlias = tuple[str, ...]
"""A function that was entered, its caller, the caller's caller."""


@dataclass(frozen=True)
class Window:
    """From a trigger to its result, in nanoseconds of the monotonic clock."""

    begin: int
    end: int


@dataclass
class Entered:
    """What was entered in every window: `file:function`, in the order of the first window."""

    functions: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(function.partition(":")[0] for function in self.functions))


class Log:
    """The file that all measured processes append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def wait_until_quiet(self, seconds: float = 0.4, limit: float = 1.5) -> None:
        """Wait until the processes have entered nothing for a while, or only what they do ten times a second."""
        deadline = time.monotonic() + limit
        size, since = -1, time.monotonic()
        while time.monotonic() - since < seconds and time.monotonic() < deadline:
            if (now := self.path.stat().st_size) != size:
                size, since = now, time.monotonic()
            time.sleep(0.02)

    def entered(
        self, windows: Sequence[Window], roles: Sequence[str], idle: Window | None = None, *, duties: bool = False
    ) -> Entered:
        """What these roles entered in every one of the windows: what happened beside it by chance is not in all.

        A stack that the idle processes go through too, such as that of a timer, doesn't count for itself; with
        `duties`, those of the leader's duties do.
        """
        lines = list(self._lines(roles))
        timers = {
            stack for at, stack in lines if idle and idle.begin <= at <= idle.end and not (duties and _is_duty(stack))
        }
        rounds = [
            _counted([stack for at, stack in lines if window.begin <= at <= window.end], timers) for window in windows
        ]
        return Entered([name for name in rounds[0] if all(name in other for other in rounds[1:])])

    def _lines(self, roles: Sequence[str]) -> Iterator[tuple[int, Stack]]:
        for line in self.path.read_text().splitlines():
            at, role, text = line.split("\t")
            if role in roles and _IS_IMPORT not in text:
                stack = tuple(map(_named, text.split(";")))
                if not any(_IS_OTHER_DUTY.match(name) for name in stack):
                    yield int(at), stack


def _counted(stacks: list[Stack], timers: set[Stack]) -> list[str]:
    """The functions on the stacks that are not a timer's, if they were entered and not only returned to."""
    on_path = {name for stack in stacks if stack not in timers for name in stack}
    return list(dict.fromkeys(stack[0] for stack in stacks if stack[0] in on_path))


def _is_duty(stack: Stack) -> bool:
    return any(name.startswith("maintenance/") for name in stack)


def _named(function: str) -> str:
    """A lambda or a comprehension belongs to the function that it is written in."""
    while _HAS_NO_NAME.search(function):
        function = _HAS_NO_NAME.sub("", function)
    return function
