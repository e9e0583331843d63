"""Transactional tasks: the task's own writes and its completion commit together, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg

from tasklib.config import Config
from tasklib.db.database import AsyncDatabase, Database, execute, execute_async
from tasklib.db.failures import is_bad_data
from tasklib.db.patience import allowed
from tasklib.db.query import Query
from tasklib.errors import TaskLibError
from tasklib.executors.functions import call, call_async
from tasklib.executors.outcomes import Committed, Done, Failed, Kind, Lost, failed
from tasklib.store.settle import CompletedWithin, Completion, Leased, complete_within, progress
from tasklib.tasks.arguments import CONNECTION
from tasklib.tasks.context import TaskContext
from tasklib.tasks.function import TaskFunction


class _Undo(Exception):
    """Leave the transaction without committing it."""


async def call_in_transaction_async(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: Callable[[], TaskContext],
    lease: Leased,
    database: AsyncDatabase,
    newest_progress: Callable[[], str | None],
) -> Committed | Failed | Lost:
    """Call an async function with a connection inside a transaction that ends with the task's completion."""
    config = database.config
    outcome: Committed | Done | Failed | Lost
    try:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(database.connection())
            await stack.enter_async_context(connection.transaction())
            # The task's own statements take the task's own time; the completion and the commit are ours.
            with allowed(connection, math.inf):
                outcome = await call_async(function, kwargs, context, config, **{CONNECTION: connection})
            if isinstance(outcome, Done):
                try:
                    if (report := newest_progress()) is not None:
                        await _store_progress_async(
                            connection, progress([(lease, report)], context().worker_id), config
                        )
                    completion = complete_within(Completion(lease, outcome.result), context().worker_id)
                    outcome = _completed(await execute_async(connection, completion, config.schema))
                except psycopg.errors.SerializationFailure:
                    outcome = _too_strict()
            if not isinstance(outcome, Committed):
                raise _Undo
    except _Undo:
        pass
    except (psycopg.Error, TaskLibError, OSError) as e:
        # The commit may have taken effect all the same: the settlement that follows carries the token and will be told.
        return failed(e, function, config)
    return _without_done(outcome)


def call_in_transaction(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: Callable[[], TaskContext],
    lease: Leased,
    database: Database,
    newest_progress: Callable[[], str | None],
) -> Committed | Failed | Lost:
    """The same for a sync function, in its thread."""
    config = database.config
    outcome: Committed | Done | Failed | Lost
    try:
        with database.connection() as connection, connection.transaction():
            with allowed(connection, context().seconds_left or math.inf):
                outcome = call(function, kwargs, context, config, **{CONNECTION: connection})
            if isinstance(outcome, Done):
                try:
                    if (report := newest_progress()) is not None:
                        _store_progress(connection, progress([(lease, report)], context().worker_id), config)
                    completion = complete_within(Completion(lease, outcome.result), context().worker_id)
                    outcome = _completed(execute(connection, completion, config.schema))
                except psycopg.errors.SerializationFailure:
                    outcome = _too_strict()
            if not isinstance(outcome, Committed):
                raise _Undo
    except _Undo:
        pass
    except (psycopg.Error, TaskLibError, OSError) as e:
        return failed(e, function, config)
    return _without_done(outcome)


async def _store_progress_async(connection: psycopg.AsyncConnection, report: Query[set[str]], config: Config) -> None:
    try:
        async with connection.transaction():  # one that can't be stored must not cost the task its transaction
            await execute_async(connection, report, config.schema)
    except psycopg.Error as e:
        if not is_bad_data(e):
            raise


def _store_progress(connection: psycopg.Connection, report: Query[set[str]], config: Config) -> None:
    try:
        with connection.transaction():
            execute(connection, report, config.schema)
    except psycopg.Error as e:
        if not is_bad_data(e):
            raise


def _completed(completed: CompletedWithin) -> Committed | Failed | Lost:
    if completed.isolation != "read committed":
        return _too_strict()
    return Committed() if completed.is_ours else Lost()


def _too_strict() -> Failed:
    """Lease and progress are written to the task's row while it runs: in a stricter isolation that ends in an error."""
    return Failed(
        "TaskLibError: the task raised the isolation of its transaction above READ COMMITTED. Its lease and its "
        "progress are written to its row while it runs, so its completion would fail sooner or later. Nothing was "
        "committed. Lock what must not change (SELECT ... FOR UPDATE), or use a connection of your own.",
        Kind.REJECTED,
        retriable=False,
    )


def _without_done(outcome: Committed | Done | Failed | Lost) -> Committed | Failed | Lost:
    assert not isinstance(outcome, Done)
    return outcome


def transaction_config(config: Config, connections: int) -> Config:
    """The pool for transactional tasks is as large as the worker may need."""
    return config.with_changes(max_connections=max(1, connections))
