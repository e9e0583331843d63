"""One task in inline mode: what was submitted, the attempt at it, and what became of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.config import Config
from tasklib.executors.functions import failed, result_text, result_with_dependencies
from tasklib.models import Task
from tasklib.states import TaskState
from tasklib.store.submit import NewTask
from tasklib.tasks.batches import alone
from tasklib.tasks.context import AttemptsCalls, TaskContext, running_task
from tasklib.tasks.dependencies import run_now
from tasklib.tasks.durable_driving import drive, drive_blocking
from tasklib.tasks.durable_run import ContinueAsNew
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.submitter import Submission
from tasklib.testing.inline_durable import InlineJournal, inline_run
from tasklib.tracing import trace_id_for

if TYPE_CHECKING:
    from tasklib.client.flow_graphs import Reference
    from tasklib.testing.inline_flows import InlineFlow


@dataclass(eq=False)
class InlineTask:
    """A task that was submitted in inline mode."""

    id: UUID
    name: str
    kwargs: Mapping[str, Any]
    """The arguments as JSON holds them: what a row would have."""
    options: Mapping[str, Any]
    """What the call said, and where it said nothing, `@task`."""
    state: TaskState = TaskState.PENDING
    """`completed`, or `dead_letter` after an error. `pending` means not run: only another program knows the name."""
    result: Any = None
    """What the function returned, as JSON has it."""
    error: BaseException | None = None
    """What the task raised."""
    progress: Any = None
    flow: InlineFlow | None = field(default=None, kw_only=True, repr=False)
    node: str = field(default="", kw_only=True, repr=False)
    """Of a task in a flow: its node, and which of its arguments are results of other nodes."""
    results: Mapping[str, Reference] = field(default_factory=dict, kw_only=True, repr=False)
    calls: AttemptsCalls | None = field(default=None, kw_only=True, repr=False)
    new: NewTask = field(kw_only=True, repr=False)
    function: TaskFunction[Any, Any] | None = field(kw_only=True, repr=False)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC), kw_only=True, repr=False)
    started_at: datetime | None = field(default=None, kw_only=True, repr=False)
    completed_at: datetime | None = field(default=None, kw_only=True, repr=False)
    traceback: str | None = field(default=None, kw_only=True, repr=False)

    @classmethod
    def of(cls, new: NewTask, item: Submission) -> InlineTask:
        function = None if isinstance(item.target, str) else item.target
        options = item.options.over(function.defaults) if function else item.options
        return cls(new.id, new.terms.name, json.loads(new.kwargs), options.given(), new=new, function=function)

    def call(
        self, config: Config, injected: Mapping[str, Any], journal: InlineJournal | None = None
    ) -> str | BaseException:
        """Make the attempt, of a sync function, as a worker does. Returns the result as JSON text, or the error."""
        assert self.function is not None
        context = self._begin()
        running_task.set(lambda: context)
        kwargs = self.new.kwargs
        while True:
            try:
                if journal is not None:
                    drive_blocking(inline_run(self.function, journal).begin())
                arguments = self.function.arguments.from_json(kwargs)
                if self.function.providers:
                    return run_now(result_with_dependencies(self.function, arguments, config, injected))
                value = self.function.function(**arguments, **injected)
                return result_text(value, config, self.function.results.to_json)
            except ContinueAsNew as e:
                kwargs = e.kwargs
            except BaseException as e:
                return e

    async def call_async(
        self, config: Config, injected: Mapping[str, Any], journal: InlineJournal | None = None
    ) -> str | BaseException:
        """The same of an async function. Cancellation and interrupts are raised."""
        assert self.function is not None
        context = self._begin()
        running_task.set(lambda: context)
        alone.set(True)
        kwargs = self.new.kwargs
        while True:
            try:
                if journal is not None:
                    await drive(inline_run(self.function, journal).begin())
                arguments = self.function.arguments.from_json(kwargs)
                return await result_with_dependencies(self.function, arguments, config, injected)
            except ContinueAsNew as e:
                kwargs = e.kwargs
            except (Exception, SystemExit) as e:
                return e

    def end(self, ended: str | BaseException, config: Config) -> None:
        """Record how the attempt ended. There is no second one, so an error is final."""
        self.completed_at = datetime.now(UTC)
        if isinstance(ended, str):
            self.state, self.result = TaskState.COMPLETED, json.loads(ended)["value"]
        else:
            assert self.function is not None
            self.state, self.error = TaskState.DEAD_LETTER, ended
            self.traceback = failed(ended, self.function, config).error

    def cancel(self) -> str | None:
        """Cancel it if it waits; None if it is finished. One that runs is past cancelling: its caller waits for it."""
        if self.state is TaskState.PENDING:
            self.state, self.completed_at = TaskState.CANCELLED, datetime.now(UTC)
        return None if self.state in (TaskState.COMPLETED, TaskState.DEAD_LETTER) else self.state.value

    def as_row(self) -> Task:
        """What `get_task` returns."""
        new = self.new
        return Task(
            id=self.id,
            name=self.name,
            queue=new.terms.queue,
            state=self.state.value,
            kwargs=json.loads(new.kwargs),
            result=self.result,
            error=self.traceback,
            max_retries=new.terms.max_retries,
            scheduled_at=new.terms.scheduled_at or self.created_at + timedelta(seconds=new.terms.delay_seconds or 0),
            started_at=self.started_at,
            completed_at=self.completed_at,
            created_at=self.created_at,
            timeout_seconds=new.terms.timeout_seconds,
            priority=new.terms.priority,
            tags=json.loads(new.terms.tags),
            required_capabilities=list(new.terms.required_capabilities),
            idempotency_key=new.terms.idempotency_key,
            trace_context=json.loads(new.terms.trace_context) if new.terms.trace_context else None,
            lease_token=int(self.started_at is not None),
            progress=self.progress,
            submitted_by=new.terms.submitted_by,
        )

    def _begin(self) -> TaskContext:
        self.state, self.started_at = TaskState.RUNNING, datetime.now(UTC)
        timeout, trace = self.new.terms.timeout_seconds, self.new.terms.trace_context
        trace_context = json.loads(trace) if trace else None
        return TaskContext(
            id=self.id,
            name=self.name,
            attempt=1,
            max_attempts=self.new.terms.max_retries + 1,
            token=1,
            queue=self.new.terms.queue,
            worker_id="inline",
            deadline=None if timeout is None else time.monotonic() + timeout,
            trace_context=trace_context,
            trace_id=trace_id_for(self.id, trace_context),
            priority=self.new.terms.priority,
            _report=self._report,
            _calls=self.calls.of_database if self.calls else None,
            _limits=self.calls,
        )

    def _report(self, text: str) -> None:
        self.progress = json.loads(text)
