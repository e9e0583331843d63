"""What a program has done when its workers start and stop, around submissions and attempts, and on events.

@on_startup
async def connect(state):
    state.pool = await open_pool()      # in tasks: current_task().state.pool
    yield
    await state.pool.close()
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from tasklib.errors import InvalidOption
from tasklib.tasks.context import current_task, process_state
from tasklib.tasks.surroundings import surround_attempts, surroundings

if TYPE_CHECKING:
    from tasklib.events import Event

F = TypeVar("F", bound=Callable[..., Any])
Where: TypeAlias = Literal["worker", "child"]
_PLACES = ("worker", "child")


@dataclass(frozen=True)
class Hook:
    """A function to call when a process starts or stops."""

    function: Callable[..., Any]
    where: Where | None
    """None: in workers and in their child processes."""

    def arguments(self, state: SimpleNamespace) -> tuple[SimpleNamespace, ...]:
        """What the function is called with: the state if it has a parameter for it."""
        return (state,) if inspect.signature(self.function).parameters else ()


@dataclass
class Submitting:
    """A call that submits tasks, as the hooks around submissions see it."""

    names: frozenset[str]
    queues: frozenset[str]
    count: int
    task_id: str | None
    """Of a single task."""
    trace_context: dict[str, str] = field(default_factory=dict)
    """What hooks add here is stored in tasks whose submission names no trace context."""


startups: list[Hook] = []
shutdowns: list[Hook] = []
submission_hooks: list[Callable[[Submitting], AbstractContextManager[Any]]] = []
subscribers: list[tuple[Callable[[Any], None], bool]] = []
"""Of the events of every worker in this program; with True also of routine events."""


@overload
def on_startup(function: F, /) -> F: ...
@overload
def on_startup(*, where: Where | None = None) -> Callable[[F], F]: ...
def on_startup(function: Any = None, /, *, where: Where | None = None) -> Any:
    """Call this function, async or not, before a worker takes tasks; in each of its child processes, too.

    With a parameter it receives the state of the process, which tasks find in `current_task().state`. A generator that
    yields once goes on when the process stops. `where="worker"` or `where="child"` limits it.
    """
    return _added(startups, function, where)


@overload
def on_shutdown(function: F, /) -> F: ...
@overload
def on_shutdown(*, where: Where | None = None) -> Callable[[F], F]: ...
def on_shutdown(function: Any = None, /, *, where: Where | None = None) -> Any:
    """Call this function, async or not, when a worker or a child process that had started has run its last task."""
    return _added(shutdowns, function, where)


def around_attempts(hook: F) -> F:
    """Run this generator around each attempt: it is called with the `TaskContext`, and yields once.

    @around_attempts
    def report(attempt):
        try:
            yield
        except Exception as error:
            tracker.send(error, task=attempt.name)
            raise

    It runs where the task function runs: on the loop, in its thread, in its child process. It must not block the loop.
    """
    entered = _context_manager(hook, "around_attempts")
    surround_attempts(lambda function: entered(current_task()))
    return hook


def around_submissions(hook: F) -> F:
    """Run this generator around each call that submits: it is called with a `Submitting`, and yields once."""
    submission_hooks.append(_context_manager(hook, "around_submissions"))
    return hook


@overload
def on_event(subscriber: F, /) -> F: ...
@overload
def on_event(*, routine: bool) -> Callable[[F], F]: ...
def on_event(subscriber: Any = None, /, *, routine: bool = False) -> Any:
    """Call this function with each event of every worker in this program, on the worker's loop.

    `routine=True`: also with claims, starts and completions, of which there may be thousands a second.
    """

    def add(subscriber: Callable[[Event], None]) -> Any:
        subscribers.append((subscriber, routine))
        return subscriber

    return add if subscriber is None else add(subscriber)


def _added(hooks: list[Hook], function: Any, where: Where | None) -> Any:
    if where is not None and where not in _PLACES:
        raise InvalidOption(f'where= is "worker" or "child", not {where!r}; without it, both.')

    def add(function: Callable[..., Any]) -> Any:
        hooks.append(Hook(function, where))
        return function

    return add if function is None else add(function)


def _context_manager(hook: Callable[..., Any], decorator: str) -> Callable[..., AbstractContextManager[Any]]:
    if inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
        raise InvalidOption(
            f"@{decorator} needs a plain generator, and {hook.__name__} is async: it also runs around functions in "
            "threads, where nothing can be awaited. For what has to be awaited use a dependency of the task function."
        )
    return contextmanager(hook) if inspect.isgeneratorfunction(hook) else hook


# ---- for workers, children and clients ----


class Lifespan:
    """The hooks of one worker or child process, from its start to its end."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._stack = AsyncExitStack()
        self.state = SimpleNamespace()
        process_state.set(self.state)

    @property
    def is_needed(self) -> bool:
        """False if there is nothing to do at the start nor at the end."""
        return any(self._here(startups)) or any(self._here(shutdowns))

    async def start(self) -> None:
        """Call the hooks in the order of their registration. If one raises, what had started is ended."""
        try:
            for hook in self._here(startups):
                await self._begin(hook)
        except BaseException:
            await self.stop()
            raise
        for hook in self._here(shutdowns):
            self._stack.push_async_callback(self._call, hook)

    async def stop(self) -> None:
        """Call the others, the last registered first. One that raises doesn't keep the rest from being called."""
        await self._stack.aclose()

    async def _begin(self, hook: Hook) -> None:
        if inspect.isasyncgenfunction(hook.function):
            await self._stack.enter_async_context(asynccontextmanager(hook.function)(*hook.arguments(self.state)))
        elif inspect.isgeneratorfunction(hook.function):
            self._stack.enter_context(contextmanager(hook.function)(*hook.arguments(self.state)))
        else:
            await self._call(hook)

    async def _call(self, hook: Hook) -> None:
        returned = hook.function(*hook.arguments(self.state))
        if isinstance(returned, Awaitable):
            await returned

    def _here(self, hooks: list[Hook]) -> Iterator[Hook]:
        return (hook for hook in hooks if hook.where in (None, self._where))


@contextmanager
def around_submission(
    names: set[str], queues: set[str], count: int, task_id: str | None
) -> Iterator[Mapping[str, str]]:
    """All hooks around a submission; yields what they want the tasks to carry."""
    submitting = Submitting(frozenset(names), frozenset(queues), count, task_id)
    with ExitStack() as stack:
        for hook in submission_hooks:
            stack.enter_context(hook(submitting))
        yield submitting.trace_context


@contextmanager
def isolated() -> Iterator[None]:
    """Hooks that are added inside the block are gone after it; for tests."""
    lists: list[list[Any]] = [startups, shutdowns, submission_hooks, subscribers, surroundings]
    before = [list(hooks) for hooks in lists]
    try:
        yield
    finally:
        for hooks, old in zip(lists, before, strict=True):
            hooks[:] = old
