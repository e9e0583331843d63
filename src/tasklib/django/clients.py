"""The clients behind the module-level calls in Django: everything runs on Django's own connection.

So a task that is submitted inside `atomic()` belongs to the transaction, in a `TestCase` too. Outside of it each call
commits by itself. Asynchronous callers go to the thread in which Django's asynchronous ORM works, as it does.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, transaction

from tasklib.client.async_clients import AsyncClient
from tasklib.client.clients import Client
from tasklib.client.effects import Effect, InTransaction, OnConnection
from tasklib.config import Config
from tasklib.db.callers import run_on
from tasklib.db.database import Tries
from tasklib.db.failures import Conflict, is_connection_loss
from tasklib.db.query import Query
from tasklib.django import settings
from tasklib.errors import SchemaError
from tasklib.store.submit import copied, copy_statement

T = TypeVar("T")


class DjangoClient(Client):
    """The client of synchronous code."""

    def __init__(self) -> None:
        super().__init__(settings.config())
        self._alias = settings.alias()

    @property
    def config(self) -> Config:
        """The settings as they are now: Django's tests change the database while the program runs."""
        return settings.config()

    def asynchronous(self) -> AsyncClient:
        """A client to the same place for the running event loop."""
        return DjangoAsyncClient(self)

    def _do(self, effect: Effect) -> Any:
        match effect:
            case Query():
                return self._run(effect)
            case InTransaction():
                return self._together(effect)
        return super()._do(effect)

    def _run(self, query: Query[T]) -> T:
        """Run a query on Django's connection of this thread, in its transaction if it has one."""
        connection = settings.require_postgresql(self._alias)
        tries = Tries(repeatable=query.repeatable)
        while True:
            try:
                return run_on(connection, query, self._config.schema)
            except SchemaError as e:
                raise SchemaError(str(e).replace("tasklib migrate", "python manage.py migrate")) from e
            except (psycopg.Error, DatabaseError, InterfaceError) as e:
                error = _of_the_driver(e)
                # A conflict is found in the rows that were read; after any other error the transaction is broken.
                if not (connection.autocommit or isinstance(error, Conflict)):
                    raise
                if is_connection_loss(error):
                    connection.close()  # Django would go on using it
                pause = tries.pause_after(error)
            time.sleep(pause)

    def _together(self, work: InTransaction) -> Any:
        connection = settings.require_postgresql(self._alias)
        with transaction.atomic(using=self._alias):
            if work.copied:
                with (
                    connection.cursor() as cursor,
                    connection.wrap_database_errors,
                    cursor.cursor.copy(copy_statement(work.copy, self._config.schema)) as copy,
                ):
                    for rows in copied(work.copied, work.copy):
                        copy.write(rows)
            answer = None
            for query in work.queries:
                answer = self._run(query)
            return answer


class DjangoAsyncClient(AsyncClient):
    """The client of asynchronous code."""

    def __init__(self, client: DjangoClient) -> None:
        super().__init__(client.config)
        self._blocking = client

    @property
    def config(self) -> Config:
        """The settings as they are now."""
        return self._blocking.config

    async def _do(self, effect: Effect) -> Any:
        on_djangos = isinstance(effect, Query | InTransaction)
        if on_djangos or (isinstance(effect, OnConnection) and hasattr(effect.connection, "in_atomic_block")):
            return await sync_to_async(self._blocking._do)(effect)
        return await super()._do(effect)


def _of_the_driver(error: Exception) -> Exception:
    """Django wraps the driver's errors."""
    return error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
