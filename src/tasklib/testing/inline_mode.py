"""`inline()`: submitting a task runs it here and now, without a database.

Everything of a task is as on a worker (arguments checked and taken through JSON, `current_task()`, the result stored
as JSON) except what needs time or other processes: delays, timeouts, retries, priorities and executors don't count.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar
from uuid import UUID

from tasklib.client.async_clients import AsyncClient
from tasklib.client.clients import Client
from tasklib.client.default import standing_in
from tasklib.config import Config
from tasklib.errors import TaskLibError
from tasklib.store.submit import NewTask
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.signature import CONNECTION
from tasklib.tasks.submitter import Submission
from tasklib.testing.inline_clients import InlineAsyncClient, InlineClient
from tasklib.testing.inline_durable import InlineJournal, answers_of
from tasklib.testing.inline_flows import InlineCallsOfTask, InlineChildren, InlineFlow
from tasklib.testing.inline_task import InlineTask
from tasklib.testing.loops import run_blocking

T = TypeVar("T")

_NO_DATABASE = Config("postgresql://nobody@inline-mode.invalid/none")


def inline(
    *,
    raise_errors: bool = True,
    connection: Any = None,
    signals: Mapping[str, Sequence[Any]] | None = None,
    approvals: Mapping[str, Sequence[Any]] | None = None,
) -> Inline:
    """Run tasks where they are submitted, until the block ends.

    with inline() as ran:                   # or: async with inline() as ran:
        send_email.submit_sync(to="a@example.com")
    assert ran.tasks[0].kwargs == {"to": "a@example.com"}

    It holds for the module-level calls (`submit_task`, `.submit()`, ...) in every thread of this process. What a task
    raises comes out of the call that submitted it; with `raise_errors=False` it is recorded instead, as the error of
    a task that has no retries left. Transactional tasks and steps receive `connection`.

    Durable functions run to the end at once: they skip the time of their sleeps, and each gets the `signals` given
    here, such as `{"paid": [{"amount": 5}]}`, and `approvals`: `{"pay-out": [True]}`, False to reject, or what is
    filled in. Waiting for another one ends at its timeout. What they gather runs before they go on, and what a task
    spawns runs at once. The tasks of a flow run in the order of its nodes.
    """
    given = {**(signals or {}), **answers_of(approvals or {})}
    return Inline(raise_errors=raise_errors, connection=connection, signals=given)


class Inline:
    """Inline mode while it is active, and afterwards a list of what was submitted in it."""

    def __init__(
        self,
        *,
        raise_errors: bool = True,
        connection: Any = None,
        signals: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.tasks: list[InlineTask] = []
        """What was submitted, in order; a task that another one submits comes after it."""
        self._raise_errors = raise_errors
        self._connection = connection
        self._signals = signals or {}
        self.flows: dict[str, InlineFlow] = {}
        self._by_id: dict[UUID, InlineTask] = {}
        self._by_key: dict[tuple[str, str], InlineTask] = {}
        self._exit = ExitStack()

    def __enter__(self) -> Inline:
        self._exit.enter_context(standing_in(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    async def __aenter__(self) -> Inline:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def client(self, config: Config | None) -> Client:
        """The client behind the blocking calls."""
        return InlineClient(config or _NO_DATABASE, self)

    def async_client(self, config: Config | None) -> AsyncClient:
        """The client behind the awaitable calls."""
        return InlineAsyncClient(config or _NO_DATABASE, self)

    def accept(self, new: NewTask, item: Submission) -> tuple[InlineTask, bool]:
        """Record a submission. False beside the task: it was there already, under the same idempotency key."""
        task = InlineTask.of(new, item)
        if new.terms.idempotency_key is not None:
            first = self._by_key.setdefault((new.terms.name, new.terms.idempotency_key), task)
            if first is not task:
                return first, False
        self.tasks.append(task)
        self._by_id[task.id] = task
        return task, True

    def find(self, task_id: UUID) -> InlineTask | None:
        return self._by_id.get(task_id)

    def run(self, task: InlineTask, config: Config, *, raise_errors: bool = True) -> None:
        """Run a task for a blocking call."""
        __tracebackhide__ = True
        function = task.function
        if function is None or not self._is_ready(task, config):  # registered elsewhere, and that is not here
            return
        injected, journal = self.injected(function), self._journal(function, config)
        try:
            if function.is_async:
                ended = self.until_done(lambda: task.call_async(config, injected, journal))
            else:
                # A context of its own: what the task sets there, current_task() included, ends with it.
                ended = contextvars.copy_context().run(task.call, config, injected, journal)
        except BaseException as e:  # interrupted
            ended = e
        self._end(task, ended, config, raise_errors=raise_errors)

    async def run_async(self, task: InlineTask, config: Config, *, raise_errors: bool = True) -> None:
        """Run a task for an awaitable call: an async function on this loop, a sync one in a thread."""
        __tracebackhide__ = True
        function = task.function
        if function is None or not self._is_ready(task, config):
            return
        injected, journal = self.injected(function), self._journal(function, config)
        try:
            if function.is_async:
                ended = await asyncio.create_task(task.call_async(config, injected, journal))
            else:
                ended = await self.in_thread(lambda: task.call(config, injected, journal))
        except BaseException as e:  # cancelled or interrupted
            ended = e
        self._end(task, ended, config, raise_errors=raise_errors)

    def until_done(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an async function for synchronous code."""
        return run_blocking(start)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a sync function for asynchronous code."""
        return await asyncio.to_thread(call)

    def _is_ready(self, task: InlineTask, config: Config) -> bool:
        task.calls = InlineCallsOfTask(self, task, config)
        return task.flow is None or task.flow.is_ready(task)

    def _journal(self, function: TaskFunction[Any, Any], config: Config) -> InlineJournal | None:
        children = InlineChildren(self, config)
        return InlineJournal(function.name, self._signals, self._connection, children) if function.durable else None

    def injected(self, function: TaskFunction[Any, Any]) -> dict[str, Any]:
        """What a task function receives besides its arguments."""
        if not function.takes_connection:
            return {}
        if self._connection is None:
            raise TaskLibError(
                f"{function.name} is transactional, and inline mode has no database to give it a connection from. "
                "Give one: inline(connection=...), or test it with the fixture tasklib_app and drain()."
            )
        return {CONNECTION: self._connection}

    def _end(self, task: InlineTask, ended: str | BaseException, config: Config, *, raise_errors: bool) -> None:
        __tracebackhide__ = True
        task.end(ended, config)
        raises = raise_errors and self._raise_errors
        if isinstance(ended, BaseException) and (raises or not isinstance(ended, Exception | SystemExit)):
            raise ended
