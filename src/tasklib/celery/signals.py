"""Celery's signals, of which TaskLib sends those around a task, a submission and a worker.

@task_failure.connect
def report(sender=None, task_id=None, exception=None, **kwargs): ...
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.tasks.hooks import on_shutdown, on_startup, startups

_log = logging.getLogger("tasklib.celery")


class CelerySignal:
    """Functions that are called when something happens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._receivers: list[tuple[Callable[..., Any], Any]] = []

    def connect(self, *args: Any, sender: Any = None, weak: bool = True, dispatch_uid: Any = None, **_: Any) -> Any:
        """Call this function from now on; also as a decorator, with and without `sender=`."""

        def add(receiver: Callable[..., Any]) -> Callable[..., Any]:
            if (receiver, sender) not in self._receivers:
                self._receivers.append((receiver, sender))
            if self.name.startswith("worker_"):
                _follow_workers()
            return receiver

        return add(args[0]) if args and callable(args[0]) else add

    def disconnect(self, receiver: Any = None, sender: Any = None, **_: Any) -> bool:
        """Call it no longer."""
        before = len(self._receivers)
        self._receivers = [each for each in self._receivers if each != (receiver, sender)]
        return len(self._receivers) < before

    def send(self, sender: Any, **named: Any) -> list[tuple[Any, Any]]:
        """Call all of them. What one raises is logged, and part of the answer."""
        answers = []
        for receiver, wanted in list(self._receivers):
            if wanted is not None and wanted is not sender and wanted != getattr(sender, "name", sender):
                continue
            try:
                answers.append((receiver, receiver(signal=self, sender=sender, **named)))
            except Exception as e:
                _log.exception("the receiver %r of the signal %s raised", receiver, self.name)
                answers.append((receiver, e))
        return answers

    send_robust = send

    @property
    def receivers(self) -> list[Callable[..., Any]]:
        """Who is called."""
        return [receiver for receiver, _ in self._receivers]


before_task_publish = CelerySignal("before_task_publish")
after_task_publish = CelerySignal("after_task_publish")
task_prerun = CelerySignal("task_prerun")
task_postrun = CelerySignal("task_postrun")
task_success = CelerySignal("task_success")
task_failure = CelerySignal("task_failure")
task_retry = CelerySignal("task_retry")
worker_init = CelerySignal("worker_init")
worker_ready = CelerySignal("worker_ready")
worker_process_init = CelerySignal("worker_process_init")
worker_process_shutdown = CelerySignal("worker_process_shutdown")
worker_shutdown = CelerySignal("worker_shutdown")


def _start_worker() -> None:
    worker_init.send(None)
    worker_ready.send(None)


def _stop_worker() -> None:
    worker_shutdown.send(None)


def _start_child() -> None:
    worker_process_init.send(None)


def _stop_child() -> None:
    worker_process_shutdown.send(None)


def _follow_workers() -> None:
    """Have them sent when workers and their child processes start and stop."""
    if all(hook.function is not _start_worker for hook in startups):
        on_startup(where="worker")(_start_worker)
        on_shutdown(where="worker")(_stop_worker)
        on_startup(where="child")(_start_child)
        on_shutdown(where="child")(_stop_child)


_REFUSED = {
    "task_internal_error": "a worker's own errors are in its log",
    "task_received": "a worker claims tasks only to run them: use task_prerun",
    "task_rejected": "use tasklib.on_event",
    "task_unknown": "a worker claims only tasks that it knows; `tasklib doctor` lists the others",
    "task_revoked": "use tasklib.on_event",
    "celeryd_init": "use worker_init",
    "celeryd_after_setup": "use worker_init",
    "worker_before_create_process": "use worker_process_init",
    "worker_shutting_down": "use worker_shutdown",
    "setup_logging": "`tasklib worker` sets up logging; call logging.config yourself in worker_init",
    "after_setup_logger": "use worker_init",
    "after_setup_task_logger": "use worker_init",
    "beat_init": "there is no beat: the leader of the workers runs schedules",
    "beat_embedded_init": "there is no beat: the leader of the workers runs schedules",
    "heartbeat_sent": "use tasklib.on_event, or the metrics",
    "eventlet_pool_started": "there is no eventlet pool",
    "eventlet_pool_preshutdown": "there is no eventlet pool",
    "eventlet_pool_postshutdown": "there is no eventlet pool",
    "eventlet_pool_apply": "there is no eventlet pool",
}


def __getattr__(name: str) -> Any:
    if reason := _REFUSED.get(name):
        raise NotOnTaskLib(f"TaskLib doesn't send the signal {name}: {reason}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
