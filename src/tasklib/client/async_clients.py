"""`AsyncClient`: the calls for asynchronous code."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from copy import copy
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, assert_never, cast

import psycopg

from tasklib.client.calls import Calls
from tasklib.client.effects import (
    Call,
    Connect,
    Effect,
    HttpEffect,
    InTransaction,
    OnConnection,
    OnShards,
    Pause,
    RunCoroutine,
)
from tasklib.client.identity import Identity
from tasklib.client.signatures import RunSchedule, Submit, SubmitFlow, SubmitMany, SubmitTask, WaitFor, signature_of
from tasklib.config import Config
from tasklib.db.callers import run_on_async
from tasklib.db.database import AsyncDatabase, Tries, execute_async
from tasklib.db.query import Query
from tasklib.errors import ConfigError
from tasklib.store.submit import copied, copy_statement
from tasklib.tasks.submitter import Awaited, mark_for_asyncio, returns_awaited
from tasklib.tasks.task_id import TaskId, by_client

P = ParamSpec("P")
T = TypeVar("T")


def _awaitable(
    call: Callable[Concatenate[Calls, P], Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    name = call.__name__

    async def perform(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        made: Call[T] = getattr(self.calls, name)(*args, **kwargs)
        return await self.perform(made)

    return awaited_method(call, perform)


def awaited_method(
    call: Callable[..., Any], perform: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method that says what to write if its caller forgets to await it."""
    name = perform.__name__ = perform.__qualname__ = call.__name__  # for the warning of one that is never awaited
    written, instead = f"client.{name}", f"tasklib.Client(...).{name}"

    @returns_awaited
    @functools.wraps(call)
    def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return Awaited(perform(self, *args, **kwargs), written, instead)

    vars(method)["__signature__"] = signature_of(call)
    return method


def _submitting_async(call: Callable[..., Call[Any]]) -> Any:
    name = call.__name__

    async def perform(self: AsyncClient, /, *args: Any, **kwargs: Any) -> Any:
        return by_client(self, await self.perform(getattr(self.calls, name)(*args, **kwargs)))

    return awaited_method(call, perform)


class Closed(Awaitable[None]):
    """What closing an asynchronous client returns; `rest` is what the loop still has to do for it."""

    def __init__(self, rest: asyncio.Task[None] | None = None) -> None:
        self._rest = rest

    def __await__(self) -> Generator[Any, Any, None]:
        if self._rest is not None:
            yield from self._rest


class AsyncClient:
    """Submits and looks up tasks, for asynchronous code. One per event loop.

    async with AsyncClient("postgresql://app@db/app") as client:
        task_id = await client.submit_task(send_email, to="a@example.com")
    """

    def __init__(self, config: Config | str | None = None) -> None:
        self._config = config if isinstance(config, Config) else Config.from_env(database_url=config)
        if len(self._config.shards) == 1 and self._config.shards_file is None:
            self._config = self._config.for_shard(self._config.home.number)
        if self._config.shards:
            self.database, self.calls = self._over_shards()
        else:
            self.database, self.calls = AsyncDatabase(self._config), Calls(self._config)

    submit_task: SubmitTask = _submitting_async(Calls.submit_task)
    submit: Submit = _submitting_async(Calls.submit)
    submit_many: SubmitMany = _submitting_async(Calls.submit_many)
    submit_each = _awaitable(Calls.submit_each)
    get_task = _awaitable(Calls.get_task)
    list_tasks = _awaitable(Calls.list_tasks)
    search_tasks = _awaitable(Calls.search_tasks)
    suggest = _awaitable(Calls.suggest)
    saved_searches = _awaitable(Calls.saved_searches)
    save_search = _awaitable(Calls.save_search)
    delete_search = _awaitable(Calls.delete_search)
    wait_for: WaitFor = cast("Any", _awaitable(Calls.wait_for))
    cancel_task = _awaitable(Calls.cancel_task)
    replay_task = _awaitable(Calls.replay_task)
    run_task_now = _awaitable(Calls.run_task_now)
    edit_task = _awaitable(Calls.edit_task)
    signal = _awaitable(Calls.signal)
    signal_on_record = _awaitable(Calls.signal_on_record)
    steps_of = _awaitable(Calls.steps_of)
    approvals = _awaitable(Calls.approvals)
    approval = _awaitable(Calls.approval)
    approve = _awaitable(Calls.approve)
    reject = _awaitable(Calls.reject)
    answer = _awaitable(Calls.answer)
    explain_task = _awaitable(Calls.explain_task)
    queue_position = _awaitable(Calls.queue_position)
    workers = _awaitable(Calls.workers)
    drain_worker = _awaitable(Calls.drain_worker)
    pause = _awaitable(Calls.pause)
    resume = _awaitable(Calls.resume)
    pauses = _awaitable(Calls.pauses)
    bound_queue = _awaitable(Calls.bound_queue)
    queue_bounds = _awaitable(Calls.queue_bounds)
    bound_name = _awaitable(Calls.bound_name)
    name_bounds = _awaitable(Calls.name_bounds)
    limits = _awaitable(Calls.limits)
    set_limit = _awaitable(Calls.set_limit)
    remove_limit = _awaitable(Calls.remove_limit)
    reset_limit = _awaitable(Calls.reset_limit)
    sync_limits = _awaitable(Calls.sync_limits)
    breakers = _awaitable(Calls.breakers)
    set_breaker = _awaitable(Calls.set_breaker)
    remove_breaker = _awaitable(Calls.remove_breaker)
    reset_breaker = _awaitable(Calls.reset_breaker)
    open_breaker = _awaitable(Calls.open_breaker)
    close_breaker = _awaitable(Calls.close_breaker)
    sync_breakers = _awaitable(Calls.sync_breakers)
    settings = _awaitable(Calls.settings)
    change_settings = _awaitable(Calls.change_settings)
    cancel_tasks = _awaitable(Calls.cancel_tasks)
    erase_tasks = _awaitable(Calls.erase_tasks)
    cancel_found = _awaitable(Calls.cancel_found)
    replay_found = _awaitable(Calls.replay_found)
    cancel_chosen = _awaitable(Calls.cancel_chosen)
    replay_chosen = _awaitable(Calls.replay_chosen)
    count_states = _awaitable(Calls.count_states)
    failures = _awaitable(Calls.failures)
    dead_letters = _awaitable(Calls.dead_letters)
    dead_letter_groups = _awaitable(Calls.dead_letter_groups)
    latest_dead_letter_groups = _awaitable(Calls.latest_dead_letter_groups)
    dead_letters_alike = _awaitable(Calls.dead_letters_alike)
    replay_dead_letters = _awaitable(Calls.replay_dead_letters)
    purge_dead_letters = _awaitable(Calls.purge_dead_letters)
    start_replay = _awaitable(Calls.start_replay)
    replays = _awaitable(Calls.replays)
    get_replay = _awaitable(Calls.get_replay)
    pause_replay = _awaitable(Calls.pause_replay)
    resume_replay = _awaitable(Calls.resume_replay)
    stop_replay = _awaitable(Calls.stop_replay)
    create_schedule = _awaitable(Calls.create_schedule)
    schedules = _awaitable(Calls.schedules)
    get_schedule = _awaitable(Calls.get_schedule)
    change_schedule = _awaitable(Calls.change_schedule)
    pause_schedule = _awaitable(Calls.pause_schedule)
    resume_schedule = _awaitable(Calls.resume_schedule)
    run_schedule: RunSchedule = _submitting_async(Calls.run_schedule)
    delete_schedule = _awaitable(Calls.delete_schedule)
    backfill_schedule = _awaitable(Calls.backfill_schedule)
    preview_schedule = _awaitable(Calls.preview_schedule)
    explain_schedule = _awaitable(Calls.explain_schedule)
    sync_schedules = _awaitable(Calls.sync_schedules)
    submit_flow: SubmitFlow = _submitting_async(Calls.submit_flow)
    flows = _awaitable(Calls.flows)
    get_flow = _awaitable(Calls.get_flow)
    cancel_flow = _awaitable(Calls.cancel_flow)
    replay_flow = _awaitable(Calls.replay_flow)
    create_token = _awaitable(Calls.create_token)
    tokens = _awaitable(Calls.tokens)
    revoke_token = _awaitable(Calls.revoke_token)
    audit = _awaitable(Calls.audit)

    @property
    def config(self) -> Config:
        """The settings it was made with."""
        return self._config

    def on_behalf_of(self, actor: str, *, submitted_by: str | None = None, only_own: bool = False) -> Self:
        """This client for another identity, on the same connections: for servers that act for many users.

        The audit names the `actor`, and tasks are submitted as `submitted_by`. With `only_own=True` the tasks of
        others are unknown to it.
        """
        client = copy(self)
        client.calls = self.calls.on_behalf_of(Identity(actor, submitted_by, only_own))
        return client

    async def perform(self, call: Call[T]) -> T:
        """Carry out a call step by step."""
        try:
            effect = next(call)
            while True:
                try:
                    answer = await self._do(effect)
                except BaseException as e:
                    effect = call.throw(e)
                else:
                    effect = call.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    def on_shard(self, number: int) -> Self:
        """This client for one of its shards alone, on the same connections."""
        from tasklib.client.sharded_calls import ShardedCalls
        from tasklib.sharding.databases import AsyncShardedDatabase

        database = getattr(self, "database", None)  # a client over HTTP has none
        if not isinstance(database, AsyncShardedDatabase):
            raise ConfigError("this client has no shards.")
        client = copy(self)
        client.database = database.of(number)
        client._config = client.database.config
        if isinstance(self.calls, ShardedCalls):
            client.calls = self.calls.of(number)
        return client

    def close(self) -> Awaitable[None]:
        """Close the connections; a later call opens new ones. It may be awaited, and need not be."""
        self.database.close()
        return Closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case Query():
                return await self.database.run(effect)
            case OnConnection(connection, query):
                return await run_on_async(connection, query, self.config.schema)
            case InTransaction():
                return await self._together(effect)
            case Pause(seconds):
                return await asyncio.sleep(seconds)
            case RunCoroutine(work):
                return await work(self.config)
            case OnShards(calls):
                return await self._on_shards(calls)
            case Connect():
                async with self.database.connection():
                    return None
            case HttpEffect():
                raise TypeError(f"this client uses a database and can't perform {effect!r}.")
            case _:
                assert_never(effect)

    def _over_shards(self) -> tuple[AsyncDatabase, Calls]:
        from tasklib.client.sharded_calls import ShardedCalls
        from tasklib.sharding.databases import AsyncShardedDatabase

        database = AsyncShardedDatabase(self._config)
        return database, ShardedCalls(self._config, database.shards, id_type=TaskId)

    async def _on_shards(self, calls: Mapping[int, Call[Any]]) -> Mapping[int, Any]:
        from tasklib.sharding.databases import AsyncShardedDatabase

        assert isinstance(self.database, AsyncShardedDatabase)
        return await self.database.each({n: partial(self.on_shard(n).perform, call) for n, call in calls.items()})

    async def _together(self, work: InTransaction) -> Any:
        tries = Tries(repeatable=True)
        while True:
            try:
                async with self.database.connection() as connection:
                    return await self._in_transaction(connection, work)
            except psycopg.Error as e:
                await asyncio.sleep(tries.pause_after(e))
                work = work.again()

    async def _in_transaction(self, connection: psycopg.AsyncConnection, work: InTransaction) -> Any:
        answer = None
        async with connection.transaction():
            if work.copied:
                text = copy_statement(work.copy, self.config.schema)
                async with connection.cursor() as cursor, cursor.copy(text) as copy:
                    for rows in copied(work.copied, work.copy):
                        await copy.write(rows)
            for query in work.queries:
                answer = await execute_async(connection, query, self.config.schema)
        return answer


mark_for_asyncio()
