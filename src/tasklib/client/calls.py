"""Every call of the clients, one implementation for sync and async callers; `effects.py` defines a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack
from uuid import UUID

from tasklib.client import call_arguments, validation
from tasklib.client.approvals import ApprovalCalls
from tasklib.client.backpressure import BackpressureCalls
from tasklib.client.blobs import with_result
from tasklib.client.breakers import BreakerCalls
from tasklib.client.durable import DurableCalls
from tasklib.client.editing import EditCalls
from tasklib.client.effects import Call, Pause
from tasklib.client.erasing import ErasingCalls
from tasklib.client.explaining import ExplainingCalls
from tasklib.client.failures import FailureCalls
from tasklib.client.filters import TaskConditions, checked_tasks
from tasklib.client.flows import FlowCalls
from tasklib.client.identity import Identity
from tasklib.client.limits import LimitCalls
from tasklib.client.operations import OperatorCalls
from tasklib.client.replays import ReplayCalls
from tasklib.client.saved_searches import SavedSearchCalls
from tasklib.client.schedules import ScheduleCalls
from tasklib.client.sealing import opened_outcome
from tasklib.client.searching import SearchingCalls
from tasklib.client.submissions import Defaults
from tasklib.client.suggesting import SuggestingCalls
from tasklib.client.tokens import TokenCalls
from tasklib.db.query import Query
from tasklib.events import CancelRequested, TaskReplayed, client_events
from tasklib.states import TaskState, is_terminal
from tasklib.store import control, lookup
from tasklib.store.filters import EVERY_TASK, TaskFilter
from tasklib.tasks.options import NOTHING_SAID, LaneKey, Options, options_of

if TYPE_CHECKING:
    from tasklib.models import Task

_UNSAID = {type(None)}


class Calls(
    EditCalls,
    ErasingCalls,
    BackpressureCalls,
    LimitCalls,
    BreakerCalls,
    OperatorCalls,
    DurableCalls,
    ApprovalCalls,
    ExplainingCalls,
    SearchingCalls,
    FailureCalls,
    SuggestingCalls,
    SavedSearchCalls,
    ReplayCalls,
    ScheduleCalls,
    FlowCalls,
    TokenCalls,
):
    """The calls, for one configuration, on behalf of one identity."""

    def on_behalf_of(self, identity: Identity) -> Self:
        """The same calls for another identity."""
        calls = copy(self)
        calls.identity = identity
        calls.defaults = Defaults(self.config, identity, seals=self.defaults.seals)
        return calls

    def submit_task(
        self,
        task: Any,
        /,
        *args: Any,
        connection: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        registered_elsewhere: bool = False,
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
        unique: str | None = None,
        debounce: float | None = None,
        throttle: float | None = None,
        merge_key: str | Iterable[str] | None = None,
        on_duplicate: str | None = None,
        max_wait: float | None = None,
        share: LaneKey | None = None,
        serial_key: LaneKey | None = None,
        payload_version: int | None = None,
        **arguments: Any,
    ) -> Call[UUID]:
        """Submit one task, a task function or its name with arguments, and return its id.

        `connection=` submits inside the caller's transaction. `kwargs={...}` holds the arguments where one of them is
        named like an option. `registered_elsewhere=True` allows a name that only another program knows.
        """
        said = (
            delay_seconds,
            scheduled_at,
            max_retries,
            timeout_seconds,
            priority,
            tags,
            queue,
            required_capabilities,
            idempotency_key,
            trace_context,
            unique,
            debounce,
            throttle,
            merge_key,
            on_duplicate,
            max_wait,
            share,
            serial_key,
            payload_version,
        )
        also_given = ["connection"] if connection is not None else []
        item = call_arguments.submission(
            task,
            args,
            NOTHING_SAID if {*map(type, said)} == _UNSAID else Options(*said),
            kwargs,
            arguments,
            also_given=[*also_given, "registered_elsewhere"] if registered_elsewhere else also_given,
            registered_elsewhere=registered_elsewhere,
        )
        return self.submit(item, connection=connection)

    def submit_many(
        self,
        task: Any,
        arguments: Iterable[Mapping[str, Any]] | None = None,
        /,
        *,
        connection: Any = None,
        registered_elsewhere: bool = False,
        **options: Any,
    ) -> Call[list[UUID]]:
        """Submit any number of tasks at once, all or none, and return their ids in order.

        submit_many(resize, [{"path": "a"}, {"path": "b"}], priority="low")
        submit_many([resize.bind(path="a"), send_email.options(delay_seconds=60).bind(to="b")])
        """
        items = call_arguments.submissions_of(
            task, arguments, options_of(options), registered_elsewhere=registered_elsewhere
        )
        return (yield from self._insert(items, connection)) if items else []

    def get_task(self, task_id: UUID | str) -> Call[Task | None]:
        """The task with this id, or None."""
        found: Task | None = yield lookup.get(validation.as_id(task_id), owner=self.identity.owner)
        return found

    def list_tasks(
        self,
        task_filter: TaskFilter = EVERY_TASK,
        /,
        *,
        after: UUID | str | Task | None = None,
        limit: int = 100,
        **conditions: Unpack[TaskConditions],
    ) -> Call[list[Task]]:
        """One page of tasks, newest first. For the next page pass the last task as `after`.

        Conditions are keyword arguments, a TaskFilter, or both: `state` (one or several), `name`, `queue`, `tags`,
        `created_after`, `created_before`, `worker` (what the worker with this id runs now) and `ids`.
        """
        chosen = checked_tasks(task_filter, conditions, self.config)
        validation.check_limit(limit, validation.MAX_PAGE)
        start = None if after is None else validation.as_id(after) if isinstance(after, UUID | str) else after.id
        return (yield from self._list(chosen, start, limit))

    def wait_for(self, task_id: UUID | str, timeout: float | None = None) -> Call[Any]:
        """Wait until the task is done and return its result, in the type that its function declares.

        The result is the JSON value if this program hasn't got the function. Raises TaskFailed with the remote
        traceback, TaskCancelled, or WaitTimeout; the task itself is not affected. While the database can't be reached
        it goes on trying, until the timeout; without one, for ever, if it was reached before. DatabaseUnavailable means
        that it couldn't be reached in the end.
        """
        task_id = validation.as_id(task_id)
        ended = yield from self._with_result((yield from self._ended(task_id, timeout)))
        return validation.typed_result(task_id, opened_outcome(self.config, task_id, ended))

    def wait_for_json(self, task_id: UUID | str, timeout: float | None = None) -> Call[Any]:
        """The same, but the result as it is stored: what JSON has for it."""
        task_id = validation.as_id(task_id)
        ended = yield from self._with_result((yield from self._ended(task_id, timeout)))
        return validation.result_of(task_id, opened_outcome(self.config, task_id, ended))

    def wait_until_done(self, task_id: UUID | str, timeout: float | None = None) -> Call[TaskState]:
        """Wait until the task is completed, cancelled or a dead letter, and return which. Raises WaitTimeout."""
        return TaskState((yield from self._ended(validation.as_id(task_id), timeout)).state)

    def cancel_task(self, task_id: UUID | str) -> Call[TaskState]:
        """Cancel a task and return its state: `cancelled` if it waited, `running` if its worker was asked to stop it.

        A task that is finished already stays as it is, and its state is returned.
        """
        task_id = validation.as_id(task_id)
        state: str | None = yield control.cancel(task_id, by=self.identity.actor, owner=self.identity.owner)
        if state is None:
            state = validation.known(task_id, (yield self._outcome(task_id))).state
        client_events.emit_routine(CancelRequested(str(task_id), state, self.identity.actor))
        return TaskState(state)

    def replay_task(self, task_id: UUID | str) -> Call[None]:
        """Run a finished task again from the start: all retries anew, the same arguments, the lease token not reset."""
        task_id = validation.as_id(task_id)
        state: str | None = yield control.replay(task_id, by=self.identity.actor, owner=self.identity.owner)
        if state is None:
            raise validation.not_finished(task_id, (yield self._outcome(task_id)))
        client_events.emit_routine(TaskReplayed(str(task_id), self.identity.actor))

    def run_task_now(self, task_id: UUID | str) -> Call[TaskState]:
        """Run a task that waits for its start time or its retry before that time; returns its state.

        Raises InvalidOption for tasks that are due, run or are finished, that wait at a gate of their flow, and for
        durable functions that sleep or wait for a signal.
        """
        task_id = validation.as_id(task_id)
        state: str | None = yield control.run_now(task_id, by=self.identity.actor, owner=self.identity.owner)
        if state is None:
            raise validation.not_waiting(task_id, (yield self._outcome(task_id)))
        return TaskState(state)

    def _list(self, chosen: TaskFilter, after: UUID | None, limit: int) -> Call[list[Task]]:
        page: list[Task] = yield lookup.list_(replace(chosen, owner=self.identity.owner), after, limit)
        return page

    def _ended(self, task_id: UUID, timeout: float | None) -> Call[lookup.Outcome]:
        """How the task ended, once it has."""
        outages = validation.OutageTolerance(timeout)
        outcome: lookup.Outcome | None = None
        for pause in validation.pauses(timeout):
            with outages.survived(is_last=pause is None):
                outcome = validation.known(task_id, (yield self._outcome(task_id)))
                if is_terminal(outcome):
                    return outcome
                validation.refuse_to_wait_in_a_task(task_id)
            if pause is None:
                break
            yield Pause(pause)
        raise validation.still_waiting(task_id, outcome, timeout)

    def _with_result(self, ended: lookup.Outcome) -> Call[lookup.Outcome]:
        return with_result(self.config, ended)

    def _outcome(self, task_id: UUID) -> Query[lookup.Outcome | None]:
        return lookup.outcome(task_id, owner=self.identity.owner)
