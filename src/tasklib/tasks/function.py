"""`@task`: what turns a function into a task function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Protocol, TypedDict, overload

from typing_extensions import ParamSpec, TypeVar, Unpack

from tasklib.errors import InvalidTaskFunction
from tasklib.tasks import registry
from tasklib.tasks.dependencies import refuse_async
from tasklib.tasks.function_settings import (
    Executor,
    ScheduleOrSeveral,
    checked_aliases,
    checked_compress,
    checked_deadline,
    checked_exceptions,
    checked_executor,
    checked_name,
    checked_policy,
    checked_schedules,
    refuse_retries,
    refuse_with_durable,
)
from tasklib.tasks.options import (
    NOTHING_SAID,
    Options,
    SubmitOptions,
    did_you_mean,
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

    from tasklib.tasks.batches import Batch
    from tasklib.tasks.breakers import Breaker
    from tasklib.tasks.limits import Limit

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U", bound=Upcast)
C = TypeVar("C", default=Any)
Q = ParamSpec("Q", default=...)  # the last one: Python 3.13.0 takes no other default after that of a ParamSpec


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
        self.name = checked_name(name, function)
        self.aliases = checked_aliases(aliases, self.name)
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
        self.executor = checked_executor(executor, self.name, self.is_async, self.takes_connection)
        self.retry_policy = checked_policy(retry_policy, self.name)
        self.non_retriable = checked_exceptions(non_retriable, self.name)
        self.at_most_once = at_most_once
        self.durable = durable
        """It has steps on record, and can be suspended."""
        self.deadline_seconds = checked_deadline(deadline_seconds, self.name, durable=durable)
        """Of a durable function: how long the task may take as a whole, suspended or not."""
        if durable:
            refuse_with_durable(self)
        if at_most_once:
            refuse_retries(self, defaults)
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
        self.schedules = checked_schedules(schedules, self)
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
        self.compress = checked_compress(compress, self.name)
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


def _registered_upcast(versions: Versions, version: int, upcast: U) -> U:
    versions.add(version, upcast)
    return upcast


def keys_of(function: TaskFunction[..., Any]) -> list[tuple[str, str | None]]:
    """The settings that name an argument."""
    of_limits = (("Limit(key=...)", each.key) for each in function.limits)
    return [("serial_key", function.serial_key), ("share", function.share), *of_limits]
