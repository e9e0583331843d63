"""`@task(executor="process")`: task functions in child processes, which can be killed.

A child is started when a task waits for one, kept for the next task, and replaced when it dies, when it has to be
stopped, and after `process_max_tasks` tasks. A child that runs a short task has its next order already, so that it need
not wait for its worker in between. Children are forked from a template that has imported the task modules
(`template.py`); where that can't work, each is a new interpreter.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasklib.config import Config
from tasklib.events import ChildrenSpawned, Events
from tasklib.executors.child_protocol import RunAttempt, Setup, Unloadable, described, main_import
from tasklib.executors.children import CantFork, CantImport, Child, Death, Handed, Listener, NotStarted, TakenBack
from tasklib.executors.launching import Template, why_not_from_a_template
from tasklib.executors.outcomes import Done, Failed, FailureKind, Lost, Released
from tasklib.tasks.context import LimitBlockCalls, TaskContext
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.surroundings import finishings, preparations

_MOST_STARTING = min(os.cpu_count() or 1, 4)
"""How many children may be starting at a time: more would only take the processor from each other."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_RESERVED_DESCRIPTORS = 16
"""Seconds to wait after a child that could not be started; twice as many each time."""
_MOST_FAILURES = 10
"""So many starts that fail one after the other, and there is little hope for the next."""

_PART_OF_GRACE = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A task that waits for a child."""

    order: RunAttempt
    child: asyncio.Future[Child | Failed | Released]


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """What to have a child do, and whom to tell."""

    order: RunAttempt
    report: Callable[[str], None] | None
    begun: Callable[[], None]
    took: Callable[[float], None]
    may_call: Callable[[], Awaitable[bool]] | None
    limit: float
    """Seconds that it may take until the function is called."""
    limits: LimitBlockCalls | None


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """An order that waits in a busy child's socket."""

    child: Child
    handed: Handed

    def take_back(self) -> bool:
        """Take it back, if the child doesn't have it yet: then its outcome is TakenBack."""
        return self.child.has_next(self.handed) and self.child.take_back()


class ProcessExecutor:
    """Runs each task in a child process; at most as many children as tasks at a time."""

    def __init__(self, config: Config, modules: Sequence[str] = (), events: Events | None = None) -> None:
        _refuse_an_unguarded_script()
        self._config = config
        self._modules = list(modules)
        self._events = events or Events()
        self._spawns = config.process_start == "spawn"
        self._template: Template | None = None
        self._templates: set[Template] = set()
        self._idle: list[Child] = []
        self._may_have_next: dict[Child, str] = {}
        """Children that run a task and have no next order, the longest at work first, and the task's name."""
        self._children: set[Child] = set()
        self._waiting: deque[_Waiter] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._hopeless: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False

    async def run(
        self,
        function: TaskFunction[Any, Any],
        kwargs: str,
        context: TaskContext,
        trace: dict[str, str] | None = None,
        *,
        timeout_seconds: float | None = None,
        may_call: Callable[[], Awaitable[bool]] | None = None,
        begun: Callable[[], None] = lambda: None,
        took: Callable[[float], None] = lambda seconds: None,
    ) -> Done | Failed | Released | Lost:
        """Make one attempt; `begun` is called when the child calls the function, from when its time counts.

        `took` is told how long the function ran, when it has returned. `may_call` is asked when a child is ready and
        before it has the order; if it says no, the attempt is Lost.
        Released means that no child could call it. Cancelling ends the child; then CancelledError is raised as usual.
        """
        order = _order(function, kwargs, context, timeout_seconds, trace)
        limit = self._longest_wait(timeout_seconds)
        call = _Call(order, context._report, begun, took, may_call, limit, context._limits)
        try:
            return await self._attempt(call, asyncio.get_running_loop().time() + limit)
        except TimeoutError:
            return Released(f"no child process was ready to call it within {limit:g} s")

    @property
    def can_hand_ahead(self) -> bool:
        """Whether a child is busy and has no next order, and no task waits for a child."""
        return bool(self._may_have_next) and not self._waiting and not self._closed

    def hand_ahead(
        self,
        function: TaskFunction[Any, Any],
        kwargs: str,
        context: TaskContext,
        is_short: Callable[[str], bool],
        *,
        timeout_seconds: float | None = None,
        begun: Callable[[], None] = lambda: None,
        took: Callable[[float], None] = lambda seconds: None,
        turn: Callable[[], None] = lambda: None,
    ) -> Ahead | None:
        """Hand an order to a child that is busy with a short task; None if there is no such child.

        `turn` is called when the task before it has ended. `run_ahead` waits for the outcome.
        """
        while self._may_have_next:
            child, name = next(iter(self._may_have_next.items()))
            del self._may_have_next[child]
            # The present order may be the child's last one; so may the next, which then has no other behind it.
            if child.alive and is_short(name) and child.tasks + 1 < self._config.process_max_tasks:
                break
        else:
            return None
        order = _order(function, kwargs, context, timeout_seconds)
        limits = context._limits
        listener = Listener(context._report, self._noting(child, function.name, begun), took, turn, limits)
        handed = child.run_next(order, listener, self._longest_wait(timeout_seconds))
        return None if handed is None else Ahead(child, handed)

    async def run_ahead(self, ahead: Ahead) -> Done | Failed | TakenBack:
        """Wait for the outcome of an order that was handed over ahead; TakenBack if its function was not called."""
        ended = await self._ended(ahead.child, ahead.handed)
        if isinstance(ended, Death):
            self._end(ahead.child)
            if self._closed:
                raise asyncio.CancelledError("the executor was closed")
            return Failed(ended.error, FailureKind.CRASH) if ended.begun else TakenBack()
        return ended if isinstance(ended, TakenBack) else self._settled(ahead.child, ahead.handed, ended)

    async def starts_keep_failing(self) -> str:
        """Wait until many starts have failed one after the other; why the last one did."""
        return await asyncio.shield(self._hopeless)

    async def close(self) -> None:
        """End all children: idle ones leave, busy ones are terminated, then killed. Their `run` is cancelled."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        while self._waiting:
            self._waiting.popleft().child.cancel()
        self._idle.clear()
        endings = [self._end(child) for child in self._children]
        await asyncio.gather(*endings, *self._starting, return_exceptions=True)
        grace = self._config.process_kill_grace_seconds
        await asyncio.gather(*(template.close(grace) for template in self._templates))

    def _longest_wait(self, timeout_seconds: float | None) -> float:
        """How long a task may wait to be called. The start that it waits for may go on longer, for the next one."""
        limit = self._config.process_start_timeout_seconds
        if timeout_seconds is None:
            return limit
        # The leader counts a task's time from its claim, and would fail one that waits until long after its timeout.
        return min(limit, max(1.0, _PART_OF_GRACE * self._config.overdue_grace_seconds))

    async def _attempt(self, call: _Call, begin_by: float) -> Done | Failed | Released | Lost:
        """Make the attempt in the first child that takes it. TimeoutError if none has called it by `begin_by`."""
        while True:
            async with asyncio.timeout_at(begin_by):
                child = await self._take(call.order)
            if not isinstance(child, Child):
                return child
            if call.may_call is not None:
                if (refusal := await self._refusal(call.may_call, child)) is not None:
                    return refusal
                # Asking takes as long as it takes. From here on it is up to the child.
                begin_by = asyncio.get_running_loop().time() + call.limit
            limit = begin_by - asyncio.get_running_loop().time()
            listener = Listener(
                call.report, self._noting(child, call.order.name, call.begun), call.took, limits=call.limits
            )
            handed = child.run(call.order, listener, limit)
            ended = await self._ended(child, handed)
            assert not isinstance(ended, TakenBack), "it was not handed over ahead"
            if not isinstance(ended, Death):
                return self._settled(child, handed, ended)
            was_ended = child.is_ending  # by its time to begin
            self._end(child)
            if self._closed:
                raise asyncio.CancelledError("the executor was closed")
            if ended.begun:
                return Failed(ended.error, FailureKind.CRASH)
            if was_ended:
                raise TimeoutError
            if not child.tasks:
                self._not_started(ended.error)
                if call.may_call is None:
                    return Released(ended.error)
            # It died idle, unnoticed, or with its beginning on record already: another one takes the order.

    def _noting(self, child: Child, name: str, begun: Callable[[], None]) -> Callable[[], None]:
        """Note that a child has called a function, before that is passed on."""

        def note() -> None:
            self._may_have_next[child] = name
            begun()

        return note

    async def _ended(self, child: Child, handed: Handed) -> Done | Failed | Unloadable | TakenBack | Death:
        try:
            return await child.ended(handed)
        except BaseException:
            await asyncio.shield(self._end(child))
            raise

    async def _refusal(self, may_call: Callable[[], Awaitable[bool]], child: Child) -> Released | Lost | None:
        """Why the child may not call the function. Then it is free for another task."""
        try:
            if await may_call():
                return None
            refusal: Released | Lost = Lost()
        except Exception as e:
            refusal = Released(f"its start could not be recorded: {e}")
        except BaseException:
            self._free(child)
            raise
        self._free(child)
        return refusal

    async def _take(self, order: RunAttempt) -> Child | Failed | Released:
        """An idle child, or the first one that becomes free; an outcome if there will be none."""
        if self._closed:
            raise RuntimeError("this ProcessExecutor is closed.")
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._end(child)
        waiter = _Waiter(order, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._start_children()
        try:
            return await waiter.child
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.child.done() and not waiter.child.cancelled():
                given = waiter.child.result()
                if isinstance(given, Child):  # at the very moment of the cancellation
                    self._free(given)
            raise

    def _settled(self, child: Child, handed: Handed, ended: Done | Failed | Unloadable) -> Done | Failed:
        is_spent = not child.alive or child.tasks >= self._config.process_max_tasks
        if self._closed or isinstance(ended, Unloadable) or is_spent:
            self._end(child)
            self._start_children()
        elif handed.next is None:
            self._free(child)
        return Failed(ended.error) if isinstance(ended, Unloadable) else ended

    def _free(self, child: Child) -> None:
        """Hand the child to the task that has waited longest."""
        self._may_have_next.pop(child, None)
        if self._closed:
            self._end(child)
        elif self._waiting:
            self._waiting.popleft().child.set_result(child)
        else:
            self._idle.append(child)

    def _end(self, child: Child) -> asyncio.Task[None]:
        self._may_have_next.pop(child, None)
        ending = child.end()
        ending.add_done_callback(lambda _: self._children.discard(child))
        return ending

    # ---- starting children

    def _start_children(self) -> None:
        """Start one for each task that waits, a few at a time."""
        while self._pause is None and not self._closed:
            if len(self._starting) >= min(len(self._waiting), _MOST_STARTING):
                break
            starting = asyncio.create_task(self._start_one(self._waiting[len(self._starting)]))
            self._starting.add(starting)
            starting.add_done_callback(self._started)

    def _started(self, starting: asyncio.Task[None]) -> None:
        self._starting.discard(starting)
        self._start_children()

    async def _start_one(self, waiter: _Waiter) -> None:
        if (left := _descriptors_left()) < _RESERVED_DESCRIPTORS:
            # The worker itself needs some: without a connection it could not store what its children return.
            self._not_started(f"only {left} more files may be open in this process (ulimit -n)")
            return
        template = None if self._must_spawn() else self._living_template()
        may_be_stale = template is not None and template.has_forked
        setup = _setup(self._config, self._modules, waiter.order)
        child = Child(setup, self._config, template)
        self._children.add(child)
        try:
            await child.started()
        except CantImport as e:
            if template is not None:
                template.leave()  # it does so by itself, but must not be asked again before that
            self._answer(waiter, Failed(str(e)))
        except CantFork as e:
            self._spawn_from_now_on(str(e))
        except NotStarted as e:
            # A template that has died since the last child is replaced without a word.
            if not (may_be_stale and template is not None and not template.alive):
                self._not_started(str(e))
        else:
            self._failures = 0
            self._free(child)
            return
        self._children.discard(child)

    def _living_template(self) -> Template:
        if self._template is None or not self._template.alive:
            self._template = Template()
            self._templates = {t for t in self._templates if not t.is_gone} | {self._template}
        return self._template

    def _must_spawn(self) -> bool:
        if not self._spawns and self._template is None and (reason := why_not_from_a_template()) is not None:
            self._spawn_from_now_on(reason)
        return self._spawns

    def _spawn_from_now_on(self, reason: str) -> None:
        if not self._spawns:
            self._spawns = True
            self._events.emit(ChildrenSpawned(reason))
        if self._template is not None:
            self._template.leave()

    def _not_started(self, reason: str) -> None:
        """Wait before the next start, and release tasks that won't get a child soon."""
        if self._closed:
            return
        if self._pause is None:
            pause = min(_FIRST_PAUSE * 2.0 ** min(self._failures, 10), _LONGEST_PAUSE)
            self._pause = asyncio.get_running_loop().call_later(pause, self._resume)
        self._failures += 1
        if self._failures >= _MOST_FAILURES and not self._hopeless.done():
            self._hopeless.set_result(reason)
        # A task that ends leaves its child to the next one, so with children at work only one task goes elsewhere.
        most = 1 if any(child.alive for child in self._children) else len(self._waiting)
        for waiter in [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]:
            waiter.child.set_result(Released(f"no child process could be started: {reason}"))

    def _resume(self) -> None:
        self._pause = None
        self._start_children()

    def _answer(self, waiter: _Waiter, outcome: Failed) -> None:
        if waiter in self._waiting:  # else a child has become free for it
            self._waiting.remove(waiter)
            waiter.child.set_result(outcome)


def _order(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: TaskContext,
    timeout_seconds: float | None,
    trace: dict[str, str] | None = None,
) -> RunAttempt:
    module = function.function.__module__
    return RunAttempt(function.name, module, kwargs, described(context), timeout_seconds, trace)


def _setup(config: Config, modules: list[str], order: RunAttempt) -> Setup:
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    return Setup(
        sys_path=list(sys.path),
        argv=list(sys.argv),
        pythonpath=os.environ.get("PYTHONPATH"),
        main_path=getattr(main, "__file__", None),
        main_module=None if name == "__main__" else name,  # a directory or zip file, known by its path only
        modules=modules,
        max_payload_bytes=config.max_payload_bytes,
        max_error_bytes=config.max_error_bytes,
        name=order.name,
        module=order.module,
        preparations=preparations(),
        finishings=finishings(),
    )


def _refuse_an_unguarded_script() -> None:
    if main_import() == "under way":
        raise RuntimeError(
            "a child process is importing this script to find its task functions, and the script starts a worker. "
            'Start it under `if __name__ == "__main__":`.'
        )


def _descriptors_left() -> int:
    """How many more files this process may open."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most - len(os.listdir("/proc/self/fd")) if most != resource.RLIM_INFINITY else sys.maxsize
