"""The signatures of the calls whose types depend on what they are given, as sync and async callers see them.

The other calls take theirs from `Calls`; these need overloads, which a decorator can't pass on.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar, overload
from uuid import UUID

from typing_extensions import Unpack

from tasklib.tasks.flow_runs import FlowRun, Submittable, SyncFlowRun
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import LaneKey, SubmitOptions
from tasklib.tasks.submitter import Submission
from tasklib.tasks.task_id import KnownId, SyncTaskId, TaskId

R = TypeVar("R")


class SubmitTask(Protocol):
    @overload
    def __call__(
        self,
        task: TaskFunction[..., R, Any, ...],
        /,
        *,
        connection: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        delay_seconds: float | None = None,
        scheduled_at: datetime | None = None,
        max_retries: int | None = None,
        timeout_seconds: int | None = None,
        priority: int | str | None = None,
        tags: Mapping[str, Any] | None = None,
        queue: str | None = None,
        required_capabilities: Iterable[str] | None = None,
        idempotency_key: str | None = None,
        trace_context: Mapping[str, str] | None = None,
        unique: Literal["pending", "unfinished"] | None = None,
        debounce: float | None = None,
        throttle: float | None = None,
        merge_key: str | Iterable[str] | None = None,
        on_duplicate: Literal["return", "replace", "raise"] | None = None,
        max_wait: float | None = None,
        share: LaneKey | None = None,
        serial_key: LaneKey | None = None,
        payload_version: int | None = None,
        **arguments: Any,
    ) -> Coroutine[Any, Any, TaskId[R]]: ...
    @overload
    def __call__(
        self, task: str, /, *, registered_elsewhere: bool = False, **options_and_arguments: Any
    ) -> Coroutine[Any, Any, TaskId[Any]]: ...


class SyncSubmitTask(Protocol):
    @overload
    def __call__(
        self,
        task: TaskFunction[..., R, Any, ...],
        /,
        *,
        connection: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        delay_seconds: float | None = None,
        scheduled_at: datetime | None = None,
        max_retries: int | None = None,
        timeout_seconds: int | None = None,
        priority: int | str | None = None,
        tags: Mapping[str, Any] | None = None,
        queue: str | None = None,
        required_capabilities: Iterable[str] | None = None,
        idempotency_key: str | None = None,
        trace_context: Mapping[str, str] | None = None,
        unique: Literal["pending", "unfinished"] | None = None,
        debounce: float | None = None,
        throttle: float | None = None,
        merge_key: str | Iterable[str] | None = None,
        on_duplicate: Literal["return", "replace", "raise"] | None = None,
        max_wait: float | None = None,
        share: LaneKey | None = None,
        serial_key: LaneKey | None = None,
        payload_version: int | None = None,
        **arguments: Any,
    ) -> SyncTaskId[R]: ...
    @overload
    def __call__(
        self, task: str, /, *, registered_elsewhere: bool = False, **options_and_arguments: Any
    ) -> SyncTaskId[Any]: ...


class Submit(Protocol):
    def __call__(self, item: Submission[R], *, connection: Any = None) -> Coroutine[Any, Any, TaskId[R]]: ...


class SyncSubmit(Protocol):
    def __call__(self, item: Submission[R], *, connection: Any = None) -> SyncTaskId[R]: ...


class SubmitMany(Protocol):
    @overload
    def __call__(
        self,
        task: TaskFunction[..., R, Any, ...],
        arguments: Iterable[Mapping[str, Any]],
        /,
        *,
        connection: Any = None,
        **options: Unpack[SubmitOptions],
    ) -> Coroutine[Any, Any, list[TaskId[R]]]: ...
    @overload
    def __call__(
        self,
        task: str,
        arguments: Iterable[Mapping[str, Any]],
        /,
        *,
        connection: Any = None,
        registered_elsewhere: bool = False,
        **options: Unpack[SubmitOptions],
    ) -> Coroutine[Any, Any, list[TaskId[Any]]]: ...
    @overload
    def __call__(
        self, items: Iterable[Submission[R]], /, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Coroutine[Any, Any, list[TaskId[R]]]: ...


class SyncSubmitMany(Protocol):
    @overload
    def __call__(
        self,
        task: TaskFunction[..., R, Any, ...],
        arguments: Iterable[Mapping[str, Any]],
        /,
        *,
        connection: Any = None,
        **options: Unpack[SubmitOptions],
    ) -> list[SyncTaskId[R]]: ...
    @overload
    def __call__(
        self,
        task: str,
        arguments: Iterable[Mapping[str, Any]],
        /,
        *,
        connection: Any = None,
        registered_elsewhere: bool = False,
        **options: Unpack[SubmitOptions],
    ) -> list[SyncTaskId[Any]]: ...
    @overload
    def __call__(
        self, items: Iterable[Submission[R]], /, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> list[SyncTaskId[R]]: ...


class WaitFor(Protocol):
    @overload
    def __call__(self, task_id: KnownId[R], timeout: float | None = None) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(self, task_id: UUID | str, timeout: float | None = None) -> Coroutine[Any, Any, Any]: ...


class SyncWaitFor(Protocol):
    @overload
    def __call__(self, task_id: KnownId[R], timeout: float | None = None) -> R: ...
    @overload
    def __call__(self, task_id: UUID | str, timeout: float | None = None) -> Any: ...


class RunSchedule(Protocol):
    def __call__(self, name: str) -> Coroutine[Any, Any, TaskId[Any]]: ...


class SyncRunSchedule(Protocol):
    def __call__(self, name: str) -> SyncTaskId[Any]: ...


class SubmitFlow(Protocol):
    def __call__(self, flow: Submittable[R], *, connection: Any = None) -> Coroutine[Any, Any, FlowRun[R]]: ...


class SyncSubmitFlow(Protocol):
    def __call__(self, flow: Submittable[R], *, connection: Any = None) -> SyncFlowRun[R]: ...


def signature_of(call: Callable[..., Any], *, of_function: bool = False) -> inspect.Signature:
    """A call's signature as its user sees it: with the value it gives in the end, and as a function without `self`."""
    signature = inspect.signature(call)
    given = list(signature.parameters.values())[1 if of_function else 0 :]
    parameters = [one for parameter in given for one in _spelled_out(parameter, call)]
    value = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    return signature.replace(parameters=parameters, return_annotation=value)


def _spelled_out(parameter: inspect.Parameter, call: Callable[..., Any]) -> list[inspect.Parameter]:
    """For `**conditions: Unpack[TaskConditions]` the keyword arguments that it stands for."""
    conditions = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
    if conditions is None:
        return [parameter]
    fields = call.__globals__[conditions[1]].__annotations__
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, keyword, default=None, annotation=kind.__forward_arg__) for name, kind in fields.items()
    ]
