"""The table of Celery's public names on the page `celery.md`: those of Celery 5.7.0, recorded in `celery_names.json`.

`python docs/reference/celery_names.py` records them anew where Celery is installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "celery_names.json"
_MODULE = {
    "Celery", "Signature", "Task", "bugreport", "chain", "chord", "chunks", "current_app", "current_task", "group",
    "maybe_patch_concurrency", "maybe_signature", "shared_task", "signature", "subtask", "uuid", "xmap", "xstarmap",
}  # fmt: skip

DIFFERENT = {
    "Celery.AsyncResult": "",
    "Celery.conf": "checked when it is set, and without the defaults of settings that have no effect",
    "Celery.control": "`revoke`, `terminate` and `rate_limit` alone",
    "Celery.autodiscover_tasks": "imports when a worker starts, or with `force=True`",
    "Celery.on_after_fork": "sent when a child process starts, as `worker_process_init`",
    "Celery.on_init": "never called",
    "Celery.tasks": "all apps of a program share their tasks, as names are unique in the database",
    "Celery.set_default": "counts where no app was made current",
    "Task.bind": "an attribute; `on_bound` is called when the task belongs to its app",
    "Task.OperationalError": "`tasklib.DatabaseUnavailable`",
    "Task.priority": "-10 to 100, highest first",
    "Task.replace": "stores the task as a durable function; write it in the function itself",
    "Task.retry": "the same task again: no other arguments, no other options, no `throw=False`",
    "Task.rate_limit": "over the whole fleet, not for each worker",
    "Task.request": "without `group` and the broker's properties",
    "Task.time_limit": "whole seconds; a function in a thread goes on after its task has failed",
    "Task.expires": "",
    "Task.update_state": "of the task that runs here",
    "Task.max_retries": "stored with the task; `self.retry(max_retries=...)` can only lower it",
    "Signature.id": "only of a `task_id` that was given",
    "Signature.parent_id": "None",
    "Signature.root_id": "None",
    "AsyncResult.state": "PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, and states of `update_state`",
    "AsyncResult.get": "raises `TaskNotFound` for an id that does not exist; looks for `on_message` each `interval`",
    "AsyncResult.revoke": "a running task is asked to stop, also without `terminate`",
    "AsyncResult.children": "the tasks of the canvas that wait for this one; known from the start",
    "AsyncResult.ignored": "False",
    "AsyncResult.traceback": "of the last failed attempt, also while it is retried",
    "AsyncResult.result": "an exception is made again from its class and its message",
    "GroupResult.id": "that of the flow",
    "exceptions.NotRegistered": "raised by a schedule of an unknown task",
    "exceptions.OperationalError": "`tasklib.DatabaseUnavailable`",
    "exceptions.Retry": "what `self.retry` raises; don't raise it yourself",
    "exceptions.Reject": "a dead letter; with `requeue=True` a retry",
    "exceptions.Ignore": "the task is completed with None",
    "exceptions.ChordError": "never raised: the error of the failed task comes out",
    "signals.worker_ready": "sent before the first claim",
    "signals.before_task_publish": "not for the tasks of a canvas",
    "signals.after_task_publish": "not for the tasks of a canvas",
    "schedules.crontab": "no `nowfun`",
    "schedules.schedule": "from one second on; counted from a fixed moment, not from the start of a process",
    "states.RECEIVED": "a task is never in this state",
    "states.IGNORED": "a task is never in this state",
    "Control.rate_limit": "over the whole fleet, not for each worker",
    "Control.revoke": "a running task is asked to stop, also without `terminate`",
    "Control.terminate": "no signal is sent to the process",
}
DIFFERENT = {name: text for name, text in DIFFERENT.items() if text}
"""What is there but not alike. All other names that are there mean the same."""


def sections() -> dict[str, list[str]]:
    """The recorded names by section."""
    recorded: dict[str, list[str]] = json.loads(RECORDED.read_text())
    return recorded


def owners() -> dict[str, Any]:
    """Where each section's names are looked up here."""
    from tasklib import celery
    from tasklib.celery import canvas, exceptions, result, schedules, signals, states
    from tasklib.celery.utils import log

    app = celery.Celery("table", set_as_current=False)
    app.close()
    task = app.task(name="table")(lambda: None)
    return {
        "celery": celery,
        "Celery": app,
        "Task": task,
        "Signature": task.s(),
        "chain": canvas.chain(task.s(), task.s()),
        "group": canvas.group(task.s(), task.s()),
        "chord": canvas.chord([task.s()], task.s()),
        "chunks": canvas.chunks(task.s(), [], 1),
        "AsyncResult": result.AsyncResult("0"),
        "GroupResult": result.GroupResult("0", []),
        "EagerResult": result.EagerResult("0", None, "SUCCESS"),
        "Control": app.control,
        "exceptions": exceptions,
        "result": result,
        "canvas": canvas,
        "schedules": schedules,
        "signals": signals,
        "states": states,
        "utils.log": log,
    }


def verdict(owner: Any, section: str, name: str) -> tuple[str, str]:
    """Same, different or refused, and what there is to say."""
    from tasklib.celery.exceptions import NotOnTaskLib

    full = f"{section}.{name}"
    try:
        getattr(owner, name)
    except NotOnTaskLib as e:
        return "refused", str(e).partition(": ")[2].rstrip(".")
    except (AttributeError, LookupError) as e:
        if isinstance(e, AttributeError):
            return "missing", ""
    if full in DIFFERENT:
        return "different", DIFFERENT[full]
    kind = {"Task": _attributes}.get(section, dict)()
    return ("no effect", kind[name]) if name in kind else ("same", "")


def _attributes() -> dict[str, str]:
    from tasklib.celery.task import NO_EFFECT_ATTRIBUTES

    return NO_EFFECT_ATTRIBUTES


def names_table() -> str:
    """All names but settings and options."""
    from tasklib.tasks import registry

    with registry.isolated():
        found = owners()
        rows = [
            f"| `{section}.{name}` | {kind} | {text} |"
            for section, names in sections().items()
            if section in found
            for name in names
            for kind, text in [verdict(found[section], section, name)]
        ]
    return "\n".join(["| name | | |", "|---|---|---|", *rows])


def settings_table() -> str:
    """All settings."""
    from tasklib.celery.settings import meaning

    rows = [f"| `{name}` | {kind} | {text} |" for name in sections()["settings"] for kind, text in [meaning(name)]]
    return "\n".join(["| setting | | |", "|---|---|---|", *rows])


def options_table() -> str:
    """All options of `apply_async`."""
    from tasklib.celery.submitting import FOLLOWED, NO_EFFECT, REFUSED

    kinds = (("followed", FOLLOWED), ("no effect", NO_EFFECT), ("refused", REFUSED))
    rows = [f"| `{name}` | {kind} | {text} |" for kind, known in kinds for name, text in sorted(known.items())]
    return "\n".join(["| option | | |", "|---|---|---|", *rows])


def of_celery() -> dict[str, list[str]]:
    """The names of the Celery that is installed."""
    import celery
    from celery import canvas, exceptions, result, schedules, signals, states
    from celery.app.control import Control
    from celery.app.defaults import DEFAULTS
    from celery.utils import log

    def public(owner: Any, *without: type) -> list[str]:
        known = {name for each in without for name in dir(each)}
        return sorted(name for name in dir(owner) if not name.startswith("_") and name not in known)

    modules = {"exceptions": exceptions, "result": result, "canvas": canvas, "schedules": schedules}
    modules |= {"signals": signals, "states": states, "utils.log": log}
    signature = canvas.Signature
    return {
        "celery": sorted(_MODULE & set(celery.__all__)),
        "Celery": public(celery.Celery),
        "Task": public(celery.Task),
        "Signature": public(signature, dict),
        "chain": public(canvas.chain, signature),
        "group": public(canvas.group, signature),
        "chord": public(canvas.chord, signature),
        "chunks": public(canvas.chunks, signature),
        "AsyncResult": public(result.AsyncResult),
        "GroupResult": public(result.GroupResult),
        "EagerResult": public(result.EagerResult, result.AsyncResult),
        "Control": public(Control),
        **{name: sorted(module.__all__) for name, module in modules.items()},
        "settings": sorted(DEFAULTS),
    }


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(of_celery(), indent=1) + "\n")
