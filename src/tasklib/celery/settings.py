"""Celery's settings: those that TaskLib follows, those without a meaning here, and those it refuses."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from types import ModuleType
from typing import Any

from tasklib.celery.exceptions import ImproperlyConfigured
from tasklib.config import url_in
from tasklib.tasks.default_client import provide_default_client
from tasklib.tasks.options import did_you_mean

FOLLOWED = {
    "accept_content": "must be JSON",
    "beat_schedule": "becomes schedules of TaskLib, named like the entries",
    "broker_url": "a postgresql:// URL is the database; any other is not used",
    "imports": "imported by the worker",
    "include": "imported by the worker",
    "result_accept_content": "must be JSON",
    "result_serializer": "must be JSON",
    "task_allow_error_cb_on_chord_header": "as in Celery",
    "task_always_eager": "tasks run where they are called, without the database",
    "task_annotations": "for attributes that `@app.task` takes",
    "task_default_priority": "of tasks that say nothing else",
    "task_default_queue": "without it, the queue is called `default`, not `celery`",
    "task_default_rate_limit": "of tasks without a `rate_limit`; over the whole fleet, not for each worker",
    "task_eager_propagates": "as in Celery",
    "task_ignore_result": "the stored result is None",
    "task_routes": "as far as they name queues and priorities",
    "task_serializer": "must be JSON",
    "task_time_limit": "the timeout of each attempt, in whole seconds",
    "timezone": "of `crontab` and of times without a zone",
    "worker_pool": "`prefork`: in child processes; `threads`, which is the default here, and `solo`: in threads",
}
_BROKER = "there is no broker besides PostgreSQL"
_RESULTS = "results are rows in PostgreSQL"
_EVENTS = "see the metrics, the dashboard and `tasklib.on_event`"
_LOGS = "see `tasklib worker --help`"
_ALWAYS = "TaskLib always does so"
NO_EFFECT = {
    "beat_cron_starting_deadline": "see `catch_up_window` of a schedule",
    "beat_enable_remote_control": "there is no beat process",
    "beat_max_loop_interval": "there is no beat process",
    "beat_remote_control_max_tick_age": "there is no beat process",
    "beat_schedule_filename": "schedules are rows in PostgreSQL",
    "beat_scheduler": "schedules are rows in PostgreSQL, which the dashboard and the command line change",
    "beat_sync_every": "schedules are rows in PostgreSQL",
    "enable_utc": "times are stored with their zone",
    "result_backend": "results are in the database of the tasks",
    "result_expires": "set `TASKLIB_RETENTION`, such as `completed=30` for 30 days; without it tasks are kept",
    "result_extended": _ALWAYS,
    "task_acks_late": _ALWAYS + ": a task whose worker is lost runs again",
    "task_create_missing_queues": "a queue exists as soon as a task names it",
    "task_compression": "PostgreSQL compresses large rows",
    "task_protocol": _BROKER,
    "task_publish_retry": "a submission without an answer is repeated, and never stored twice",
    "task_publish_retry_policy": "a submission without an answer is repeated, and never stored twice",
    "task_queue_max_priority": "every queue has priorities from -10 to 100",
    "task_reject_on_worker_lost": _ALWAYS + ": a task whose worker is lost runs again",
    "task_remote_tracebacks": "the traceback is part of the stored error",
    "task_repr_maxlevels": _EVENTS,
    "task_retry_on_worker_lost": _ALWAYS + ": a task whose worker is lost runs again",
    "task_send_sent_event": _EVENTS,
    "task_store_errors_even_if_ignored": _ALWAYS,
    "task_track_started": _ALWAYS,
    "worker_concurrency": "give `tasklib worker --concurrency 8`",
    "worker_deduplicate_successful_tasks": _ALWAYS + ": a result is stored once",
    "worker_disable_prefetch": "only tasks of milliseconds are prefetched",
    "worker_disable_rate_limits": "a rate is a row in PostgreSQL: see `tasklib limit`",
    "worker_lost_wait": "see `TASKLIB_LOCK_TIMEOUT_SECONDS`",
    "worker_max_memory_per_child": "watch the children's memory with the system's limits",
    "worker_max_tasks_per_child": "child processes are replaced when they end or are killed",
    "worker_prefetch_multiplier": "only tasks of milliseconds are prefetched",
    "worker_proc_alive_timeout": "see `TASKLIB_LOCK_TIMEOUT_SECONDS`",
    "worker_send_task_events": _EVENTS,
    "worker_soft_shutdown_timeout": "see `TASKLIB_SHUTDOWN_GRACE_SECONDS`",
    "worker_state_db": "a revoked task is a row in PostgreSQL",
}
_NO_EFFECT_BEGINNINGS = {
    "broker_": _BROKER,
    "control_": "see the commands of `tasklib`",
    "event_": _EVENTS,
    "result_": _RESULTS,
    "arangodb_": _RESULTS,
    "azureblockblob_": _RESULTS,
    "cache_": _RESULTS,
    "cassandra_": _RESULTS,
    "cosmosdbsql_": _RESULTS,
    "couchbase_": _RESULTS,
    "database_": _RESULTS,
    "elasticsearch_": _RESULTS,
    "gcs_": _RESULTS,
    "mongodb_": _RESULTS,
    "redis_": _RESULTS,
    "s3_": _RESULTS,
    "worker_log_": _LOGS,
    "worker_task_log_": _LOGS,
    "worker_hijack_": _LOGS,
    "worker_redirect_": _LOGS,
    "worker_": "see the options of `tasklib worker`",
    "task_create_missing_queue_": "a queue exists as soon as a task names it",
    "task_default_delivery_mode": _BROKER,
    "task_default_exchange": _BROKER,
    "task_default_queue_type": _BROKER,
    "task_default_routing_key": _BROKER,
}
REFUSED = {
    "security_cert_store": "give workers and producers database roles of their own, and TLS",
    "security_certificate": "give workers and producers database roles of their own, and TLS",
    "security_digest": "give workers and producers database roles of their own, and TLS",
    "security_key": "give workers and producers database roles of their own, and TLS",
    "security_key_password": "give workers and producers database roles of their own, and TLS",
    "task_acks_on_failure": "a task that fails ends as a dead letter, which you replay",
    "task_acks_on_failure_or_timeout": "a task that fails ends as a dead letter, which you replay",
    "task_acks_on_timeout": "a task that fails ends as a dead letter, which you replay",
    "task_inherit_parent_priority": "give the priority when you submit",
    "task_queues": "queues need no declaration: name them in task_routes and in `tasklib worker --queue NAME`",
    "task_soft_time_limit": "set task_time_limit; long loops can look at tasklib.current_task().seconds_left",
    "task_store_eager_result": "eager tasks aren't stored",
    "worker_direct": "give the worker a queue of its own with `tasklib worker --queue NAME`",
}
_JSON_ONLY = ("accept_content", "result_accept_content", "result_serializer", "task_serializer", "event_serializer")
_DEFAULTS: dict[str, Any] = {
    "accept_content": ["json"],
    "beat_schedule": {},
    "enable_utc": True,
    "imports": (),
    "include": (),
    "result_serializer": "json",
    "task_annotations": None,
    "task_always_eager": False,
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_serializer": "json",
    "worker_pool": "threads",
}
_WARNED = ("result_expires",)
_OLD = {"celerybeat_": "beat_", "celeryd_": "worker_"}
_OLD_WITHOUT_TASK = ("always_eager", "eager_propagates", "ignore_result", "routes", "annotations", "time_limit")


def meaning(name: str) -> tuple[str, str]:
    """What becomes of a setting of Celery's: followed, no effect or refused, and why."""
    for kind, known in (("followed", FOLLOWED), ("no effect", NO_EFFECT), ("refused", REFUSED)):
        if name in known:
            return kind, known[name]
    beginnings = [start for start in _NO_EFFECT_BEGINNINGS if name.startswith(start)]
    return ("no effect", _NO_EFFECT_BEGINNINGS[max(beginnings, key=len)]) if beginnings else ("unknown", "")


class CelerySettings(MutableMapping[str, Any]):
    """`app.conf`: settings as attributes and as items, checked when they are set."""

    def __init__(self) -> None:
        self.__dict__["_given"] = {}

    def __getitem__(self, name: str) -> Any:
        given: dict[str, Any] = self.__dict__["_given"]
        return given[name] if name in given else _DEFAULTS[name] if name in _DEFAULTS else self._missing(name)

    def __setitem__(self, name: str, value: Any) -> None:
        known = modern_name(name)
        _check(known, value)
        if known == "broker_url":
            _use_database(value)
        self.__dict__["_given"][known] = value

    def __delitem__(self, name: str) -> None:
        del self.__dict__["_given"][name]

    def __iter__(self) -> Iterator[str]:
        return iter({**_DEFAULTS, **self.__dict__["_given"]})

    def __len__(self) -> int:
        return len({**_DEFAULTS, **self.__dict__["_given"]})

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as e:
            raise AttributeError(str(e)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def _missing(self, name: str) -> Any:
        if meaning(name)[0] == "unknown":
            raise KeyError(f"there is no setting {name!r}.{did_you_mean(name, FOLLOWED)}")
        return None

    def read(self, source: Any, namespace: str | None = None) -> None:
        """Take the settings of a module, its name, an object or a dict; those that begin with the namespace, if any."""
        values = _values(importlib.import_module(source) if isinstance(source, str) else source)
        prefix = f"{namespace.rstrip('_').lower()}_" if namespace else ""
        for name, value in values.items():
            lower = name.lower()
            if name.startswith("_") or isinstance(value, ModuleType) or not lower.startswith(prefix):
                continue
            short = lower.removeprefix(prefix)
            if prefix or meaning(modern_name(short))[0] != "unknown":
                self[short] = value


def _values(source: Any) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    return {name: getattr(source, name) for name in dir(source) if not name.startswith("_")}


def modern_name(name: str) -> str:
    """The name since Celery 4 of a setting that may have an older one."""
    lower = name.lower()
    if meaning(lower)[0] != "unknown":
        return lower
    for old, new in _OLD.items():
        if lower.startswith(old):
            return lower.replace(old, new, 1)
    bare = lower.removeprefix("celery_")
    for candidate in (bare, f"task_{bare}"):
        if meaning(candidate)[0] != "unknown":
            return candidate
    return lower


def _use_database(url: Any) -> None:
    """Let the module-level calls use this database, unless the environment names one."""
    if not isinstance(url, str) or not url.startswith(("postgresql://", "postgres://")):
        return

    def client() -> Any:
        from tasklib.client.clients import Client

        return Client() if url_in(os.environ) else Client(url)

    provide_default_client(client)


def _check(name: str, value: Any) -> None:
    kind, why = meaning(name)
    if kind == "refused" and value not in (None, False, (), [], {}):
        raise ImproperlyConfigured(f"TaskLib doesn't follow the setting {name}: {why}.")
    if kind == "unknown":
        near = did_you_mean(name, FOLLOWED)
        warnings.warn(f"{name} is not a setting of Celery's, and has no effect.{near}", stacklevel=4)
    if name in _WARNED:
        warnings.warn(f"the setting {name} has no effect on TaskLib: {why}.", stacklevel=4)
    if name in _JSON_ONLY:
        formats = [value] if isinstance(value, str) else list(value or ())
        if others := [each for each in formats if each not in ("json", "application/json")]:
            raise ImproperlyConfigured(
                f"{name} names {others[0]}, and TaskLib stores JSON only. Pass an id instead of an object."
            )
    if name == "worker_pool" and value not in ("prefork", "processes", "threads", "solo"):
        raise ImproperlyConfigured(
            f"worker_pool={value!r}: TaskLib has child processes (prefork), threads, and async functions on its loop."
        )
