"""`@task`: what turns a function into a task function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Protocol, TypeAlias, TypedDict, overload

from typing_extensions import ParamSpec, TypeVar, Unpack

from tasklib.errors import InvalidTaskFunction
from tasklib.tasks import registry
from tasklib.tasks.dependencies import refuse_async
from tasklib.tasks.options import (
    MAX_DELAY_SECONDS,
    MAX_NAME_BYTES,
    NOTHING_SAID,
    Options,
    SubmitOptions,
    did_you_mean,
    is_name,
    options_of,
)
from tasklib.tasks.origins import written
from tasklib.tasks.payload import Arguments, ResultCodec
from tasklib.tasks.retry import RetryPolicy
from tasklib.tasks.sealing import Sealing, refuse_with_sealing
from tasklib.tasks.signature import asks_for_connection
from tasklib.tasks.submitter import Submitter, WithOptions
from tasklib.tasks.versions import Upcast, Versions

if TYPE_CHECKING:
    import psycopg

    from tasklib.schedules import Schedule
    from tasklib.tasks.batches import Batch
    from tasklib.tasks.breakers import Breaker
    from tasklib.tasks.limits import Limit

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U", bound=Upcast)
C = TypeVar("C", default=Any)
Q = ParamSpec("Q", default=...)  # the last one: Python 3.13.0 takes no other default after that of a ParamSpec
ScheduleOrSeveral: TypeAlias = "Schedule | str | Iterable[Schedule | str]"


class Executor(StrEnum):
    """Where a task function runs."""

    LOOP = "loop"
    """On the worker's event loop: async functions."""
    THREAD = "thread"
    """In a thread: sync functions. A thread can't be killed."""
    PROCESS = "process"
    """In a child process that can be killed; either kind of function."""


class TaskFunction(Submitter[P, R], Generic[P, R, C, Q]):
    """A function that can be submitted. Calling it still just calls it.

    Of its type parameters two are enough, `TaskFunction[[str], int]`: the parameters of `submit`, and what the task
    results in. The others say what calling it returns and takes.

    send_email(to="a@example.com")                                  # runs here and now
    await send_email.submit(to="a@example.com")                     # runs on a worker
    await send_email.options(delay_seconds=60).submit(to="a@example.com")
    """

    def __init__(
        self,
        function: Callable[Q, C],
        *,
        name: str | None = None,
        executor: str | None = None,
        transactional: bool | None = None,
        at_most_once: bool = False,
        durable: bool = False,
        deadline_seconds: float | None = None,
        retry_policy: RetryPolicy | None = None,
        non_retriable: tuple[type[BaseException], ...] | type[BaseException] = (),
        defaults: Options = NOTHING_SAID,
        schedules: ScheduleOrSeveral = (),
        limits: Limit | Iterable[Limit] = (),
        serial_key: str | None = None,
        share: str | None = None,
        breaker: Breaker | None = None,
        batch: Batch | None = None,
        version: int | None = None,
        aliases: Iterable[str] = (),
        sealed: bool | Literal["new"] | None = None,
        compress: bool = True,
        serializer: str | None = None,
    ) -> None:
        if isinstance(function, staticmethod):
            function = function.__func__
        self.task = self
        self.name = _checked_name(name, function)
        self.aliases = _checked_aliases(aliases, self.name)
        """Names of tasks that it runs besides its own: those it had before it was renamed."""
        self.versions = None if version is None else Versions(self.name, version)
        """How it reads arguments of older versions, if it has versions."""
        self.called = function
        """The function as it is called directly: that of a batch, with a list."""
        self.batch = batch
        self.function: Callable[..., Any] = function
        """What an attempt calls: that of a batch, with one item."""
        if batch is not None:
            from tasklib.tasks import batches  # most functions have none

            executor = batches.executor_of_one(function, executor, self.name)
            takes_connection = bool(transactional) or asks_for_connection(function)
            batches.refuse_with_batch(self.name, takes_connection=takes_connection, durable=durable)
            self.function = batches.of_one(function, batch, self.name)
        is_async = inspect.iscoroutinefunction(self.function)
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
        self.durable = durable
        """It has steps on record, and can be suspended."""
        self.deadline_seconds = _checked_deadline(deadline_seconds, self.name, durable=durable)
        """Of a durable function: how long the task may take as a whole, suspended or not."""
        if durable:
            _refuse_with_durable(self)
        if at_most_once:
            _refuse_retries(self, defaults)
            defaults = Options(max_retries=0).over(defaults)
        if version is not None:
            defaults = Options(payload_version=version).over(defaults)
        self.defaults = defaults
        self.arguments = Arguments(self.function, self.name, with_connection=self.takes_connection)
        self.providers = self.arguments.providers
        """Its dependencies, by the names of its parameters."""
        if self.providers and not self.is_async:
            refuse_async(self.providers, self.name)
        self.results = ResultCodec(self.function)
        self.schedules = _checked_schedules(schedules, self)
        """When it runs by itself; each has a name."""
        self.limits: tuple[Limit, ...] = ()
        self.serial_key = serial_key
        """The argument by whose values its tasks run one at a time."""
        self.share = share
        """The argument by whose values its tasks take turns."""
        if limits or serial_key is not None or share is not None:  # most functions need nothing of it
            from tasklib.tasks.limits import checked_limits

            self.limits = checked_limits(limits, self)
        self.breaker = breaker
        """When tasks of its name stop to begin, because too many failed."""
        if breaker is not None:
            from tasklib.tasks.breakers import checked_breaker

            checked_breaker(breaker, self)
        self.sealing = Sealing.of(sealed, self.arguments.hints, self.name)
        """What of its tasks is stored sealed."""
        if self.sealing is not None:
            refuse_with_sealing(self, keys_of(self))
        self.content_capability: str | None = None
        """What a worker must offer that reads its payloads, if they are not JSON."""
        if serializer is not None:
            self._write_by(serializer, {**dict(keys_of(self)), "version": version, "Sealed[...]": self._seals_fields})
        self.compress = _checked_compress(compress, self.name)
        """False: what is sealed or put into a payload store is not compressed before."""
        functools.update_wrapper(self, function)

    def _write_by(self, content_type: str, excluded: Mapping[str, object]) -> None:
        from tasklib.tasks import serializers  # most functions have none

        chosen = serializers.serializer_of(content_type, self.name)
        self.arguments = serializers.SerializedArguments(
            self.function, self.name, with_connection=self.takes_connection
        )
        self.results = serializers.SerializedResults(self.function)
        self.arguments.serializer = self.results.serializer = chosen
        serializers.refuse_with_serializer(self, excluded)
        self.content_capability = serializers.capability(content_type)

    @property
    def _seals_fields(self) -> bool:
        return self.sealing is not None and self.sealing.fields is not None

    @property
    def version(self) -> int | None:
        """The version of the arguments that it is submitted with."""
        return None if self.versions is None else self.versions.current

    @property
    def can_run_in_a_process(self) -> bool:
        """True if a child process can import it, and it needs nothing that lives in the worker."""
        return not self.takes_connection and not self.durable and "<locals>" not in self.function.__qualname__

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        return self.called(*args, **kwargs)

    def options(self, **options: Unpack[SubmitOptions]) -> WithOptions[P, R]:
        """The same task function with options; arguments and options can't be confused this way."""
        return WithOptions(self, options_of(options))

    def upcast(self, version: int) -> Callable[[U], U]:
        """Decorate a function that turns stored arguments of this version into those of the next one, dict to dict.

        @send.upcast(1)
        def _(old: dict) -> dict:
            return {"recipients": [old["to"]]}
        """
        if self.versions is None:
            raise InvalidTaskFunction(f"{self.name} has no versions to upcast to. Say @task(version=2).")
        return functools.partial(_registered_upcast, self.versions, version)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class TaskSettings(TypedDict, total=False):
    """What `@task(...)` takes besides `transactional` and `batch`."""

    name: str | None
    max_retries: int | None
    timeout_seconds: int | None
    priority: int | str | None
    queue: str | None
    required_capabilities: Iterable[str] | None
    tags: Mapping[str, Any] | None
    unique: Literal["pending", "unfinished"] | None
    debounce: float | None
    throttle: float | None
    merge_key: str | Iterable[str] | None
    on_duplicate: Literal["return", "replace", "raise"] | None
    max_wait: float | None
    executor: Executor | Literal["loop", "thread", "process"] | None
    at_most_once: bool
    durable: bool
    deadline_seconds: float | None
    retry_policy: RetryPolicy | None
    non_retriable: tuple[type[BaseException], ...] | type[BaseException]
    schedule: ScheduleOrSeveral | None
    limits: Limit | Iterable[Limit]
    serial_key: str | None
    share: str | None
    breaker: Breaker | None
    version: int | None
    aliases: Iterable[str]
    sealed: bool | Literal["new"] | None
    compress: bool
    serializer: str | None


class Decorator(Protocol):
    """What `task(...)` returns: makes a task function of a function."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, Coroutine[Any, Any, R], P]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, R, P]: ...


class TransactionalDecorator(Protocol):
    """What `task(transactional=True)` returns: the first parameter, `connection`, comes from the worker."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[psycopg.AsyncConnection[Any], P], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, Coroutine[Any, Any, R], Concatenate[psycopg.AsyncConnection[Any], P]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[psycopg.Connection[Any], P], R], /
    ) -> TaskFunction[P, R, R, Concatenate[psycopg.Connection[Any], P]]: ...


class BatchDecorator(Protocol):
    """What `task(batch=Batch(...))` returns: the function gets a list, and a task is submitted with one item of it."""

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /
    ) -> TaskFunction[[T], None, Coroutine[Any, Any, None], [list[T]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> TaskFunction[[T], R, Coroutine[Any, Any, Sequence[R | Exception]], [list[T]]]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> TaskFunction[[T], None, None, [list[T]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Sequence[R | Exception]], /
    ) -> TaskFunction[[T], R, Sequence[R | Exception], [list[T]]]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskFunction[P, R, Coroutine[Any, Any, R], P]: ...
@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R, R, P]: ...
@overload
def task(  # type: ignore[overload-overlap]  # True is a bool too, and is told apart
    *, transactional: Literal[True], **settings: Unpack[TaskSettings]
) -> TransactionalDecorator: ...
@overload
def task(*, batch: Batch, **settings: Unpack[TaskSettings]) -> BatchDecorator: ...
@overload
def task(*, transactional: bool | None = None, **settings: Unpack[TaskSettings]) -> Decorator: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    transactional: bool | None = None,
    batch: Batch | None = None,
    **settings: Unpack[TaskSettings],
) -> Any:
    """Register a function as a task, bare or with settings.

    @task
    def resize(path: str) -> int: ...

    @task(max_retries=5, timeout_seconds=30, priority="high")
    async def send_email(to: str) -> None: ...

    @task(schedule="0 3 * * *")
    def clean_up() -> None: ...

    @task(transactional=True)
    def ship(connection: psycopg.Connection, order: int) -> None: ...

    @task(batch=Batch(max=100, wait=2))
    async def index(documents: list[str]) -> None: ...
    """
    _refuse_unknown(settings)

    def decorate(function: Callable[..., Any]) -> TaskFunction[..., Any]:
        given: dict[str, Any] = {name: settings.get(name) for name in _DEFAULTS}
        defaults = Options(**given)
        made: TaskFunction[..., Any] = TaskFunction(
            function,
            name=settings.get("name"),
            executor=settings.get("executor"),
            transactional=transactional,
            at_most_once=settings.get("at_most_once", False),
            durable=settings.get("durable", False),
            deadline_seconds=settings.get("deadline_seconds"),
            retry_policy=settings.get("retry_policy"),
            non_retriable=settings.get("non_retriable", ()),
            defaults=defaults,
            schedules=settings.get("schedule") or (),
            limits=settings.get("limits") or (),
            serial_key=settings.get("serial_key"),
            share=settings.get("share"),
            breaker=settings.get("breaker"),
            batch=batch,
            version=settings.get("version"),
            aliases=settings.get("aliases", ()),
            sealed=settings.get("sealed"),
            compress=settings.get("compress", True),
            serializer=settings.get("serializer"),
        )
        registry.register(made)
        return made

    return decorate if function is None else decorate(function)


def _signature() -> inspect.Signature:
    """For help(): the settings one by one."""
    shown = [
        inspect.Parameter("function", inspect.Parameter.POSITIONAL_ONLY, default=None),
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _SETTINGS),
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in ("transactional", "batch")),
    ]
    return inspect.Signature(shown)


_SETTINGS = TaskSettings.__annotations__.keys()
vars(task)["__signature__"] = _signature()
_BY_ARGUMENT = ("serial_key", "share")
"""Options whose settings name an argument: its values are the keys."""
_DEFAULTS = [name for name in SubmitOptions.__annotations__ if name in _SETTINGS and name not in _BY_ARGUMENT]
"""The settings that are options of each submission, unless it says otherwise."""


def _refuse_unknown(settings: Iterable[str]) -> None:
    for name in settings:
        if name not in _SETTINGS:
            known = sorted({*_SETTINGS, "transactional", "batch"})
            raise InvalidTaskFunction(
                f"@task has no setting {name!r}.{did_you_mean(name, known)} The settings are {', '.join(known)}."
            )


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


def _registered_upcast(versions: Versions, version: int, upcast: U) -> U:
    versions.add(version, upcast)
    return upcast


def _checked_aliases(aliases: object, name: str) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Iterable):
        raise InvalidTaskFunction(f"{name}: aliases must be a list of names such as ['mail.send'], not {aliases!r}.")
    several = tuple(aliases)
    for alias in several:
        if not is_name(alias) or alias == name:
            raise InvalidTaskFunction(
                f"{name}: an alias is another name of 1 to {MAX_NAME_BYTES} bytes, not {alias!r}."
            )
    return several


def keys_of(function: TaskFunction[..., Any]) -> list[tuple[str, str | None]]:
    """The settings that name an argument."""
    of_limits = (("Limit(key=...)", each.key) for each in function.limits)
    return [("serial_key", function.serial_key), ("share", function.share), *of_limits]


def _checked_compress(compress: object, name: str) -> bool:
    if not isinstance(compress, bool):
        raise InvalidTaskFunction(f"{name}: compress must be True or False, not {compress!r}.")
    return compress


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
            f"{name}: a transactional task can't run in a process: its connection belongs to the worker."
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
            f"{name}: at_most_once=True excludes {' and '.join(said)}: once begun, the task is never retried."
        )


def _refuse_with_durable(function: TaskFunction[Any, Any]) -> None:
    name = function.name
    if function.at_most_once:
        raise InvalidTaskFunction(
            f"{name}: durable=True and at_most_once=True exclude each other: a durable function is called again after "
            "each suspension."
        )
    if function.takes_connection:
        raise InvalidTaskFunction(
            f"{name}: a durable function takes no connection: no transaction can stay open while it is suspended. "
            "Write to the database in a step: step('book', book, order, transactional=True)."
        )
    if function.executor is Executor.PROCESS:
        raise InvalidTaskFunction(
            f"{name}: a durable function can't run in a process: its steps are recorded by the worker. Put the part "
            "that needs a process into a task of its own."
        )


def _checked_deadline(seconds: object, name: str, *, durable: bool) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_DELAY_SECONDS:
        raise InvalidTaskFunction(
            f"{name}: deadline_seconds must be a number of seconds from 0 to {MAX_DELAY_SECONDS:,}, not {seconds!r}."
        )
    if not durable:
        raise InvalidTaskFunction(
            f"{name}: deadline_seconds is for durable functions (durable=True); timeout_seconds limits an attempt."
        )
    return float(seconds)


def _checked_schedules(given: ScheduleOrSeveral, function: TaskFunction[..., Any]) -> tuple[Schedule, ...]:
    """Schedules with names, whose options and arguments fit the function."""
    if not given:
        return ()
    from tasklib.schedules import Schedule  # calendars and time zones: most tasks have no schedule

    several = (given,) if isinstance(given, Schedule | str) else tuple(given)
    named = [_with_name(Schedule.of(each), function.name) for each in several]
    for schedule in named:
        Options(**schedule.options)
        function.arguments.to_json(schedule.args)
    names = [schedule.name for schedule in named]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InvalidTaskFunction(
            f"{function.name} has {len(named)} schedules, of which several are named {min(map(str, repeated))!r}. "
            "Give each a name of its own: Schedule(..., name='...')."
        )
    return tuple(named)


def _with_name(schedule: Schedule, default: str) -> Schedule:
    return schedule if schedule.name is not None else replace(schedule, name=default)


def _checked_policy(policy: object, name: str) -> RetryPolicy | None:
    if policy is not None and not isinstance(policy, RetryPolicy):
        raise InvalidTaskFunction(f"{name}: retry_policy must be a RetryPolicy(...), not {policy!r}.")
    return policy


def _checked_exceptions(classes: object, name: str) -> tuple[type[BaseException], ...]:
    given: tuple[Any, ...] = classes if isinstance(classes, tuple) else (classes,)
    if not all(isinstance(c, type) and issubclass(c, BaseException) for c in given):
        raise InvalidTaskFunction(f"{name}: non_retriable must be exception classes, not {classes!r}.")
    return given
