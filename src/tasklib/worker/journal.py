"""Recording the steps of durable functions: many in one statement, each under the lease of its attempt."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

import psycopg

from tasklib.backends.backend import StepStore
from tasklib.backends.postgres.flow_arguments import MOST_IN_LIST
from tasklib.client.submissions import Defaults
from tasklib.db.database import AsyncDatabase, Database, execute, execute_async
from tasklib.db.failures import conflict_pause
from tasklib.db.query import Query
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable, TaskLibError, WorkerLost
from tasklib.steps import StepId, StepKind
from tasklib.store import settle
from tasklib.store.durable import NewStep, Written, record_steps
from tasklib.tasks.blobs import IN_TEXT, is_long, resolved_result
from tasklib.tasks.durable_driving import called
from tasklib.tasks.durable_effects import (
    CallFunction,
    CallInTransaction,
    Consume,
    Effect,
    FoundChildren,
    FoundSignal,
    Load,
    Loading,
    LookAtChildren,
    Record,
    SubmitChildren,
)
from tasklib.tasks.durable_run import LoseTask
from tasklib.tasks.payload_stores import store_of
from tasklib.tasks.sealed_results import opened_value
from tasklib.worker.attempt import Attempt
from tasklib.worker.blobs import stored_or_kept
from tasklib.worker.child_flows import ChildSubmission
from tasklib.worker.sealing import sealed_records

T = TypeVar("T")
_MOST_PER_BATCH = 1000


class _Unrecorded(NamedTuple):
    attempt: Attempt
    step: NewStep
    recorded: asyncio.Future[str]


class Journals:
    """Collects the steps of all attempts of a worker and records them."""

    def __init__(self, store: StepStore, async_database: AsyncDatabase, database: Database, defaults: Defaults) -> None:
        self.store = store
        self.defaults = defaults
        self.async_database = async_database
        self.database = database
        self.loop = asyncio.get_running_loop()
        self._waiting: list[_Unrecorded] = []
        self._writing: asyncio.Task[None] | None = None

    def of(self, attempt: Attempt) -> AttemptJournal:
        return AttemptJournal(self, attempt)

    async def record(self, attempt: Attempt, step: NewStep) -> str:
        """The record as it is now. Raises LoseTask if the task is another attempt's by now."""
        recorded: asyncio.Future[str] = self.loop.create_future()
        self._waiting.append(_Unrecorded(attempt, step, recorded))
        if self._writing is None or self._writing.done():
            self._writing = self.loop.create_task(self._write())
        return await recorded

    def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        tries = 0
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST_PER_BATCH], self._waiting[_MOST_PER_BATCH:]
            again: list[_Unrecorded] = []
            for worker_id in {item.attempt.worker_id for item in batch}:
                again += await self._write_of(worker_id, [i for i in batch if i.attempt.worker_id == worker_id])
            self._waiting[:0] = again
            tries = tries + 1 if again else 0
            if again:
                await asyncio.sleep(conflict_pause(tries))

    async def _write_of(self, worker_id: str, batch: list[_Unrecorded]) -> list[_Unrecorded]:
        """Record these; those whose tasks another transaction has locked, to be tried again."""
        steps = [item.step for item in batch]
        try:
            written, kept = await self.store.record(worker_id, steps)
        except DatabaseUnavailable:
            return [item for item in batch if not _is_over(item)]
        except Exception as e:
            if len(batch) > 1:  # one that can't be stored must not cost the others theirs
                return [left for item in batch for left in await self._write_of(worker_id, [item])]
            _fail(batch[0], e)
            return []
        again = []
        for place, item in enumerate(batch):
            answer = written.get(place)
            if answer is not None and answer.result is not None:
                if not item.recorded.done():
                    item.recorded.set_result(answer.result)
            elif (answer is not None or item.attempt.claimed.id in kept.locked) and not _is_over(item):
                again.append(item)
            else:
                _fail(item, LoseTask())
        return again


def _is_over(item: _Unrecorded) -> bool:
    """Whether the attempt was interrupted meanwhile; then it is told so."""
    if item.attempt.settled:
        _fail(item, LoseTask())
    return item.recorded.done()


def _fail(item: _Unrecorded, error: BaseException) -> None:
    if not item.recorded.done():
        item.recorded.set_exception(error)


class AttemptJournal:
    """What one attempt records, and reads."""

    def __init__(self, journals: Journals, attempt: Attempt) -> None:
        self._journals = journals
        self._attempt = attempt
        self._store = store_of(journals.defaults.config)
        self._sealed = sealed_records(attempt)

    async def perform(self, effect: Effect) -> Any:
        match effect:
            case Load():
                return await self._load()
            case Record(id_, result, seconds):
                stored = None if result is None else await self._stored(self._sealed_text(id_, result))
                step = NewStep(self._attempt.claimed, id_, stored, seconds)
                return await self._read(id_, await self._journals.record(self._attempt, step))
            case Consume():
                return await self._consume(effect)
            case CallInTransaction():
                return await self._in_transaction(effect)
            case SubmitChildren():
                submission = self._submission(effect)
                call = CallFunction(submission.submit_async, (), {})
                return await self._in_transaction(CallInTransaction(effect.id, call, json.dumps))
            case LookAtChildren():
                return await self._look(json.loads(effect.record)["value"])
            case _:
                raise AssertionError(f"{effect} is no effect of a journal")

    def perform_blocking(self, effect: Effect) -> Any:
        if isinstance(effect, SubmitChildren):
            call = CallFunction(self._submission(effect).submit, (), {})
            effect = CallInTransaction(effect.id, call, json.dumps)
        if isinstance(effect, CallInTransaction):
            return self._in_transaction_blocking(effect)
        return self._on_loop(self.perform(effect))

    async def _load(self) -> Loading:
        recorded = await self._until_answered(lambda: self._journals.store.steps_of(self._attempt.claimed))
        return Loading({step.id: await self._read(step.id, step.result) for step in recorded.steps}, recorded.now)

    async def _stored(self, result: str) -> str:
        """A result as it is recorded: a long one is in the payload store."""
        config, claimed = self._journals.defaults.config, self._attempt.claimed
        if self._store is None or not is_long(config, result):
            return result
        keep = partial(stored_or_kept, compress=self._attempt.function.compress and self._sealed is None)
        return await asyncio.to_thread(keep, self._store, claimed.id, claimed.name, result)

    def _sealed_text(self, id_: StepId, text: str) -> str:
        return text if self._sealed is None else self._sealed.sealed(id_, text)

    async def _read(self, id_: StepId, result: str) -> str:
        """A recorded result as it was."""
        text = await self._fetched(result) if IN_TEXT in result else result
        return text if self._sealed is None else self._sealed.opened(id_, text)

    async def _fetched(self, result: str) -> str:
        """From the payload store. While that fails it is tried again, until the attempt is over."""
        failures = 0
        while not self._attempt.settled:
            try:
                return await asyncio.to_thread(resolved_result, self._journals.defaults.config, result)
            except TaskLibError:
                raise
            except Exception:  # the store's own
                await asyncio.sleep(backoff(failures))
                failures += 1
        raise LoseTask

    def _submission(self, effect: SubmitChildren) -> ChildSubmission:
        database = self._journals.database
        return ChildSubmission(effect.children, self._attempt, self._journals.defaults, database.config.schema)

    async def _look(self, record: dict[str, Any]) -> FoundChildren:
        store, lease = self._journals.store, self._attempt.claimed
        look = await self._until_answered(lambda: store.children_look(lease, record["flow"]))
        if look.is_finished is None:
            raise TaskLibError(
                f"the flow {record['flow']}, whose results {lease.name} waits for, was deleted. Submit the task again."
            )
        if not look.is_finished:
            return FoundChildren(None, look.seen)
        ends = []
        for nodes in record["nodes"]:
            source = {"flow": record["flow"], "nodes": nodes, "settled": True}
            page = await store.node_results(source, None, MOST_IN_LIST)
            ring = None if self._attempt.seal is None else self._attempt.seal.ring
            ends.append([opened_value(ring, ended) for _, ended in page])
        return FoundChildren(ends, look.seen)

    async def _consume(self, effect: Consume) -> FoundSignal:
        attempt, tries = self._attempt, 0
        while True:
            consumed, kept = await self._until_answered(
                lambda: self._journals.store.consume(
                    attempt.worker_id,
                    attempt.claimed,
                    effect.signal,
                    step=effect.step,
                    expired=effect.expired,
                    approval=effect.approval,
                )
            )
            if consumed is not None and consumed.is_decided:
                found = consumed.result
                if found is not None and self._sealed is not None:
                    found = self._sealed.opened(StepId(StepKind.SIGNAL, effect.step), found)
                return FoundSignal(found, consumed.seen)
            if consumed is None and attempt.claimed.id not in kept.locked:
                raise LoseTask
            tries += 1
            await asyncio.sleep(conflict_pause(tries))

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while not self._attempt.settled:
            try:
                return await ask()
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1
        raise LoseTask

    # ---- transactional steps ----

    async def _in_transaction(self, effect: CallInTransaction) -> str:
        """The step's writes and its record are committed together. If the record is there already, neither is."""
        database, connection = self._journals.async_database, None
        failures = 0
        while True:
            try:
                async with database.connection() as connection, connection.transaction() as transaction:
                    value = await called(_with_connection(effect, connection))
                    step = self._new_step(effect, value)
                    while not (written := await execute_async(connection, self._query(step), database.config.schema)):
                        if not await execute_async(connection, self._still_held(), database.config.schema):
                            raise LoseTask
                        failures += 1
                        await asyncio.sleep(conflict_pause(failures))
                    if not written[0].is_new:
                        raise psycopg.Rollback(transaction)
                return await self._on_record(effect, written[0])
            except (psycopg.Error, OSError) as e:
                if connection is not None:
                    return await self._after(effect, e, is_lost=connection.closed)
            await asyncio.sleep(backoff(failures))  # there was no connection, and nothing was called
            failures += 1

    def _in_transaction_blocking(self, effect: CallInTransaction) -> str:
        """The same in the thread of a sync function."""
        database, connection = self._journals.database, None
        failures = 0
        while True:
            try:
                with database.connection() as connection, connection.transaction() as transaction:
                    call = _with_connection(effect, connection)
                    value = call.function(*call.args, **call.kwargs)
                    step = self._new_step(effect, value)
                    while not (written := execute(connection, self._query(step), database.config.schema)):
                        if not execute(connection, self._still_held(), database.config.schema):
                            raise LoseTask
                        failures += 1
                        time.sleep(conflict_pause(failures))
                    if not written[0].is_new:
                        raise psycopg.Rollback(transaction)
                return self._on_loop(self._on_record(effect, written[0]))
            except (psycopg.Error, OSError) as e:
                if connection is not None:
                    return self._on_loop(self._after(effect, e, is_lost=connection.closed))
            time.sleep(backoff(failures))
            failures += 1

    def _query(self, step: NewStep) -> Query[dict[int, Written]]:
        return record_steps([step], self._attempt.worker_id)

    def _still_held(self) -> Query[set[str]]:
        return settle.still_held([self._attempt.claimed], self._attempt.worker_id)

    def _new_step(self, effect: CallInTransaction, value: object) -> NewStep:
        return NewStep(self._attempt.claimed, effect.id, self._sealed_text(effect.id, effect.written(value)))

    async def _on_record(self, effect: CallInTransaction, written: Written) -> str:
        if written.result is None:
            return (await self._load()).records[effect.id]
        return await self._read(effect.id, written.result)

    async def _after(self, effect: CallInTransaction, error: Exception, *, is_lost: bool) -> str:
        """After an error: what is on record, if the connection was lost in a commit that took effect."""
        if not is_lost:
            raise error
        if (text := (await self._load()).records.get(effect.id)) is not None:
            return text
        raise WorkerLost(f"the connection was lost in step {effect.id.name!r}: {error}") from error

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._journals.loop).result()


def _with_connection(effect: CallInTransaction, connection: object) -> CallFunction:
    call = effect.call
    return CallFunction(call.function, (connection, *call.args), call.kwargs)
