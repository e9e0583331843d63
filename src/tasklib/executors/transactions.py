"""Transactional tasks: the task's own writes and its completion commit together, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import psycopg

from tasklib.config import Config
from tasklib.db.database import AsyncDatabase, Database, execute, execute_async
from tasklib.db.failures import is_bad_data, is_connection_loss
from tasklib.db.query import Query
from tasklib.db.timeouts import allowed
from tasklib.errors import DatabaseUnavailable, TaskLibError
from tasklib.executors.functions import call, call_async, failed
from tasklib.executors.outcomes import Committed, Done, Failed, FailureKind, Lost, Released
from tasklib.store.settle import CompletedWithin, Completion, Leased, complete_within, progress
from tasklib.tasks.context import TaskContext
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.sealing import TaskSeal
from tasklib.tasks.signature import CONNECTION


class _Undo(Exception):
    """Leave the transaction without committing it."""


async def call_in_transaction_async(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: Callable[[], TaskContext],
    lease: Leased,
    database: AsyncDatabase,
    newest_progress: Callable[[], str | None],
    seal: TaskSeal | None = None,
) -> Committed | Failed | Lost | Released:
    """Call an async function with a connection inside a transaction that ends with the task's completion."""
    config = database.config
    outcome: Committed | Done | Failed | Lost
    is_called = False
    try:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(database.connection())
            await stack.enter_async_context(connection.transaction())
            # The task's own statements take the task's own time; the completion and the commit are ours.
            is_called = True
            with allowed(connection, math.inf):
                outcome = await call_async(function, kwargs, context, config, **{CONNECTION: connection})
            outcome = _judged(outcome, connection)
            if isinstance(outcome, Done):
                try:
                    if (report := newest_progress()) is not None:
                        await _store_progress_async(
                            connection, progress([(lease, report)], context().worker_id), config
                        )
                    completion = complete_within(Completion(lease, _stored(outcome.result, seal)), context().worker_id)
                    outcome = _completed(await execute_async(connection, completion, config.schema))
                except psycopg.errors.SerializationFailure:
                    outcome = _too_strict()
            if not isinstance(outcome, Committed):
                raise _Undo
    except _Undo:
        pass
    except (psycopg.Error, TaskLibError, OSError) as e:
        # The commit may have taken effect all the same: the settlement that follows carries the token and will be told.
        return _broken(e, function, config, is_called=is_called)
    return _without_done(outcome)


def call_in_transaction(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: Callable[[], TaskContext],
    lease: Leased,
    database: Database,
    newest_progress: Callable[[], str | None],
    seal: TaskSeal | None = None,
) -> Committed | Failed | Lost | Released:
    """The same for a sync function, in its thread."""
    config = database.config
    outcome: Committed | Done | Failed | Lost
    is_called = False
    try:
        with database.connection() as connection, connection.transaction():
            is_called = True
            with allowed(connection, context().seconds_left or math.inf):
                outcome = call(function, kwargs, context, config, **{CONNECTION: connection})
            outcome = _judged(outcome, connection)
            if isinstance(outcome, Done):
                try:
                    if (report := newest_progress()) is not None:
                        _store_progress(connection, progress([(lease, report)], context().worker_id), config)
                    completion = complete_within(Completion(lease, _stored(outcome.result, seal)), context().worker_id)
                    outcome = _completed(execute(connection, completion, config.schema))
                except psycopg.errors.SerializationFailure:
                    outcome = _too_strict()
            if not isinstance(outcome, Committed):
                raise _Undo
    except _Undo:
        pass
    except (psycopg.Error, TaskLibError, OSError) as e:
        return _broken(e, function, config, is_called=is_called)
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
        FailureKind.REJECTED,
        retriable=False,
    )


def _judged(outcome: Done | Failed, connection: psycopg.Connection | psycopg.AsyncConnection) -> Done | Failed:
    """A function whose connection was lost under it has not failed: that is a crash, and uses no retry."""
    if isinstance(outcome, Failed) and connection.closed:
        return replace(outcome, kind=FailureKind.CRASH, retriable=True)
    return outcome


def _broken(
    error: Exception, function: TaskFunction[Any, Any], config: Config, *, is_called: bool
) -> Failed | Released:
    """The transaction could not be begun, or not be ended."""
    is_lost = isinstance(error, DatabaseUnavailable) or is_connection_loss(error)
    if is_lost and not is_called:
        return Released(f"there is no connection for its transaction: {error}")
    outcome = failed(error, function, config)
    return replace(outcome, kind=FailureKind.CRASH, retriable=True) if is_lost else outcome


def _without_done(outcome: Committed | Done | Failed | Lost) -> Committed | Failed | Lost:
    assert not isinstance(outcome, Done)
    return outcome


def transaction_config(config: Config, connections: int) -> Config:
    """The pool for transactional tasks is as large as the worker may need."""
    return config.with_changes(max_connections=max(1, connections))


def _stored(result: str, seal: TaskSeal | None) -> str:
    return result if seal is None else seal.result(result)
