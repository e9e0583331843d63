"""A task of Celery's: a function with `delay`, `apply_async`, `retry` and signatures, on a task function of TaskLib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.celery.attempt import worker_function
from tasklib.celery.binding import Binding
from tasklib.celery.exceptions import CeleryRetry, MaxRetriesExceededError, NotOnTaskLib
from tasklib.celery.rate_limits import limits_of
from tasklib.celery.request import CeleryRequest, request_of
from tasklib.celery.values import plain
from tasklib.errors import DatabaseUnavailable
from tasklib.tasks.context import current_task, running_task
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.limits import checked_limits
from tasklib.tasks.options import Options, did_you_mean

if TYPE_CHECKING:
    from tasklib.celery.app import Celery
    from tasklib.celery.canvas import CelerySignature
    from tasklib.celery.result import CeleryResult

REFUSED_ATTRIBUTES = {
    "Request": "TaskLib's worker makes the request",
    "Strategy": "TaskLib's worker runs the task",
    "add_around": "override __call__",
    "annotate": "set task_annotations",
    "from_config": "set the attributes of the task",
    "signature_from_request": "make a signature of self.request.args and kwargs",
    "subtask_from_request": "make a signature of self.request.args and kwargs",
    "add_to_chord": "return the work, or spawn it with tasklib.current_task().spawn(...) in a task of TaskLib",
    "add_trail": "results have no trail",
    "backend": "results are rows in PostgreSQL; look at app.AsyncResult(id)",
    "pop_request": "the request ends with the attempt",
    "push_request": "the request begins with the attempt",
    "request_stack": "look at self.request",
    "send_event": "use self.update_state, or tasklib.on_event",
    "shadow_name": "give the task a name of its own",
    "soft_time_limit": "give time_limit; long loops can look at tasklib.current_task().seconds_left",
    "start_strategy": "TaskLib's worker runs the task",
}
NO_EFFECT_ATTRIBUTES = {
    "abstract": "a base class is never registered",
    "acks_late": "TaskLib always does so",
    "acks_on_failure": "a task that fails for good is kept as a dead letter",
    "acks_on_failure_or_timeout": "a task that fails for good is kept as a dead letter",
    "acks_on_timeout": "a task that fails for good is kept as a dead letter",
    "reject_on_worker_lost": "a task whose worker is lost always runs again",
    "resultrepr_maxsize": "the dashboard shows results",
    "retry_on_worker_lost": "a task whose worker is lost always runs again",
    "send_events": "see the metrics and the dashboard",
    "store_errors_even_if_ignored": "TaskLib always does so",
    "throws": "the log of a worker names every error",
    "track_started": "TaskLib always does so",
    "trail": "results have no trail",
}
_ALLOWED = frozenset({"lazy", "shared", "pydantic", "pydantic_strict", "pydantic_context", "pydantic_dump_kwargs"})


class CeleryTask:
    """The base of all tasks. Attributes are those of `@app.task(...)`."""

    app: Celery
    name: str = ""
    function: TaskFunction[..., Any]
    """TaskLib's task function of the same name."""
    bind: bool = False
    typing: bool = True
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()
    retry_kwargs: Mapping[str, Any] = {}
    retry_backoff: bool | int = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    ignore_result: bool = False
    serializer: str | None = None
    queue: str | None = None
    priority: int | None = None
    time_limit: float | None = None
    rate_limit: str | float | None = None
    expires: float | datetime | None = None
    pydantic: bool = False
    acks_late: bool = True
    acks_on_failure = acks_on_failure_or_timeout = acks_on_timeout = True
    reject_on_worker_lost = retry_on_worker_lost = track_started = store_errors_even_if_ignored = True
    abstract: bool = True
    send_events: bool = True
    throws: Sequence[type[BaseException]] = ()
    trail: bool = False
    resultrepr_maxsize: int = 1024
    MaxRetriesExceededError = MaxRetriesExceededError
    OperationalError = DatabaseUnavailable

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The body of the task."""
        raise NotImplementedError("Tasks must define the run method.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if reason := REFUSED_ATTRIBUTES.get(name):
            raise NotOnTaskLib(f"TaskLib has no {name} of a task: {reason}.")
        raise AttributeError(f"the task {self.name!r} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<@task: {self.name} of {self.app.main}>"

    def __reduce__(self) -> Any:
        return _found_by_name, (self.name,)

    @property
    def binding(self) -> Binding:
        """The parameters of the function."""
        made = self.__dict__.get("_binding")
        if made is None:
            made = self.__dict__["_binding"] = Binding(self.run, self.name, bound=False, typing=self.typing)
        return made

    @property
    def request(self) -> CeleryRequest:
        """The attempt that is running here."""
        return request_of(self)

    # ---- submitting ----

    def delay(self, *args: Any, **kwargs: Any) -> CeleryResult:
        """Submit the task with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> CeleryResult:
        """Submit the task with these arguments and options."""
        return self.app.send_task(self.name, args, kwargs, **options)

    def apply(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> CeleryResult:
        """Run the task here and now, with its retries."""
        from tasklib.celery.eager import apply_here

        result: CeleryResult = apply_here(self, tuple(args or ()), dict(kwargs or {}), options)
        return result

    def AsyncResult(self, task_id: str, **_: Any) -> CeleryResult:
        """The result of a task by its id."""
        return self.app.AsyncResult(task_id)

    # ---- signatures ----

    def signature(self, args: Iterable[Any] | None = None, *starargs: Any, **starkwargs: Any) -> CelerySignature:
        """A signature: the task with some of its arguments and options."""
        from tasklib.celery.canvas import CelerySignature

        starkwargs.setdefault("app", self.app)
        return CelerySignature(self.name, args, *starargs, **starkwargs)

    subtask = signature

    def s(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """`add.s(2, 3)`: the same with the arguments one by one."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """The same, which takes nothing from the task before."""
        return self.signature(args, kwargs, immutable=True)

    def map(self, it: Iterable[Any]) -> CelerySignature:
        """One task that calls this one for each item."""
        from tasklib.celery.canvas import xmap

        return xmap(self.s(), it, app=self.app)

    def starmap(self, it: Iterable[Any]) -> CelerySignature:
        """One task that calls this one for each list of arguments."""
        from tasklib.celery.canvas import xstarmap

        return xstarmap(self.s(), it, app=self.app)

    def chunks(self, it: Iterable[Any], n: int) -> CelerySignature:
        """Tasks that each call this one for `n` lists of arguments."""
        from tasklib.celery.canvas import chunks

        return chunks(self.s(), it, n, app=self.app)

    # ---- while it runs ----

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> CeleryRetry:
        """End this attempt and have the task run again. It raises; Celery's programs write `raise self.retry(...)`."""
        request = self.request
        if request.called_directly:
            raise exc if exc is not None else RuntimeError(f"{self.name} was called directly, so it can't be retried.")
        if not throw:
            raise NotOnTaskLib("self.retry(throw=False): a retry ends the attempt. Submit another task instead.")
        if (args is not None and list(args) != request.args) or (kwargs is not None and dict(kwargs) != request.kwargs):
            raise NotOnTaskLib("self.retry(args=..., kwargs=...): a retry has the same arguments. Submit another task.")
        _refuse_changes(options)
        limit = self.max_retries if max_retries is None else max_retries
        if (limit is not None and request.retries >= limit) or _is_over(request):
            if exc is not None:
                raise exc
            raise MaxRetriesExceededError(
                f"Can't retry {self.name}[{request.id}] args:{request.args} kwargs:{request.kwargs}",
                task_args=request.args,
                task_kwargs=request.kwargs,
            )
        when = eta if eta is not None else self.default_retry_delay if countdown is None else countdown
        raise CeleryRetry(exc=exc, when=when)

    def replace(self, sig: CelerySignature) -> Any:
        """Let another task, or a chain or group of them, give the result of this one."""
        from tasklib.celery.replacing import replaced

        return replaced(self, sig)

    def update_state(self, task_id: str | None = None, state: str | None = None, meta: Any = None, **_: Any) -> None:
        """Report a state of your own: `result.state` and `result.info` while the task runs."""
        if running_task.get(None) is None or (task_id is not None and UUID(str(task_id)) != current_task().id):
            if self.request.is_eager:
                return
            raise NotOnTaskLib("update_state is for the task that is running here.")
        current_task().progress({"state": state, "meta": plain(meta)})

    # ---- handlers, for subclasses ----

    def before_start(self, task_id: Any, args: Any, kwargs: Any) -> None:
        """Called before each attempt."""

    def on_success(self, retval: Any, task_id: Any, args: Any, kwargs: Any) -> None:
        """Called after an attempt that succeeded."""

    def on_retry(self, exc: BaseException, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after an attempt that is followed by another."""

    def on_failure(self, exc: BaseException, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after the attempt that failed for good."""

    def after_return(self, status: str, retval: Any, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after each attempt."""

    def on_replace(self, sig: CelerySignature) -> Any:
        """Called with what takes the place of this task."""
        return sig

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Called when the task belongs to an app."""


def made_task(
    app: Celery, function: Callable[..., Any], name: str, base: type[CeleryTask], options: dict[str, Any]
) -> CeleryTask:
    """A task of a function, with the options of `@app.task(...)`."""
    check_options(name, options)
    body = _with_pydantic(function) if options.get("pydantic") else function
    attributes: dict[str, Any] = {
        **{key: value for key, value in options.items() if key not in ("lazy", "shared")},
        "name": name,
        "app": app,
        "abstract": False,
        "run": body if options.get("bind") else staticmethod(body),
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        "__wrapped__": function,
    }
    task: CeleryTask = type(function.__name__, (base,), attributes)()
    task.__dict__["__name__"] = function.__name__
    return registered(task, function)


def registered(task: CeleryTask, written: Callable[..., Any]) -> CeleryTask:
    """The same task with its task function, for workers."""
    from tasklib.celery.replacing import makes_replacements, replacing_function
    from tasklib.tasks import registry

    durable = makes_replacements(written)
    called = replacing_function(task) if durable else worker_function(task)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(called, attribute, getattr(written, attribute, getattr(task.run, attribute, None)))
    called.__annotations__ = {}
    vars(called)["__signature__"] = task.binding.payload_signature
    if task.__class__.__dict__.get("run") is not written and "." not in getattr(written, "__qualname__", "."):
        vars(called)["__wrapped__"] = written
    task.function = TaskFunction(
        called,
        name=task.name,
        durable=durable,
        non_retriable=(BaseException,),
        defaults=Options(max_retries=_limit(task)),
        limits=limits_of(task),
    )
    registry.register(task.function)
    task.on_bound(task.app)
    return task


def apply_attributes(task: CeleryTask, attributes: Mapping[str, Any]) -> None:
    """Set the attributes that `task_annotations` gives to a task."""
    check_options(task.name, attributes)
    for key, value in attributes.items():
        setattr(type(task), key, value)
    task.function.limits = checked_limits(limits_of(task), task.function)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse what `@app.task(...)` can't follow, by its name."""
    for key, value in options.items():
        if value is not None and (reason := REFUSED_ATTRIBUTES.get(key)):
            raise NotOnTaskLib(f"{name}: @app.task({key}=...): {reason}.")
        known = {n for n in dir(CeleryTask) if not n.startswith("_")} | _ALLOWED
        if key not in known and did_you_mean(key, known):
            raise TypeError(f"{name}: @app.task has no option {key!r}.{did_you_mean(key, known)}")


def _limit(task: CeleryTask) -> int:
    from tasklib.celery.submitting import retries_allowed

    return retries_allowed(task)


def _is_over(request: CeleryRequest) -> bool:
    return not request.is_eager and request.max_retries is not None and request.retries >= request.max_retries


def _refuse_changes(options: Mapping[str, Any]) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise NotOnTaskLib(f"self.retry({given[0]}=...): a retry is the same task, with the same options.")


def _with_pydantic(function: Callable[..., Any]) -> Callable[..., Any]:
    """`pydantic=True`: models among the parameters are read from dicts, and a model that is returned becomes one."""
    import functools

    from pydantic import validate_call

    checked = validate_call(config={"arbitrary_types_allowed": True})(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        returned = checked(*args, **kwargs)
        return returned.model_dump(mode="json") if hasattr(returned, "model_dump") else returned

    return call


def _found_by_name(name: str) -> CeleryTask:
    from tasklib.celery.app import current_app_or_default

    task: CeleryTask = current_app_or_default().tasks[name]
    return task
