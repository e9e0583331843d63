"""For the tests of a Django project, in a `TestCase`, a `TransactionTestCase` and with pytest-django.

with captureTasks() as tasks:                 # what was submitted, and not rolled back
    self.client.post("/orders/")
self.assertEqual(tasks[0].kwargs, {"order": 1})

with captureTasks(run=True): ...              # and run at the end of the block, as on a worker
with inline(): ...                            # run where it is submitted, without the table
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError

from tasklib.client.clients import Client
from tasklib.client.default import default_client
from tasklib.client.effects import once
from tasklib.django.settings import alias, require_postgresql
from tasklib.errors import PayloadDamaged, PayloadUnreadable
from tasklib.events import Event, TaskSubmitted, client_events
from tasklib.executors.functions import failed, result_text, typed_arguments
from tasklib.executors.outcomes import Released
from tasklib.store import claim, settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Completion, Failure
from tasklib.tasks import registry
from tasklib.tasks.context import running_task
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.signature import CONNECTION
from tasklib.testing.draining import wanted_capabilities
from tasklib.testing.inline_mode import Inline
from tasklib.worker.attempt import Attempt
from tasklib.worker.blobs import read_arguments
from tasklib.worker.sealing import MARKED, open_arguments

if TYPE_CHECKING:
    from tasklib.models import Task

__all__ = ["captureTasks", "inline"]

T = TypeVar("T")
_WORKER = "captureTasks"


@contextmanager
def captureTasks(*, run: bool = False) -> Iterator[list[Task]]:
    """The tasks submitted in the block, oldest first, once it has ended. What was rolled back is not among them.

    with captureTasks() as tasks:
        place_order("ada@example.com")
    self.assertEqual([task.name for task in tasks], ["send_receipt"])

    With `run=True` all due tasks are run at the end of the block, in this thread and on this connection, and so are
    the tasks they submit. Their rows say what became of them. What a task raises comes out of the block. Durable
    functions are left to a worker, or to inline mode.
    """
    submitted: dict[str, None] = {}

    def hear(event: Event) -> None:
        if isinstance(event, TaskSubmitted) and event.is_new:
            submitted[event.id] = None

    tasks: list[Task] = []
    client_events.subscribe(hear)
    try:
        yield tasks
        if run:
            _run_due(default_client())
    finally:
        client_events.unsubscribe(hear)
    # After the block: a failed one has a better error than this could raise.
    found = (default_client().get_task(id_) for id_ in submitted)
    tasks.extend(task for task in found if task is not None)


def inline(*, raise_errors: bool = True, connection: Any = None) -> Inline:
    """`tasklib.testing.inline` on Django's connection of this test, whichever of test and task is asynchronous."""
    return DjangoInline(raise_errors=raise_errors, connection=connection)


class DjangoInline(Inline):
    """Goes from sync to async and back as Django does: the ORM works in the test's thread, in its transaction."""

    def until_done(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an async function for synchronous code."""
        return _until_done(start)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a sync function for asynchronous code."""
        done: T = await sync_to_async(call)()
        return done


def _until_done(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        return await asyncio.create_task(start())  # its context variables end with it

    done: T = async_to_sync(run)()
    return done


# ---- a worker of one connection ----


def _run_due(client: Client) -> None:
    config = client.config
    while True:
        # A durable function is suspended and resumed, by a worker.
        names = [name for name, function in registry.functions.items() if not function.durable]
        served = Served(sorted(names), None, client.perform(once(wanted_capabilities())))
        claimed = client.perform(
            once(
                claim.claim(
                    served,
                    1,
                    _WORKER,
                    lease_seconds=config.lock_timeout_seconds,
                    medium_after=config.promote_to_medium_after_seconds,
                    high_after=config.promote_to_high_after_seconds,
                )
            )
        )
        if not claimed:
            return
        _run_one(client, claimed[0])


def _run_one(client: Client, claimed: Claimed) -> None:
    function = registry.find(claimed.name)
    now = time.monotonic()
    attempt = Attempt(claimed, function, _WORKER, now + client.config.lock_timeout_seconds, now)
    attempt.called(now)
    if function.sealing is not None or claimed.kwargs.startswith(MARKED):
        open_arguments(attempt, client.config)
    if attempt.unread:
        read_arguments(attempt, client.config)
    try:
        if isinstance(attempt.refusal, Released):
            raise PayloadUnreadable(attempt.refusal.reason)
        if attempt.refusal is not None:
            raise PayloadDamaged(claimed.name, claimed.id, "kwargs", attempt.refusal.error)
        if function.is_async:
            returned = _until_done(lambda: _call_async(attempt))
        else:
            returned = contextvars.copy_context().run(_call, attempt)
        result = result_text(returned, client.config, function.results.to_json)
    except (Exception, SystemExit) as e:
        outcome = failed(e, function, client.config)
        error = outcome.error if attempt.seal is None else attempt.seal.error(outcome.error, outcome.raised)
        failure = Failure(claimed, error, outcome.kind.value, 0.0, retriable=outcome.retriable)
        with suppress(DatabaseError):  # the task has broken the transaction, and its own error says more
            client.perform(once(settle.fail([failure], _WORKER, client.config.crash_limit)))
        raise
    stored = result if attempt.seal is None else attempt.seal.result(result)
    client.perform(once(settle.complete([Completion(claimed, stored)], _WORKER)))


def _call(attempt: Attempt) -> Any:
    running_task.set(attempt.context)
    function = attempt.function
    return function.function(
        **typed_arguments(function, attempt.claimed.kwargs, attempt.context), **_injected(function)
    )


async def _call_async(attempt: Attempt) -> Any:
    returned = _call(attempt)
    return await returned if hasattr(returned, "__await__") else returned


def _injected(function: TaskFunction[Any, Any]) -> dict[str, Any]:
    """Transactional tasks receive the connection of the test, without Django around it."""
    return {CONNECTION: require_postgresql(alias()).connection} if function.takes_connection else {}
