"""Every call of the clients, once and without a colour; what a call is, `effects.py` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack
from uuid import UUID

import psycopg

from tasklib import tracing
from tasklib.client import submissions, validation
from tasklib.client.effects import Call, Effect, InTransaction, OnConnection, Pause, once
from tasklib.client.explaining import ExplainingCalls
from tasklib.client.filters import TaskConditions, checked_tasks
from tasklib.client.identity import Identity
from tasklib.client.operations import OperatorCalls
from tasklib.client.schedules import ScheduleCalls
from tasklib.client.searching import SearchingCalls
from tasklib.client.submissions import Alike, NewTasks
from tasklib.client.tokens import TokenCalls
from tasklib.config import Config
from tasklib.db.failures import MOST_CONFLICTS, Conflict
from tasklib.db.query import Query
from tasklib.events import CancelRequested, TaskReplayed, client_events
from tasklib.states import TaskState, is_terminal
from tasklib.store import control, lookup, submit
from tasklib.store.filters import EVERY_TASK, TaskFilter
from tasklib.store.submit import Kept, NewTask
from tasklib.tasks.options import NOTHING_SAID, Options, options_of
from tasklib.tasks.submitter import Submission
from tasklib.tasks.task_id import KnownId, TaskId

if TYPE_CHECKING:
    from tasklib.models import Task

COPY_FROM = 100
"""From this many plain tasks on, COPY beats one INSERT."""


class Submitted(NamedTuple):
    """What became of one submission."""

    id: UUID
    is_new: bool
    """False: its idempotency key belongs to a task that was there before."""


class Calls(OperatorCalls, ExplainingCalls, SearchingCalls, ScheduleCalls, TokenCalls):
    """The calls, for one configuration, on behalf of one identity."""

    def __init__(
        self, config: Config, identity: Identity | None = None, *, id_type: type[KnownId[Any]] = TaskId
    ) -> None:
        super().__init__(config, identity)
        self.id_type = id_type
        """Of which class the ids of submitted tasks are: it gives them methods that are awaited, or block."""
        self.defaults = submissions.Defaults(config, self.identity)

    def on_behalf_of(self, identity: Identity) -> Self:
        """The same calls for another identity."""
        calls = copy(self)
        calls.identity = identity
        calls.defaults = submissions.Defaults(self.config, identity)
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
        )
        also_given = ["connection"] if connection is not None else []
        item = submissions.submission(
            task,
            args,
            NOTHING_SAID if all(value is None for value in said) else Options(*said),
            kwargs,
            arguments,
            also_given=[*also_given, "registered_elsewhere"] if registered_elsewhere else also_given,
            registered_elsewhere=registered_elsewhere,
        )
        return self.submit(item, connection=connection)

    def submit(self, item: Submission, *, connection: Any = None) -> Call[UUID]:
        """Submit what `task_function.bind(...)` returned."""
        ids = yield from self._insert([item], connection)
        return ids[0]

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
        items = submissions.submissions_of(
            task, arguments, options_of(options), registered_elsewhere=registered_elsewhere
        )
        return (yield from self._insert(items, connection)) if items else []

    def submit_each(self, items: Sequence[Submission], *, ids: Sequence[UUID] | None = None) -> Call[list[Submitted]]:
        """Submit what `task_function.bind(...)` returned, all or none, and say of each whether it is new.

        With `ids=`, UUIDs of version 7, a submission that is repeated adds nothing.
        """
        if ids is not None:
            validation.check_ids(ids, len(items))
        tasks = submissions.new_tasks(items, self.defaults, ids, id_type=self.id_type)
        ids = yield from self._submit(tasks, None)
        return [Submitted(id_, id_ == made) for id_, made in zip(ids, tasks.ids, strict=True)]

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
        return validation.typed_result(task_id, (yield from self._ended(task_id, timeout)))

    def wait_for_json(self, task_id: UUID | str, timeout: float | None = None) -> Call[Any]:
        """The same, but the result as it is stored: what JSON has for it."""
        task_id = validation.as_id(task_id)
        return validation.result_of(task_id, (yield from self._ended(task_id, timeout)))

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
            if pause is None:
                break
            yield Pause(pause)
        raise validation.still_waiting(task_id, outcome, timeout)

    def _outcome(self, task_id: UUID) -> Query[lookup.Outcome | None]:
        return lookup.outcome(task_id, owner=self.identity.owner)

    def _insert(self, items: Alike | Sequence[Submission], connection: Any) -> Call[list[UUID]]:
        return (yield from self._submit(submissions.new_tasks(items, self.defaults, id_type=self.id_type), connection))

    def _submit(self, tasks: NewTasks, connection: Any) -> Call[list[UUID]]:
        span = submissions.span_of(tasks) if tracing.is_used() else None
        if span is None:
            ids = yield from self._store(tasks, connection)
        else:
            with span:
                tasks.carry(span.carried)
                ids = yield from self._store(tasks, connection)
        if client_events.routine:
            submissions.tell(tasks, ids, self.identity.actor)
        return ids

    def _store(self, tasks: NewTasks, connection: Any) -> Call[list[UUID]]:
        if tasks.have_given_ids:
            kept = yield from self._store_given(tasks)
        elif len(tasks) == 1:
            one = submit.submit_one(tasks[0], self.identity.owner)
            kept = yield from once(one) if connection is None else self._store_on(connection, one, tasks)
        elif connection is None:
            kept = yield self._batch(tasks)
        else:
            # One statement, so that it is all or none even on a connection in autocommit mode.
            keyed, plain = submissions.keyed_and_plain(tasks)
            both = submit.submit_once(plain + keyed, self.identity.owner) if keyed else submit.submit(plain)
            kept = yield from self._store_on(connection, both, tasks)
        return submissions.ids_in_order(tasks, kept)

    def _store_on(self, connection: Any, query: Query[Any], tasks: NewTasks) -> Call[Kept | None]:
        """On the caller's connection, where nothing can be rolled back: a key taken just now is looked up again."""
        tries = 0
        while True:
            try:
                kept: Kept | None = yield OnConnection(connection, query)
                return kept
            except Conflict:  # the others are inserted by now
                tries += 1
                if tries == MOST_CONFLICTS:
                    raise
                query = submit.submit_once(submissions.keyed_and_plain(tasks)[0], self.identity.owner)

    def _store_given(self, tasks: NewTasks) -> Call[Kept | None]:
        keyed, plain = submissions.keyed_and_plain(tasks)
        queries: list[Query[Any]] = [submit.submit_given(plain)] if plain else []
        if keyed:
            queries.append(submit.submit_once(keyed, self.identity.owner))
        try:
            # If an id or a key may belong to another owner, the whole batch has to be rolled back.
            kept: Kept | None = yield queries[0] if len(tasks) == 1 else InTransaction((), queries)
        except psycopg.errors.UniqueViolation as e:
            raise submit.foreign_id() from e
        return kept

    def _batch(self, tasks: NewTasks) -> Effect:
        if len(tasks) >= COPY_FROM and all(kind.is_plain for kind in tasks.kinds):
            return InTransaction(tasks, ())
        owner = self.identity.owner
        keyed, plain = submissions.keyed_and_plain(tasks)
        copied: list[NewTask] = []
        if len(plain) >= COPY_FROM:
            copied, plain = [t for t in plain if t.terms.is_plain], [t for t in plain if not t.terms.is_plain]
        queries: list[Query[Any]] = [submit.submit(plain)] if plain else []
        if keyed:
            queries.append(submit.submit_once(keyed, owner))
        # If a key may belong to another owner, the whole batch has to be rolled back.
        is_one_statement = not copied and len(queries) == 1 and (owner is None or not keyed)
        return queries[0] if is_one_statement else InTransaction(copied, queries)
