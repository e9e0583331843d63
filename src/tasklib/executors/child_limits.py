"""`with limit(...)` in a child process: the child asks its worker, which waits for room and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar

from tasklib.errors import InvalidOption, LimitNotFound, LimitTimeout, TaskLibError, WorkerLost
from tasklib.executors.child_protocol import EnterLimit, LeaveLimit, LimitBlockAnswer, Message
from tasklib.tasks.context import LimitBlockCalls
from tasklib.tasks.limit_blocks import LimitBlock, refusal
from tasklib.tasks.limits import Limit

T = TypeVar("T")
_ERRORS: dict[str, type[TaskLibError]] = {
    kind.__name__: kind for kind in (InvalidOption, LimitNotFound, LimitTimeout, WorkerLost)
}
_numbers = count(1)
"""Tells apart the blocks of all attempts in this child, so that a late answer reaches no other attempt."""


class ChildLimits:
    """The child's end, for one attempt."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._asked: dict[int, Future[None]] = {}

    async def enter_limit(self, wanted: LimitBlock, nested: int) -> int:
        number = next(_numbers)
        rule = wanted.rule.stored()
        asked = EnterLimit(number, wanted.name, wanted.key, wanted.cost, wanted.timeout, rule, nested)
        try:
            await self._ask(asked)
        except asyncio.CancelledError:
            self._send(LeaveLimit(number))  # the worker stops waiting, and gives back what it got meanwhile
            raise
        return number

    async def leave_limit(self, wanted: LimitBlock, block: int) -> None:
        await self._ask(LeaveLimit(block))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """For sync functions: on a loop of its own, which is not made the thread's loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                return runner.run(work)
        work.close()
        raise RuntimeError("this would block the loop of the task. In an async function, write `async with`.")

    def answered(self, answer: LimitBlockAnswer) -> None:
        """From the thread that listens to the worker."""
        asked = self._asked.pop(answer.number, None)
        if asked is None or not asked.set_running_or_notify_cancel():
            return
        if answer.error is None:
            asked.set_result(None)
        else:
            asked.set_exception(_rebuilt(answer))

    async def _ask(self, message: EnterLimit | LeaveLimit) -> None:
        self._asked[message.number] = asked = Future[None]()
        self._send(message)
        await asyncio.wrap_future(asked)


class LimitRelay:
    """The worker's end, for one attempt: asks in the name of the child. Everything here runs on the worker's loop."""

    def __init__(self, name: str, calls: LimitBlockCalls | None, answer: Callable[[Message], None]) -> None:
        self._name = name
        self._calls = calls
        self._answer = answer
        self._blocks: dict[int, tuple[LimitBlock, asyncio.Task[int | None]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def heard(self, message: EnterLimit | LeaveLimit) -> None:
        if isinstance(message, EnterLimit):
            declared = Limit(message.name, **message.rule)
            wanted = LimitBlock(declared, message.key or None, message.cost, message.timeout)
            entering = asyncio.create_task(self._enter(message.number, wanted, message.nested))
            self._blocks[message.number] = wanted, entering
        elif (known := self._blocks.pop(message.number, None)) is not None:
            leaving = asyncio.create_task(self._leave(message.number, *known))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def close(self) -> None:
        """The attempt has ended: its blocks wait no longer. The places that it holds are free with its lease."""
        for _, entering in self._blocks.values():
            entering.cancel()

    async def _enter(self, number: int, wanted: LimitBlock, nested: int) -> int | None:
        try:
            if self._calls is None:
                raise refusal(self._name, wanted.name)
            block = await self._calls.enter_limit(wanted, nested)
        except Exception as e:
            self._answer(_described(number, e))
            return None
        self._answer(LimitBlockAnswer(number))
        return block

    async def _leave(self, number: int, wanted: LimitBlock, entering: asyncio.Task[int | None]) -> None:
        entering.cancel()  # of a block that was given up while it waited
        await asyncio.wait([entering])
        block = None if entering.cancelled() else entering.result()
        try:
            if block is not None and self._calls is not None:
                await self._calls.leave_limit(wanted, block)
        except Exception as e:
            self._answer(_described(number, e))
        else:
            self._answer(LimitBlockAnswer(number))


def _described(number: int, error: Exception) -> LimitBlockAnswer:
    if (kind := type(error).__name__) in _ERRORS:
        return LimitBlockAnswer(number, kind, str(error), vars(error))
    return LimitBlockAnswer(number, WorkerLost.__name__, str(error))


def _rebuilt(answer: LimitBlockAnswer) -> TaskLibError:
    """The same error without its constructor, which makes the text of parts that only the worker knows."""
    kind = _ERRORS[answer.error or ""]
    error = kind.__new__(kind)
    error.args = (answer.text,)
    vars(error).update(answer.attributes)
    return error
