"""Every error TaskLib raises. Each states the problem and the next step, and carries data as attributes.

TaskLibError
├── ConfigError (ValueError)             a Config field or environment variable is wrong
├── NotInitialized (RuntimeError)        a module-level call came before tasklib.init()
├── InvalidTaskFunction (TypeError)      @task can't register this function or these options
├── InvalidOption (ValueError)           a submission option is wrong: priority, delay, datetime, ...
├── TaskNotFound (LookupError)           no such task function, or no such task
├── WorkerNotFound (LookupError)         no live worker has this id
├── ScheduleNotFound (LookupError)       no schedule has this name
├── LimitNotFound (LookupError)          limit(): no limit has this name
├── LimitTimeout (TimeoutError)          limit(): no place, or start, became free in time
├── FlowNotFound (LookupError)           no flow has this id
├── ReplayNotFound (LookupError)         no replay has this id
├── ApprovalNotOpen                      the task doesn't ask for this approval, or it was answered before
├── TokenNotFound (LookupError)          no API token has this id or prefix
├── IdempotencyKeyTaken                  the key belongs to a task that this caller may not see
├── TaskNotEditable                      the task doesn't wait any more, or this part of it can't be changed
├── DuplicateTask                        a task with this merge key exists, and may not be changed
├── QueueFull                            too much waits in the queue; `retry_after` says when to try again
├── TaskExecutionError                   the arguments don't fit the task function or can't be stored
├── ResultNotStorable                    a return value can't be stored; the attempt fails with it
├── ResultNotReadable (ValueError)       a stored result doesn't fit the type that the function declares here
├── KeyMissing (LookupError)             the key of a sealed payload is not in this program's keyring
├── PayloadDamaged (ValueError)          a sealed payload was changed, cut, or moved from another task or column
├── PayloadUnreadable                    a payload needs a package or a payload store that this program hasn't got
├── TaskTimeout                          an attempt ran past its timeout
├── WorkerLost                           a child process died, or the lease was lost, in mid-attempt
├── TaskFailed                           wait_for(): the task ended in the dead letter queue
├── TaskCancelled                        wait_for(): the task was cancelled
├── WaitTimeout (TimeoutError)           wait_for(): not finished in time; the task goes on
├── DatabaseUnavailable (ConnectionError) the database can't be reached or refuses us
├── SchemaError                          the schema is missing, older, newer, or not ours
├── AccessDenied (PermissionError)       over HTTP: the token is unknown, revoked, or has not the role
├── ServerUnavailable (ConnectionError)  over HTTP: the server can't be reached, or has no time
└── UnexpectedAnswer                     over HTTP: the server failed, or is not TaskLib's
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

__all__ = [
    "AccessDenied",
    "ApprovalNotOpen",
    "ConfigError",
    "DatabaseUnavailable",
    "DuplicateTask",
    "FlowNotFound",
    "IdempotencyKeyTaken",
    "InvalidOption",
    "InvalidTaskFunction",
    "KeyMissing",
    "LimitNotFound",
    "LimitTimeout",
    "NotInitialized",
    "PayloadDamaged",
    "PayloadUnreadable",
    "QueueFull",
    "ReplayNotFound",
    "ResultNotReadable",
    "ResultNotStorable",
    "ScheduleNotFound",
    "SchemaError",
    "ServerUnavailable",
    "TaskCancelled",
    "TaskExecutionError",
    "TaskFailed",
    "TaskLibError",
    "TaskNotEditable",
    "TaskNotFound",
    "TaskTimeout",
    "TokenNotFound",
    "UnexpectedAnswer",
    "WaitTimeout",
    "WorkerLost",
    "WorkerNotFound",
]


class TaskLibError(Exception):
    """Base of all errors raised by TaskLib."""


class ConfigError(TaskLibError, ValueError):
    """A configuration value is wrong; the message names the field."""


class NotInitialized(TaskLibError, RuntimeError):
    """A module-level function was called before `tasklib.init()`."""

    def __init__(self) -> None:
        super().__init__(
            "TaskLib is not initialised. Call tasklib.init('postgresql://user@host/db') once at start-up, "
            "or set TASKLIB_DATABASE_URL, or use tasklib.Client / tasklib.AsyncClient."
        )


class InvalidTaskFunction(TaskLibError, TypeError):
    """`@task` can't register this function, or not with these options."""


class InvalidOption(TaskLibError, ValueError):
    """A submission option has a value that can't be used; the message names the option."""


class TaskNotFound(TaskLibError, LookupError):
    """No task function has this name here, or no task has this id."""

    def __init__(self, message: str, *, name: str | None = None, task_id: UUID | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.task_id = task_id

    @classmethod
    def named(cls, name: str, known: Iterable[str]) -> TaskNotFound:
        near = _near(name, list(known), 3)
        hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        return cls(
            f"no task named {name!r} is registered in this program.{hint} "
            "Import the module that defines it, or pass registered_elsewhere=True if another program has it.",
            name=name,
        )

    @classmethod
    def with_id(cls, task_id: UUID) -> TaskNotFound:
        return cls(f"no task has the id {task_id}; it may have been deleted.", task_id=task_id)


class WorkerNotFound(TaskLibError, LookupError):
    """No live worker has this id."""

    def __init__(self, message: str, *, worker_id: str) -> None:
        super().__init__(message)
        self.worker_id = worker_id

    @classmethod
    def with_id(cls, worker_id: str, status: str | None, live: Iterable[str]) -> WorkerNotFound:
        if status is not None:
            return cls(
                f"worker {worker_id} is {status}; other workers run its tasks, or soon will.", worker_id=worker_id
            )
        near = _near(worker_id, list(live), 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        message = f"no live worker has the id {worker_id}; a worker has a new id at every start.{hint}"
        return cls(message, worker_id=worker_id)


class ScheduleNotFound(TaskLibError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule is named {name!r}. See which there are: tasklib schedule list")
        self.name = name


class LimitNotFound(TaskLibError, LookupError):
    """`with limit(...)`: no limit has this name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        near = _near(name, list(known), 3)
        hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        super().__init__(
            f"there is no limit {name!r}.{hint} Set it: tasklib limit set {name} --max-running N. Or give what it "
            f"allows: limit(Limit({name!r}, max_running=N))."
        )
        self.name = name


class LimitTimeout(TaskLibError, TimeoutError):
    """`with limit(...)` gave up waiting. The block was not entered."""

    def __init__(self, name: str, key: str, seconds: float) -> None:
        which = f"{name!r} for {key!r}" if key else repr(name)
        super().__init__(f"the limit {which} had no room within {seconds:g} s.")
        self.name = name
        self.key = key


class FlowNotFound(TaskLibError, LookupError):
    """No flow has this id."""

    def __init__(self, flow_id: UUID) -> None:
        super().__init__(f"no flow has the id {flow_id}. See which there are: tasklib flow list")
        self.flow_id = flow_id


class ReplayNotFound(TaskLibError, LookupError):
    """No replay has this id."""

    def __init__(self, replay_id: UUID) -> None:
        super().__init__(f"no replay has the id {replay_id}. See which there are: tasklib replays list")
        self.replay_id = replay_id


class ApprovalNotOpen(TaskLibError):
    """An approval that can't be answered: it was not asked, was answered before, or its time is over."""

    def __init__(self, task_id: UUID, name: str | None) -> None:
        self.task_id = task_id
        self.name = name
        asks = "waits for no approval" if name is None else f"doesn't wait for the approval {name!r}"
        super().__init__(
            f"task {task_id} {asks}: it was answered before, its time is over, or the task has not asked yet. "
            "`tasklib approvals` lists the open ones."
        )


class TokenNotFound(TaskLibError, LookupError):
    """No API token has this id or prefix."""

    def __init__(self, id_or_prefix: UUID | str) -> None:
        # Not repeated, for it may be a whole token.
        super().__init__("no token has this id or prefix. List all tokens: tasklib token list")
        self.id_or_prefix = id_or_prefix


class IdempotencyKeyTaken(TaskLibError):
    """A task of another owner has this idempotency key; the caller may not see that task."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(
            f"the idempotency key {key!r} of {name} is used by a task of another owner. "
            "Choose unique keys, such as your program's name and a number."
        )
        self.name = name
        self.key = key


class TaskNotEditable(TaskLibError):
    """The task doesn't wait any more, or this part of it can't be changed; the values themselves may be right."""

    def __init__(self, message: str, task_id: UUID) -> None:
        super().__init__(message)
        self.task_id = task_id


class DuplicateTask(TaskLibError):
    """A task with the same merge key exists, and the submission must not be merged into it."""

    def __init__(self, name: str, task_id: UUID, state: str) -> None:
        what = "runs, so it can't take new arguments" if state == "running" else "exists already"
        super().__init__(
            f"a task {name} with this merge key {what}: {task_id}, {state}. Submit again when it has ended, or use "
            "on_duplicate='return'."
        )
        self.name = name
        self.task_id = task_id
        self.state = state


class QueueFull(TaskLibError):
    """Too much waits in the queue, or of the task `name`. `retry_after` is a guess of the seconds until it is worth
    trying again."""

    def __init__(self, queue: str, reason: str, retry_after: float, *, name: str | None = None) -> None:
        what = f"the queue {queue} is full" if name is None else f"too many tasks named {name} wait"
        super().__init__(f"{what}: {reason}. Submit again in about {retry_after:.0f} s.")
        self.queue = queue
        self.name = name
        self.reason = reason
        self.retry_after = retry_after


class TaskExecutionError(TaskLibError):
    """The arguments don't fit the task function, or can't be stored as JSON. `field` names the first one."""

    def __init__(self, message: str, *, task: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.task = task
        self.field = field


class ResultNotStorable(TaskLibError):
    """The function returned something that can't be stored as JSON; the attempt counts as failed."""


class ResultNotReadable(TaskLibError, ValueError):
    """The task's result doesn't fit the type that its function declares in this program. `value` is the JSON value."""

    def __init__(self, task_id: UUID, name: str, value: object, reason: str) -> None:
        self.task_id = task_id
        self.name = name
        self.value = value
        super().__init__(
            f"the result of task {name} ({task_id}) doesn't fit the type that {name} declares here: {reason}. "
            "Perhaps its worker has another version of the function. `(await task_id.get()).result` is the JSON value."
        )


class KeyMissing(TaskLibError, LookupError):
    """The key that a payload is sealed with, or that it should be sealed with, is not here. `key_id` names it."""

    def __init__(self, key_id: str | None, message: str | None = None) -> None:
        self.key_id = key_id
        super().__init__(
            message
            or f"the key {key_id!r} is not in this program's keyring. Add it to TASKLIB_KEYS, TASKLIB_KEYS_FILE or "
            "Config(keys=...); without it the payload can't be read."
        )

    @classmethod
    def no_keyring(cls, name: str) -> KeyMissing:
        return cls(
            None,
            f"{name} is sealed, and this program has no keys. Set TASKLIB_KEYS, TASKLIB_KEYS_FILE or Config(keys=...); "
            "`tasklib keys new` makes one.",
        )

    @classmethod
    def no_library(cls) -> KeyMissing:
        return cls(None, 'sealed payloads need the package cryptography: pip install "tasklib-pg[sealed]"')


class PayloadDamaged(TaskLibError, ValueError):
    """A sealed payload doesn't open: it was changed or cut, or belongs to another task or column."""

    def __init__(self, name: str, task_id: str, column: str, reason: str = "") -> None:
        self.name = name
        self.task_id = task_id
        self.column = column
        super().__init__(
            reason
            or f"the sealed {column} of task {name} ({task_id}) can't be opened: it was changed or cut, or was sealed "
            "for another task or column."
        )

    @classmethod
    def unreadable(cls) -> PayloadDamaged:
        return cls("", "", "", "a sealed payload has no readable form: it was changed or cut.")


class PayloadUnreadable(TaskLibError):
    """This program can't read a payload, though others can: the message says which package or setting it needs."""


class TaskTimeout(TaskLibError):
    """The attempt ran longer than its timeout."""


class WorkerLost(TaskLibError):
    """The process that ran the attempt died, or the worker lost its lease."""


class TaskFailed(TaskLibError):
    """`wait_for` of a task that ended in `dead_letter`. `remote_traceback` is what the worker recorded."""

    def __init__(self, task_id: UUID, name: str, remote_traceback: str | None) -> None:
        self.task_id = task_id
        self.name = name
        self.remote_traceback = remote_traceback
        detail = f"\n\nOn the worker:\n{remote_traceback}" if remote_traceback else ""
        super().__init__(f"task {name} ({task_id}) failed for good.{detail}")


class TaskCancelled(TaskLibError):
    """`wait_for` of a task that was cancelled. `reason` names the task of its flow that was to blame, if any."""

    def __init__(self, task_id: UUID, name: str, error: str | None = None) -> None:
        self.task_id = task_id
        self.name = name
        found = re.match(r"UpstreamFailed: cancelled (because .*)", error or "")
        self.reason = found.group(1) if found else None
        super().__init__(f"task {name} ({task_id}) was cancelled{f' {self.reason}' if self.reason else ''}.")


class WaitTimeout(TaskLibError, TimeoutError):
    """`wait_for` gave up waiting. The task itself is untouched and goes on."""

    def __init__(self, task_id: UUID, state: str, seconds: float) -> None:
        self.task_id = task_id
        self.state = state
        super().__init__(
            f"task {task_id} is still {state} after {seconds:g} s. The task is not stopped; only this call has ended."
        )


class DatabaseUnavailable(TaskLibError, ConnectionError):
    """The database can't be reached, or refuses this user."""


class SchemaError(TaskLibError):
    """The tables are missing, older or newer than this version of TaskLib, or were not created by TaskLib."""


class AccessDenied(TaskLibError, PermissionError):
    """The server doesn't let this client in, or not for this. `roles` are those of which a token needs one."""

    def __init__(self, message: str, *, code: str, roles: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.roles = tuple(roles)


class ServerUnavailable(TaskLibError, ConnectionError):
    """The server can't be reached, or says that it has no time now. The request may or may not have taken effect."""


class UnexpectedAnswer(TaskLibError):
    """The server failed, or what answered is not TaskLib's server. `request_id` finds it in the server's log."""

    def __init__(self, message: str, *, status: int, request_id: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id


def _near(word: str, known: list[str], most: int) -> list[str]:
    from difflib import get_close_matches  # only mistakes need it

    return get_close_matches(word, known, n=most, cutoff=0.6)
