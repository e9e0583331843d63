"""`app.control`: what Celery's users tell workers, as far as TaskLib follows it."""

from __future__ import annotations

from typing import Any

from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.celery.rate_limits import rate_of
from tasklib.client.default import default_client

REFUSED_OF_CONTROL = {
    "Mailbox": "there is no broker",
    "add_consumer": "start another `tasklib worker --queue NAME`",
    "autoscale": "scale the workers by seconds of backlog, from the metrics",
    "broadcast": "use the commands of `tasklib`",
    "cancel_consumer": "run `tasklib pause --queue NAME`",
    "disable_events": "there is nothing to disable",
    "discard_all": "run `tasklib cancel`",
    "election": "the leader is elected in the database",
    "enable_events": "there is nothing to enable",
    "heartbeat": "run `tasklib workers`",
    "inspect": "run `tasklib workers`, `tasklib list` or `tasklib top`, or ask tasklib.Client",
    "ping": "run `tasklib workers`",
    "pool_grow": "start another worker",
    "pool_restart": "restart the worker: it finishes what it runs",
    "pool_shrink": "stop a worker: it finishes what it runs",
    "purge": "run `tasklib cancel --state pending`",
    "revoke_by_stamped_headers": "run `tasklib cancel --tag ...`",
    "shutdown": "run `tasklib workers drain ID`, or stop its process",
    "time_limit": "set time_limit of the task",
}


class CeleryControl:
    """`app.control`, of which TaskLib has `revoke` and `rate_limit`."""

    def revoke(self, task_id: Any, terminate: bool = False, **_: Any) -> None:
        """Cancel tasks by their ids; those that run are asked to stop."""
        for each in task_id if isinstance(task_id, list | tuple | set | frozenset) else [task_id]:
            default_client().cancel_task(str(each))

    def terminate(self, task_id: Any, **_: Any) -> None:
        """The same."""
        self.revoke(task_id)

    def rate_limit(self, task_name: str, rate_limit: str | float | None, **_: Any) -> None:
        """Change how often a task begins, over the whole fleet; None or 0 for no limit."""
        found, name = rate_of(rate_limit), f"name:{task_name}"
        if found is None:
            default_client().remove_limit(name)
        else:
            default_client().set_limit(name, rate=found[0], per=found[1])

    def __getattr__(self, name: str) -> Any:
        if reason := REFUSED_OF_CONTROL.get(name):
            raise NotOnTaskLib(f"TaskLib has no app.control.{name}: {reason}.")
        raise AttributeError(f"app.control has no attribute {name!r}")
