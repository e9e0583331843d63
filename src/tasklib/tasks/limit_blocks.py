"""`limit(...)` in the code of a task: a place, or a start, of a limit for as long as a block runs."""

from __future__ import annotations

import math
from contextvars import ContextVar
from types import TracebackType

from tasklib.errors import InvalidOption
from tasklib.tasks.context import LimitBlockCalls, current_task
from tasklib.tasks.limits import Limit, Rule, check_cost

_around: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("tasklib_limits_around", default=())
"""The limits, each with its key, whose blocks are around what runs here."""


def limit(
    which: str | Limit, /, *, key: object = None, cost: int | None = None, timeout: float | None = None
) -> LimitBlock:
    """Enter a block only while a limit has room, over the whole fleet; the room is given back when the block ends.

    async with limit("stripe", key=account):     # `with` in a sync function
        await charge(account)

    Of `max_running` the block holds a place until it ends, or its attempt does: a lost worker holds nothing. Of a rate
    it uses `cost` starts. While it waits, the task keeps its slot, and its timeout runs. After `timeout` seconds
    LimitTimeout is raised. Given as `Limit("stripe", max_running=5)`, the limit is stored when it is first used here.
    """
    return LimitBlock(which, key, cost, timeout)


class LimitBlock:
    """A block of code behind a limit. For one block at a time."""

    def __init__(self, which: str | Limit, key: object, cost: int | None, timeout: float | None) -> None:
        declared = which if isinstance(which, Limit) else Limit(which) if isinstance(which, str) else None
        if declared is None or declared.name is None:
            raise InvalidOption(f"limit() takes the name of a limit, or a Limit that has one, not {which!r}.")
        if timeout is not None and not (isinstance(timeout, int | float) and 0 <= timeout < math.inf):
            raise InvalidOption(f"timeout must be a number of seconds, at least 0, not {timeout!r}.")
        check_cost(cost)
        self.name: str = declared.name
        self.rule: Rule = declared.rule
        self.key = "" if key is None else str(key)
        self.cost = declared.cost if cost is None else cost
        self.timeout = timeout
        self._entered: tuple[LimitBlockCalls, int] | None = None

    async def __aenter__(self) -> None:
        calls = self._calls()
        self._enter(calls, await calls.enter_limit(self, self._nested()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        calls, block = self._exit()
        await calls.leave_limit(self, block)

    def __enter__(self) -> None:
        calls = self._calls()
        self._enter(calls, calls.wait(calls.enter_limit(self, self._nested())))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        calls, block = self._exit()
        calls.wait(calls.leave_limit(self, block))

    def _calls(self) -> LimitBlockCalls:
        if self._entered is not None:
            raise RuntimeError("this block has been entered already: call limit(...) again for each block.")
        context = current_task()
        calls = context._limits
        if calls is None:
            raise refusal(context.name, self.name)
        return calls

    def _nested(self) -> int:
        return _around.get().count((self.name, self.key))

    def _enter(self, calls: LimitBlockCalls, block: int) -> None:
        self._entered = calls, block
        _around.set((*_around.get(), (self.name, self.key)))

    def _exit(self) -> tuple[LimitBlockCalls, int]:
        assert self._entered is not None
        entered, self._entered = self._entered, None
        around = list(_around.get())
        if (this := (self.name, self.key)) in around:
            around.remove(this)
        _around.set(tuple(around))
        return entered


def refusal(task: str, limit_name: str) -> InvalidOption:
    """There is no worker to ask."""
    return InvalidOption(
        f"{task} can't enter a limit here: that takes a worker. Limit the whole task: "
        f"@task(limits=[Limit({limit_name!r})])."
    )
