"""`Celery`: the app. Its tasks are task functions of TaskLib, and `tasklib worker MODULE` runs them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tasklib.celery import beat, builtin_tasks, signals
from tasklib.celery.binding import HEADER, Binding, payload_of_unknown
from tasklib.celery.canvas import CelerySignature, maybe_signature
from tasklib.celery.control import CeleryControl
from tasklib.celery.discovery import import_related, imported, packages_of
from tasklib.celery.exceptions import NotOnTaskLib, NotRegistered
from tasklib.celery.request import running_celery_task
from tasklib.celery.result import CeleryResult
from tasklib.celery.result_sets import CeleryGroupResult, CeleryResultSet
from tasklib.celery.settings import CelerySettings
from tasklib.celery.submitting import Asked, asked
from tasklib.celery.task import CeleryTask, apply_attributes, check_options, made_task, registered
from tasklib.client.default import default_client
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.function_settings import Executor
from tasklib.tasks.submitter import Submission

if TYPE_CHECKING:
    from tasklib.celery.flows import CanvasEnd, CanvasFlow

REFUSED_OF_APPS = {
    "Beat": "the leader of the workers runs schedules: start `tasklib worker`",
    "WorkController": "start `tasklib worker MODULE`",
    "Worker": "start `tasklib worker MODULE`, or use tasklib.Worker",
    "add_defaults": "set app.conf",
    "amqp": "there is no broker",
    "annotations": "look at app.conf.task_annotations",
    "backend": "results are rows in PostgreSQL: look at app.AsyncResult(id)",
    "broker_connection": "there is no broker; a connection of yours is given to apply_async(connection=...)",
    "bugreport": "run `tasklib doctor`",
    "builtin_fixups": "`tasklib.django` connects Django",
    "config_from_cmdline": "set app.conf",
    "connection": "there is no broker; a connection of yours is given to apply_async(connection=...)",
    "connection_for_read": "there is no broker",
    "connection_for_write": "there is no broker",
    "connection_or_acquire": "there is no broker",
    "create_task_cls": "derive from tasklib.celery.Task",
    "default_connection": "there is no broker",
    "default_producer": "there is no broker",
    "events": "use tasklib.on_event, the metrics or the dashboard",
    "loader": "modules are imported by `tasklib worker MODULE`",
    "log": "`tasklib worker` sets up logging",
    "pool": "there is no broker",
    "prepare_config": "set app.conf",
    "producer_or_acquire": "there is no broker",
    "producer_pool": "there is no broker",
    "select_queues": "start `tasklib worker --queue NAME`",
    "setup_security": "give workers and producers database roles of their own",
    "start": "start `tasklib worker MODULE`",
    "steps": "use tasklib.on_startup and tasklib.on_shutdown",
    "subclass_with_self": "derive from the class itself",
    "user_options": "`tasklib` has commands of its own",
    "worker_main": "start `tasklib worker MODULE`",
    **dict.fromkeys(
        ("amqp_cls", "backend_cls", "control_cls", "events_cls", "loader_cls", "log_cls", "registry_cls"),
        "there is no such part to replace",
    ),
    **dict.fromkeys(("oid", "thread_oid"), "results are in the database"),
    **dict.fromkeys(("IS_WINDOWS", "IS_macOS", "SYSTEM"), "ask the platform module"),
    "Pickler": "nothing is pickled",
    "either": "set app.conf",
    "type_checker": "arguments are bound to the parameters of the function",
}
_apps: list[Celery] = []
_chosen: dict[str, Celery] = {}


class CeleryTasks(dict[str, CeleryTask]):
    """The tasks of this program by name. All apps share them, as all workers do."""

    def __missing__(self, name: str) -> CeleryTask:
        raise NotRegistered(name)


tasks = CeleryTasks()


class Celery:
    """An app: `app = Celery("proj", include=["proj.tasks"])`."""

    task_cls: type[CeleryTask] = CeleryTask

    def __init__(
        self,
        main: str | None = None,
        loader: Any = None,
        backend: str | None = None,
        amqp: Any = None,
        events: Any = None,
        log: Any = None,
        control: Any = None,
        set_as_current: bool = True,
        tasks: Any = None,
        broker: str | None = None,
        include: Iterable[str] | None = None,
        changes: Mapping[str, Any] | None = None,
        config_source: Any = None,
        fixups: Any = None,
        task_cls: type[CeleryTask] | None = None,
        autofinalize: bool = True,
        namespace: str | None = None,
        strict_typing: bool = True,
        **settings: Any,
    ) -> None:
        given = {"loader": loader, "amqp": amqp, "events": events, "log": log, "control": control, "tasks": tasks}
        if unknown := [name for name, value in given.items() if value is not None]:
            raise NotOnTaskLib(f"Celery({unknown[0]}=...): there is no such part to replace.")
        self.main = main
        self.strict_typing = strict_typing
        self.conf = CelerySettings()
        self.on_configure = signals.CelerySignal("app.on_configure")
        self.on_after_configure = signals.CelerySignal("app.on_after_configure")
        self.on_after_finalize = signals.CelerySignal("app.on_after_finalize")
        self.on_after_fork = signals.worker_process_init
        self.on_init = None
        self.finalized = self._is_configured = False
        self.control = CeleryControl()
        self._packages: list[tuple[Any, str]] = []
        self._periodic: dict[str, dict[str, Any]] = {}
        if task_cls is not None:
            self.task_cls = imported(task_cls) if isinstance(task_cls, str) else task_cls
        self.Task = self.task_cls
        said = {"broker_url": broker, "result_backend": backend, "include": include, **(changes or {}), **settings}
        if config_source is not None:
            self.conf.read(config_source, namespace)
        for name, value in said.items():
            if value is not None:
                self.conf[name] = value
        _apps.append(self)
        if set_as_current:
            self.set_current()
        registry.discover_with(finalize_apps)

    def __repr__(self) -> str:
        return f"<Celery {self.main or '__main__'} on TaskLib>"

    def __enter__(self) -> Celery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if reason := REFUSED_OF_APPS.get(name):
            raise NotOnTaskLib(f"TaskLib has no app.{name}: {reason}.")
        raise AttributeError(f"the app has no attribute {name!r}")

    # ---- settings ----

    def config_from_object(
        self, obj: Any, silent: bool = False, force: bool = False, namespace: str | None = None
    ) -> None:
        """Read the settings of a module, an object or a dict; with `namespace`, those that begin with it."""
        try:
            if isinstance(obj, str) and ":" in obj:
                obj = imported(obj)
            elif isinstance(obj, str) and importlib.util.find_spec(obj.partition(".")[0]) is None:
                sys.path.insert(0, os.getcwd())
            self.conf.read(_django_settings(obj), namespace)
        except ImportError:
            if not silent:
                raise
        self.on_configure.send(self)

    def config_from_envvar(self, variable_name: str, silent: bool = False, force: bool = False) -> None:
        """Read the settings of the module that this variable of the environment names."""
        if name := os.environ.get(variable_name):
            self.config_from_object(name, silent=silent)
        elif not silent:
            raise NotOnTaskLib(f"the variable {variable_name} is not set, and should name a module with settings.")

    def autodiscover_tasks(self, packages: Any = None, related_name: str | None = "tasks", force: bool = False) -> None:
        """Have the worker import the module `tasks` of these packages; without any, of Django's apps."""
        self._packages.append((packages, related_name or ""))
        self.finalized = False
        if force:
            self.finalize()

    def finalize(self, auto: bool = False) -> None:
        """Import what was announced, and set up schedules. Workers do so when they start."""
        if not self._is_configured:
            self._is_configured = True
            self.on_after_configure.send(self)
        for module in (*_listed(self.conf.imports), *_listed(self.conf.include)):
            importlib.import_module(module)
        builtin_tasks.ensure(self)
        packages, self._packages = self._packages, []
        for names, related in packages:
            for name in packages_of(names):
                import_related(name, related)
        if not self.finalized:
            self.finalized = True
            self.on_after_finalize.send(self)
        if self.conf.worker_pool in ("prefork", "processes"):
            for task in tasks.values():
                if task.function.can_run_in_a_process:
                    task.function.executor = Executor.PROCESS
        annotated(self)
        beat.declare(self, {**(self.conf.beat_schedule or {}), **self._periodic})

    def add_periodic_task(
        self, schedule: Any, sig: Any, args: Any = (), kwargs: Any = None, name: str | None = None, **opts: Any
    ) -> str:
        """Run a signature by a schedule."""
        part = maybe_signature(sig, self) if isinstance(sig, dict) else CelerySignature(sig, app=self)
        key = name or repr(part)
        self._periodic[key] = {
            "task": part["task"],
            "schedule": schedule,
            "args": (*part["args"], *args),
            "kwargs": {**part["kwargs"], **(kwargs or {})},
            "options": {**part["options"], **opts},
        }
        return key

    @property
    def timezone(self) -> ZoneInfo:
        """Of times without a zone, and of `crontab`."""
        zone = self.conf.timezone or "UTC"
        return ZoneInfo(zone) if isinstance(zone, str) else zone

    def now(self) -> datetime:
        """The time in that zone."""
        return datetime.now(self.timezone)

    uses_utc_timezone = property(lambda self: str(self.timezone) == "UTC")

    # ---- tasks ----

    @property
    def tasks(self) -> CeleryTasks:
        """All tasks by name."""
        builtin_tasks.ensure(self)
        return tasks

    def task(self, *args: Any, **options: Any) -> Any:
        """Make a task of a function: `@app.task`, `@app.task(bind=True, max_retries=5)`."""

        def decorate(function: Callable[..., Any]) -> CeleryTask:
            name = options.get("name") or self.gen_task_name(function.__name__, function.__module__)
            base = options.get("base") or self.Task
            rest = {key: value for key, value in options.items() if key not in ("name", "base")}
            if self.conf.task_ignore_result:
                rest.setdefault("ignore_result", True)
            made = made_task(self, function, name, base, rest)
            tasks[name] = made
            return made

        if args and callable(args[0]):
            return decorate(args[0])
        return decorate

    def register_task(self, task: Any, **options: Any) -> CeleryTask:
        """Register a task that was written as a class."""
        made: CeleryTask = task() if isinstance(task, type) else task
        made.app = self
        if not made.name:
            type(made).name = self.gen_task_name(type(made).__name__, type(made).__module__)
        check_options(made.name, options)
        for key, value in options.items():
            setattr(type(made), key, value)
        tasks[made.name] = registered(made, type(made).run)
        return made

    def gen_task_name(self, name: str, module: str) -> str:
        """The name of a task that has none: that of its module and function."""
        return f"{self.main or '__main__'}.{name}" if module == "__main__" else f"{module}.{name}"

    def function_of(self, name: str) -> tuple[TaskFunction[..., Any], Binding | None]:
        """The task function of this name, and its parameters; one without a body if only others have it."""
        builtin_tasks.ensure(self)
        if (task := tasks.get(name)) is not None:
            return task.function, task.binding
        known = registry.functions.get(name)
        return (builtin_tasks.elsewhere(name), None) if known is None else (known, builtin_tasks.binding_of(known))

    current_task = property(lambda self: running_celery_task())
    current_worker_task = current_task

    # ---- submitting ----

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> CeleryResult:
        """Submit a task by its name, also one that only another program has."""
        result: CeleryResult = self.submit(name, tuple(args or ()), dict(kwargs or {}), options)
        return result

    def submit(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: Mapping[str, Any]) -> Any:
        """Submit one task."""
        if self.conf.task_always_eager and name in tasks:
            return tasks[name].apply(args, kwargs, **options)
        wish = asked(self, name, self.tasks.get(name), options)
        if wish.link or wish.link_error:
            from tasklib.celery.flows import submit_with_callbacks

            return submit_with_callbacks(self, CelerySignature(name, args, kwargs, options, app=self))
        return self.submit_asked(name, args, kwargs, wish)

    def submit_asked(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wish: Asked) -> Any:
        """Submit one task with options that are read already."""
        function, binding = self.function_of(name)
        payload = payload_of_unknown(args, kwargs) if binding is None else binding.payload(args, kwargs)
        if wish.header:
            payload[HEADER] = wish.header
        return CeleryResult(self._stored(Submission(function, payload, wish.options), wish, name), app=self)

    def _stored(self, item: Submission[Any], wish: Asked, name: str) -> Any:
        client = default_client()
        told = {"headers": wish.header.get("headers") or {}, "routing_key": wish.options.queue, "exchange": ""}
        signals.before_task_publish.send(name, body=item.kwargs, **told)
        if wish.task_id is None:
            task_id = client.perform(client.calls.submit(item, connection=wish.connection))
        else:
            task_id = client.perform(client.calls.submit_each([item], ids=[wish.task_id]))[0].id
        signals.after_task_publish.send(name, body=item.kwargs, **{**told, "headers": {"id": str(task_id)}})
        return task_id

    def submit_flow(self, canvas: CanvasFlow, end: CanvasEnd) -> Any:
        """Submit a canvas, and return the result of its end."""
        from tasklib.celery.flows import run_flow

        return end.result(run_flow(canvas))

    def signature(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """A signature of a task of this app."""
        from tasklib.celery.canvas import signature

        return signature(*args, **{"app": self, **kwargs})

    def AsyncResult(self, task_id: Any, **_: Any) -> CeleryResult:
        """The result of a task by its id."""
        return CeleryResult(task_id, app=self)

    GroupResult = CeleryGroupResult
    ResultSet = CeleryResultSet

    # ---- the app itself ----

    def set_current(self) -> None:
        """Make it the one that `current_app` is."""
        _chosen["current"] = self

    def set_default(self) -> None:
        """Make it the one that `current_app` is where none was chosen."""
        _chosen["default"] = self

    def close(self) -> None:
        """Forget the app."""
        if self in _apps:
            _apps.remove(self)
        for name in [name for name, app in _chosen.items() if app is self]:
            del _chosen[name]


def current_app_or_default() -> Celery:
    """The app that was made or chosen last; a new one if there is none."""
    if app := _chosen.get("current") or _chosen.get("default"):
        return app
    return Celery("default")


def finalize_apps() -> None:
    """What workers do before they serve the tasks of all apps."""
    for app in list(_apps):
        app.finalize()


def shared_task(*args: Any, **options: Any) -> Any:
    """A task that belongs to whichever app there is: for modules that don't know it."""

    def decorate(function: Callable[..., Any]) -> Any:
        app = _chosen.get("current") or _chosen.get("default") or _for_shared()
        return app.task(**options)(function)

    return decorate(args[0]) if args and callable(args[0]) else decorate


def annotated(app: Celery) -> None:
    """Set the attributes that `task_annotations` gives to tasks."""
    for annotation in _listed(app.conf.task_annotations):
        for pattern, attributes in annotation.items():
            for task in [t for name, t in tasks.items() if pattern in ("*", name)]:
                apply_attributes(task, attributes)


def _for_shared() -> Celery:
    """The app of shared tasks that are defined before any other: `shared_task` of Celery waits for one."""
    app = Celery("shared", set_as_current=False)
    app.set_default()
    return app


def _django_settings(source: Any) -> Any:
    """`config_from_object("django.conf:settings")` as Django's users write it."""
    return imported(source) if isinstance(source, str) and source == "django.conf.settings" else source


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
