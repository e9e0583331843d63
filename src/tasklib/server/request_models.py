"""The bodies of requests. Their limits are those of the options they become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from tasklib.states import TaskState
from tasklib.store.filters import DeadLetterFilter, TaskFilter
from tasklib.tasks.options import MAX_DELAY_SECONDS, MAX_INT, MAX_NAME_BYTES, MAX_VERSION, is_name, is_storable

MAX_IDS = 1000
"""Tasks named one by one in a request."""
MAX_TAKEN = 10_000
"""Dead letters replayed or purged by one request."""


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError(f"must be 1 to {MAX_NAME_BYTES} bytes of text that PostgreSQL can hold")
    return value


def _text(value: str) -> str:
    if not is_storable(value):
        raise ValueError("must be text that PostgreSQL can hold: no NUL, no half of a surrogate pair")
    return value


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES), AfterValidator(_name)]
"""A task's name, a queue, a key: what can be in an index."""
Text = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_text)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=MAX_DELAY_SECONDS)]


class Body(BaseModel):
    """A body refuses unknown keys: a misspelt option would be ignored silently."""

    model_config = ConfigDict(extra="forbid")


class SignalBody(Body):
    """A signal to a durable task."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "approved", "payload": {"by": "ann"}, "key": "approval-17"}]},
    )

    name: Annotated[Name, Field(description="What the task waits for, such as `approved`.")]
    payload: Any = Field(None, description="The payload, any JSON value.")
    key: Annotated[Name | None, Field(description="A second signal with this key to the same task is ignored.")] = None


class OptionsBody(Body):
    """What can be said of a task when it is submitted, and while it waits."""

    priority: StrictInt | str | None = Field(
        None, description="From -10 to 100, or a level (`low`, `medium`, `high`), which brings its retries and timeout."
    )
    queue: Annotated[Name | None, Field(description="Default: `default`.")] = None
    required_capabilities: list[Name] | None = Field(
        None, max_length=100, description="What a worker must have to take it."
    )
    timeout_seconds: StrictInt | None = Field(None, ge=1, le=MAX_INT, description="How long an attempt may take.")
    max_retries: StrictInt | None = Field(None, ge=0, le=MAX_INT, description="How often it is tried again.")
    delay: Seconds | None = Field(None, description="Run it no sooner than after this many seconds.")
    delay_seconds: Seconds | None = Field(None, description="The same as `delay`.")
    scheduled_at: AwareDatetime | None = Field(
        None, description="Run it no sooner than then; with a time zone. A moment that has passed means now."
    )
    tags: dict[str, Any] | None = Field(None, description="Tags of your own, to find it by.")

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        given = [n for n in ("delay", "delay_seconds", "scheduled_at") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {' and '.join(given)}")
        return self

    def said(self) -> dict[str, Any]:
        """The options as the calls of a client name them; only those that were given."""
        said = {
            "priority": self.priority,
            "queue": self.queue,
            "required_capabilities": self.required_capabilities,
            "timeout_seconds": self.timeout_seconds,
            "max_retries": self.max_retries,
            "delay_seconds": self.delay if self.delay is not None else self.delay_seconds,
            "scheduled_at": self.scheduled_at,
            "tags": self.tags,
        }
        return {name: value for name, value in said.items() if value is not None}


class EditBody(OptionsBody):
    """What to change of a task that waits; what is not given stays as it is."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"queue": "slow", "priority": 5}, {"delay_seconds": 3600}]}
    )

    parameters: dict[str, Any] | None = Field(
        None, description="All its arguments, by name. A masked value that comes back stays as it was."
    )


class NamedBody(Body):
    """A task function and its arguments."""

    task_type: Annotated[Name, Field(description="The name of the task function.")]
    parameters: dict[str, Any] = Field(default_factory=dict, description="Its arguments, by name.")


class TaskBody(OptionsBody, NamedBody):
    """What tasks that are submitted singly and tasks of a flow have in common."""

    trace_context: dict[str, str] | None = Field(
        None, description="`traceparent` and `tracestate` of W3C; else those of the request's headers."
    )
    payload_version: StrictInt | None = Field(
        None, ge=1, le=MAX_VERSION, description="The version of its arguments, if the task function has versions."
    )

    def options(self, trace_context: Mapping[str, str] | None) -> dict[str, Any]:
        """The options as `submit_task` names them; only those that were given."""
        trace = self.trace_context if self.trace_context is not None else trace_context
        said = {"trace_context": trace, "payload_version": self.payload_version}
        return {**self.said(), **{name: value for name, value in said.items() if value is not None}}


class SubmitBody(TaskBody):
    """One task to submit."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "task_type": "process_video",
                    "parameters": {"video_id": 17, "format": "webm"},
                    "priority": "high",
                    "required_capabilities": ["gpu"],
                    "timeout_seconds": 600,
                    "idempotency_key": "video-17-webm",
                },
                {"task_type": "send_email", "parameters": {"to": "ada@example.com"}, "delay": 60},
            ]
        },
    )

    idempotency_key: Annotated[
        Name | None,
        Field(description="A second submission with this name and key, within the window, returns the first task."),
    ] = None
    unique: Literal["pending", "unfinished"] | None = Field(
        None, description="Until when a submission with the same name and `merge_key` is merged into this task."
    )
    debounce: Seconds | None = Field(
        None, gt=0, description="Run it this many seconds after the last submission with the same name and `merge_key`."
    )
    throttle: Seconds | None = Field(
        None,
        gt=0,
        description="For this many seconds, a submission with the same name and `merge_key` returns this task.",
    )
    merge_key: Name | list[Name] | None = Field(
        None,
        description="By what submissions are the same: a key, or the names of the parameters that make it up. Without "
        "it, by all parameters.",
    )
    on_duplicate: Literal["return", "replace", "raise"] | None = Field(
        None,
        description="What a submission does that meets its `merge_key`: it returns the other task, gives it the new "
        "parameters and options, or is refused with 409. `return`, for `debounce` `replace`, unless said otherwise.",
    )
    max_wait: Seconds | None = Field(
        None, gt=0, description="With `debounce`: run it at the latest this many seconds after the first submission."
    )
    share: Name | None = Field(None, description="The share it belongs to: shares with due tasks take turns.")
    serial_key: Name | None = Field(
        None, description="Tasks of a queue with the same key run one at a time, in the order of submission."
    )
    task_id: UUID | None = Field(
        None,
        description="An id of your own, a UUID of version 7: with it a request that is repeated adds nothing. "
        "With other parameters or options it is refused.",
    )

    def options(self, trace_context: Mapping[str, str] | None) -> dict[str, Any]:
        """The same, and what makes a submission the same as another one."""
        keys = ["idempotency_key", "unique", "debounce", "throttle", "merge_key", "on_duplicate", "max_wait"]
        keys += ["share", "serial_key"]
        said = {name: getattr(self, name) for name in keys if getattr(self, name) is not None}
        return {**super().options(trace_context), **said}


class BatchBody(Body):
    """Tasks to submit together: all of them or none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "tasks": [
                        {"task_type": "send_email", "parameters": {"to": "ada@example.com"}},
                        {"task_type": "send_email", "parameters": {"to": "bob@example.com"}, "priority": "low"},
                    ]
                }
            ]
        },
    )

    tasks: list[SubmitBody] = Field(min_length=1, description="At most as many as the server allows (1,000).")


class CancelBody(Body):
    """Which tasks to cancel: those that fit every filter given. Without a filter, `everything` has to be true."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "send_email", "tags": {"batch": "daily"}, "dry_run": True}]},
    )

    state: list[TaskState] | None = Field(None, min_length=1, description="Some of pending, failed, running.")
    name: Name | None = None
    queue: Name | None = None
    tags: dict[str, Any] | None = None
    created_after: AwareDatetime | None = None
    created_before: AwareDatetime | None = None
    worker: Name | None = Field(None, description="Tasks that this worker runs now.")
    ids: list[UUID] | None = Field(None, min_length=1, max_length=MAX_IDS)
    everything: StrictBool = False
    dry_run: StrictBool = Field(False, description="Only count.")

    def filter(self) -> TaskFilter:
        return TaskFilter(**self.model_dump(include=set(TaskFilter.__slots__)))


class EraseBody(Body):
    """Whose payloads to erase: those of finished tasks that fit every filter given. One is required."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"tags": {"customer": 42}, "dry_run": True}]}
    )

    state: list[TaskState] | None = Field(None, min_length=1, description="Some of completed, cancelled, dead_letter.")
    name: Name | None = None
    queue: Name | None = None
    tags: dict[str, Any] | None = None
    created_after: AwareDatetime | None = None
    created_before: AwareDatetime | None = None
    ids: list[UUID] | None = Field(None, min_length=1, max_length=MAX_IDS)
    dry_run: StrictBool = Field(False, description="Only count.")

    def filter(self) -> TaskFilter:
        return TaskFilter(**self.model_dump(exclude={"dry_run"}))


class DeadLetterConditionsBody(Body):
    """Which dead letters. Without a filter, `everything` has to be true."""

    ids: list[UUID] | None = Field(None, min_length=1, max_length=MAX_IDS)
    fingerprint: str | None = Field(
        None,
        pattern="^[0-9a-f]{6,32}$",
        description="The fingerprint of a group, or the start of it.",
        examples=["b1946ac92492"],
    )
    name: Name | None = None
    queue: Name | None = None
    error: Text | None = Field(None, description="A part of the traceback, ignoring case.")
    since: AwareDatetime | None = None
    until: AwareDatetime | None = Field(None, description="Dead letters before this time.")
    everything: StrictBool = False

    def filter(self) -> DeadLetterFilter:
        return DeadLetterFilter(**self.model_dump(include=set(DeadLetterFilter.__slots__)))


class ReplayDeadLettersBody(DeadLetterConditionsBody):
    """Which dead letters to start afresh, the oldest first. Without a filter, `everything` has to be true."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"fingerprint": "b1946ac92492d2347c6235b4d2611184", "limit": 500}]},
    )

    limit: StrictInt = Field(1000, ge=1, le=MAX_TAKEN, description="There may be more: repeat the request.")
    dry_run: StrictBool = Field(False, description="Change nothing; say what would be replayed.")


class PauseBody(Body):
    """A queue or a task's name, and only one of them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"queue": "mail"}, {"name": "resize"}]})

    queue: Name | None = None
    name: Name | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.queue is None) == (self.name is None):
            raise ValueError("give either queue or name, and only one of them")
        return self


class SavedSearchBody(Body):
    """A search, and the name to keep it under."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "late mail", "search": "queue:mail due:<1h"}]}
    )

    name: Annotated[Text, Field(max_length=100)]
    search: Annotated[str, Field(max_length=2000), AfterValidator(_text)]


Threshold = Annotated[float, Field(strict=True, gt=0, le=MAX_INT)]


class SettingsBody(Body):
    """The settings to change; null returns one to each program's configuration, omitted ones are unchanged."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"promote_to_medium_after_seconds": 300}]}
    )

    promote_to_medium_after_seconds: Threshold | None = None
    promote_to_high_after_seconds: Threshold | None = None
