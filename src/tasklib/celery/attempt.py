"""One attempt of a task of Celery's: what a worker calls, and how Celery's ways to end it become TaskLib's."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from tasklib.celery import signals, states
from tasklib.celery.binding import HEADER, called_with
from tasklib.celery.exceptions import CeleryReject, CeleryRetry, Ignore, TaskRevokedError
from tasklib.celery.request import CeleryRequest, running
from tasklib.celery.values import plain
from tasklib.client.default import default_client
from tasklib.tasks.context import TaskContext, current_task
from tasklib.tasks.retry import Reject, Retry

if TYPE_CHECKING:
    from tasklib.celery.lineage import Lineage
    from tasklib.celery.task import CeleryTask


@dataclass
class ExceptionInfo:
    """What handlers receive as `einfo`."""

    exception: BaseException

    @property
    def type(self) -> type[BaseException]:
        """The class of the exception."""
        return type(self.exception)

    @property
    def traceback(self) -> str:
        """As text."""
        return "".join(traceback.format_exception(self.exception))

    def __str__(self) -> str:
        return self.traceback


def worker_function(task: CeleryTask) -> Callable[..., Any]:
    """The function that the worker calls with the row's arguments by name."""
    if iscoroutinefunction(task.run):

        async def call_async(**payload: Any) -> Any:
            request = request_for(task, payload, current_task())
            with attempt_of(task, request) as attempt:
                attempt.returns(await task(*request.args, **request.kwargs))
            return attempt.value

        return call_async

    def call(**payload: Any) -> Any:
        request = request_for(task, payload, current_task())
        with attempt_of(task, request) as attempt:
            attempt.returns(task(*request.args, **request.kwargs))
        return attempt.value

    return call


def request_for(task: CeleryTask, payload: dict[str, Any], now: TaskContext) -> CeleryRequest:
    """The request of an attempt, from its row."""
    args, kwargs = called_with(payload)
    header = payload.get(HEADER) or {}
    return CeleryRequest(
        id=str(now.id),
        task=task.name,
        args=args,
        kwargs=kwargs,
        retries=now.attempt - 1,
        called_directly=False,
        hostname=now.worker_id,
        headers=header.get("headers"),
        expires=_expires(header, now),
        delivery_info={
            "routing_key": now.queue,
            "exchange": "",
            "redelivered": now.attempt > 1,
            "priority": now.priority,
        },
        time_limit=task.time_limit,
        ignore_result=bool(header.get("ignore_result", task.ignore_result)),
        max_retries=now.max_attempts - 1,
        lineage=lambda: _lineage(str(now.id), header),
    )


def _lineage(task_id: str, header: dict[str, Any]) -> Lineage:
    from tasklib.celery.lineage import lineage_of  # imported here: few tasks ask

    row = default_client().get_task(task_id)
    return lineage_of(task_id, header, None if row is None else row.flow)


def _expires(header: dict[str, Any], now: TaskContext) -> str | None:
    if (seconds := header.get("expires_after")) is not None:  # of a schedule
        return ((now.slot or datetime.now(UTC)) + timedelta(seconds=seconds)).isoformat()
    expires: str | None = header.get("expires")
    return expires


class CeleryAttempt:
    """The course of one attempt."""

    def __init__(self, task: CeleryTask, request: CeleryRequest) -> None:
        self.task = task
        self.request = request
        self.value: Any = None
        self.state = states.SUCCESS

    def returns(self, value: Any) -> None:
        """What the function returned; TypeError if it can't be stored."""
        self.value = None if self.request.ignore_result else plain(value)

    @property
    def named(self) -> dict[str, Any]:
        """For signals."""
        request = self.request
        return {"task_id": request.id, "task": self.task, "args": request.args, "kwargs": request.kwargs}

    @property
    def where(self) -> tuple[Any, Any, Any]:
        """For handlers."""
        return self.request.id, self.request.args, self.request.kwargs

    def succeeded(self) -> None:
        """Tell the handlers and signals."""
        self.task.on_success(self.value, *self.where)
        signals.task_success.send(self.task, result=self.value)

    def retried(self, retry: CeleryRetry) -> None:
        """The same for an attempt that is followed by another."""
        self.state, self.value = states.RETRY, retry
        info = ExceptionInfo(retry.exc or retry)
        self.task.on_retry(info.exception, *self.where, info)
        signals.task_retry.send(self.task, request=self.request, reason=info.exception, einfo=info)

    def failed(self, error: BaseException) -> None:
        """The same for the last attempt."""
        self.state, self.value = states.FAILURE, error
        info = ExceptionInfo(error)
        self.task.on_failure(error, *self.where, info)
        signals.task_failure.send(
            self.task, exception=error, traceback=error.__traceback__, einfo=info, **_without_task(self.named)
        )


@contextmanager
def attempt_of(task: CeleryTask, request: CeleryRequest) -> Iterator[CeleryAttempt]:
    """Around the call of the function: handlers, signals, and errors as the worker understands them."""
    attempt = CeleryAttempt(task, request)
    with running(task, request):
        try:
            _refuse_expired(request)
            signals.task_prerun.send(task, **attempt.named)
            task.before_start(*attempt.where)
            with _autoretry(task):
                yield attempt
            attempt.succeeded()
            _end(attempt, None)
        except Ignore:
            attempt.state, attempt.value = states.IGNORED, None
        except CeleryRetry as e:
            attempt.retried(e)
            _end(attempt, e.exc)
            raise Retry(in_=_delay(e.when), reason=str(e)) from e.exc
        except CeleryReject as e:
            if e.requeue:
                raise Retry(in_=0, reason=f"the task was rejected, to run again: {e.reason}") from None
            raise Reject(str(e.reason or "the task was rejected")) from e
        except TaskRevokedError:
            raise
        except Exception as e:
            attempt.failed(e)
            _end(attempt, e)
            raise


def _end(attempt: CeleryAttempt, error: BaseException | None) -> None:
    info = None if error is None else ExceptionInfo(error)
    attempt.task.after_return(attempt.state, attempt.value, *attempt.where, info)
    signals.task_postrun.send(attempt.task, retval=attempt.value, state=attempt.state, **attempt.named)


def _without_task(named: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if name != "task"}


def _refuse_expired(request: CeleryRequest) -> None:
    if request.expires is not None and datetime.now(UTC) >= datetime.fromisoformat(request.expires):
        raise TaskRevokedError("expired")


@contextmanager
def _autoretry(task: CeleryTask) -> Iterator[None]:
    """`autoretry_for`: retry instead of failing."""
    try:
        yield
    except (CeleryRetry, Ignore, CeleryReject):
        raise
    except BaseException as e:
        if not isinstance(e, tuple(task.autoretry_for)) or isinstance(e, tuple(task.dont_autoretry_for)):
            raise
        asked = dict(task.retry_kwargs)
        if task.retry_backoff:
            asked["countdown"] = backoff(task, task.request.retries)
        raise task.retry(exc=e, **asked) from e


def backoff(task: CeleryTask, retries: int) -> float:
    """Seconds until the next retry, as Celery counts them."""
    factor = 1 if task.retry_backoff is True else int(task.retry_backoff)
    seconds = min(task.retry_backoff_max, factor * 2**retries)
    return random.randrange(max(1, int(seconds) + 1)) if task.retry_jitter else max(0, seconds)


def _delay(when: datetime | float | None) -> float | None:
    if isinstance(when, datetime):
        return max(0.0, (when - datetime.now(UTC)).total_seconds())
    return when
