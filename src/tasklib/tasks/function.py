"""`@task`: what turns a function into a task function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

from tasklib.errors import InvalidTaskFunction
from tasklib.tasks import registry
from tasklib.tasks.arguments import Arguments, asks_for_connection
from tasklib.tasks.options import MAX_NAME_BYTES, NOTHING_SAID, Options, is_name, options_of
from tasklib.tasks.origins import written
from tasklib.tasks.results import ResultWriter
from tasklib.tasks.retry import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")


class Executor(StrEnum):
    """Where a task function runs."""

    LOOP = "loop"
    """On the worker's event loop: async functions."""
    THREAD = "thread"
    """In a thread: sync functions. A thread can't be killed."""
    PROCESS = "process"
    """In a child process that can be killed; either kind of function."""


@dataclass(frozen=True)
class Submission:
    """A task function (or a name), its options and its arguments: what `submit_many` takes a list of."""

    target: TaskFunction[Any, Any] | str
    kwargs: Mapping[str, Any]
    options: Options = NOTHING_SAID


# Set by tasklib.client: the tasks layer knows nothing of databases.
_submit: Callable[[Submission], Awaitable[UUID]] | None = None
_submit_sync: Callable[[Submission], UUID] | None = None


def connect_default_client(
    submit: Callable[[Submission], Awaitable[UUID]], submit_sync: Callable[[Submission], UUID]
) -> None:
    """Say what `.submit()` and `.submit_sync()` call."""
    global _submit, _submit_sync
    _submit, _submit_sync = submit, submit_sync


class TaskFunction(Generic[P, R]):
    """A function that can be submitted. Calling it still just calls it.

    send_email(to="a@example.com")                                  # runs here and now
    await send_email.submit(to="a@example.com")                     # runs on a worker
    await send_email.options(delay_seconds=60).submit(to="a@example.com")
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        executor: str | None = None,
        transactional: bool | None = None,
        at_most_once: bool = False,
        retry_policy: RetryPolicy | None = None,
        non_retriable: tuple[type[BaseException], ...] = (),
        defaults: Options = NOTHING_SAID,
    ) -> None:
        if isinstance(function, staticmethod):
            function = function.__func__
        self.function = function
        self.name = _checked_name(name, function)
        is_async = inspect.iscoroutinefunction(function)
        # Unless it runs the async function itself, which nothing shows: such a function is given executor="thread".
        self.wraps_async = not is_async and executor != "thread" and inspect.iscoroutinefunction(written(function))
        """A plain function around an async one, made by a decorator: what it returns has to be awaited."""
        self.is_async = is_async or self.wraps_async
        if at_most_once and transactional is None:  # whatever the configuration says
            transactional = False
        self.transactional = transactional
        """None: as the configuration says."""
        self.takes_connection = transactional or (transactional is None and asks_for_connection(function))
        self.executor = _checked_executor(executor, self.name, self.is_async, self.takes_connection)
        self.retry_policy = _checked_policy(retry_policy, self.name)
        self.non_retriable = _checked_exceptions(non_retriable, self.name)
        self.at_most_once = at_most_once
        if at_most_once:
            _refuse_retries(self, defaults)
            defaults = Options(max_retries=0).over(defaults)
        self.defaults = defaults
        self.arguments = Arguments(function, self.name, with_connection=self.takes_connection)
        self.results = ResultWriter(function)
        functools.update_wrapper(self, function)

    @property
    def can_run_in_a_process(self) -> bool:
        """True if a child process can import it, and it needs nothing that lives in the worker."""
        return not self.takes_connection and "<locals>" not in self.function.__qualname__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Submission:
        """The arguments of one task, for `submit_many`."""
        return Submission(self, self.arguments.bind(args, kwargs))

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> UUID:
        """Submit a task with these arguments and return its id."""
        assert _submit is not None
        return await _submit(self.bind(*args, **kwargs))

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> UUID:
        """`submit` for synchronous code."""
        assert _submit_sync is not None
        return _submit_sync(self.bind(*args, **kwargs))

    def options(self, **options: Any) -> WithOptions[P]:
        """The same task function with options; arguments and options can't be confused this way."""
        return WithOptions(self, options_of(options))

    def __repr__(self) -> str:
        return f"<task {self.name}>"


@dataclass(frozen=True)
class WithOptions(Generic[P]):
    """A task function with options, ready for its arguments."""

    task: TaskFunction[P, Any]
    chosen: Options

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Submission:
        """The arguments of one task, for `submit_many`."""
        return Submission(self.task, self.task.arguments.bind(args, kwargs), self.chosen)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> UUID:
        """Submit a task with these arguments and return its id."""
        assert _submit is not None
        return await _submit(self.bind(*args, **kwargs))

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> UUID:
        """`submit` for synchronous code."""
        assert _submit_sync is not None
        return _submit_sync(self.bind(*args, **kwargs))


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(
    *,
    name: str | None = None,
    max_retries: int | None = None,
    timeout_seconds: int | None = None,
    priority: int | str | None = None,
    queue: str | None = None,
    required_capabilities: Iterable[str] | None = None,
    executor: str | None = None,
    transactional: bool | None = None,
    at_most_once: bool = False,
    retry_policy: RetryPolicy | None = None,
    non_retriable: tuple[type[BaseException], ...] = (),
    tags: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    max_retries: int | None = None,
    timeout_seconds: int | None = None,
    priority: int | str | None = None,
    queue: str | None = None,
    required_capabilities: Iterable[str] | None = None,
    executor: str | None = None,
    transactional: bool | None = None,
    at_most_once: bool = False,
    retry_policy: RetryPolicy | None = None,
    non_retriable: tuple[type[BaseException], ...] = (),
    tags: Mapping[str, Any] | None = None,
) -> Any:
    """Register a function as a task, bare or with options.

    @task
    def resize(path: str) -> int: ...

    @task(max_retries=5, timeout_seconds=30, priority="high")
    async def send_email(to: str) -> None: ...
    """

    def decorate(function: Callable[..., Any]) -> TaskFunction[Any, Any]:
        defaults = Options(
            max_retries=max_retries,
            timeout_seconds=timeout_seconds,
            priority=priority,
            queue=queue,
            required_capabilities=required_capabilities,
            tags=tags,
        )
        made: TaskFunction[Any, Any] = TaskFunction(
            function,
            name=name,
            executor=executor,
            transactional=transactional,
            at_most_once=at_most_once,
            retry_policy=retry_policy,
            non_retriable=non_retriable,
            defaults=defaults,
        )
        registry.register(made)
        return made

    return decorate if function is None else decorate(function)


def _checked_name(name: str | None, function: Callable[..., Any]) -> str:
    if isinstance(function, classmethod) or _is_method(function):
        described = function.__qualname__
        raise InvalidTaskFunction(
            f"{described} is a method, and a worker has no {described.rpartition('.')[0]} to call it on. Put @task on "
            "a function outside of the class, or on a @staticmethod, that takes what it needs as arguments."
        )
    if not callable(function) or isinstance(function, type) or not hasattr(function, "__name__"):
        raise InvalidTaskFunction(f"@task needs a function, not {function!r}.")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidTaskFunction(f"{function.__name__} is a generator; a task returns one value.")
    name = function.__name__ if name is None else name
    if not is_name(name):
        raise InvalidTaskFunction(f"a task's name is a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
    return name


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether it was written in a class body and takes `self` or `cls`."""
    source = written(function)
    around = getattr(source, "__qualname__", "").rpartition(".")[0]
    if not inspect.isfunction(source) or not around or around.endswith("<locals>") or inspect.ismethod(function):
        return False
    return next(iter(inspect.signature(source).parameters), None) in ("self", "cls")


def _checked_executor(executor: str | None, name: str, is_async: bool, transactional: bool) -> Executor:
    if executor is None:
        return Executor.LOOP if is_async else Executor.THREAD
    try:
        chosen = Executor(executor)
    except ValueError:
        raise InvalidTaskFunction(f"{name}: executor must be one of {', '.join(Executor)}, not {executor!r}.") from None
    if chosen is Executor.LOOP and not is_async:
        raise InvalidTaskFunction(f"{name}: executor='loop' needs an async function; this one would block the loop.")
    if chosen is Executor.THREAD and is_async:
        raise InvalidTaskFunction(f"{name}: an async function runs on the loop or in a process, not in a thread.")
    if chosen is Executor.PROCESS and transactional:
        raise InvalidTaskFunction(
            f"{name}: a transactional task can't run in a process: its connection lives in the worker."
        )
    return chosen


def _refuse_retries(function: TaskFunction[Any, Any], defaults: Options) -> None:
    """What runs at most once is never tried again, so nothing may be said of retries."""
    name = function.name
    if function.transactional:
        raise InvalidTaskFunction(
            f"{name}: transactional=True and at_most_once=True exclude each other: the writes of a transactional task "
            "take effect exactly once already."
        )
    given = {
        "max_retries": defaults.max_retries,
        "retry_policy": function.retry_policy,
        "non_retriable": function.non_retriable,
    }
    if said := [option for option, value in given.items() if value]:
        raise InvalidTaskFunction(
            f"{name}: at_most_once=True excludes {' and '.join(said)}: once begun, the task is never tried again."
        )


def _checked_policy(policy: object, name: str) -> RetryPolicy | None:
    if policy is not None and not isinstance(policy, RetryPolicy):
        raise InvalidTaskFunction(f"{name}: retry_policy must be a RetryPolicy(...), not {policy!r}.")
    return policy


def _checked_exceptions(classes: object, name: str) -> tuple[type[BaseException], ...]:
    given: tuple[Any, ...] = classes if isinstance(classes, tuple) else (classes,)
    if not all(isinstance(c, type) and issubclass(c, BaseException) for c in given):
        raise InvalidTaskFunction(f"{name}: non_retriable must be exception classes, not {classes!r}.")
    return given
