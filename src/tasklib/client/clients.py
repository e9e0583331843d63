"""`Client`: the calls for synchronous code. Its twin for asynchronous code is in `async_clients.py`."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, assert_never, cast

import psycopg

from tasklib.client.async_clients import AsyncClient
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
from tasklib.client.signatures import (
    SyncRunSchedule,
    SyncSubmit,
    SyncSubmitFlow,
    SyncSubmitMany,
    SyncSubmitTask,
    SyncWaitFor,
    signature_of,
)
from tasklib.config import Config
from tasklib.db.callers import run_on
from tasklib.db.database import Database, Tries, execute
from tasklib.db.query import Query
from tasklib.errors import ConfigError
from tasklib.store.submit import copied, copy_statement
from tasklib.tasks.task_id import SyncTaskId, by_client

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(call: Callable[Concatenate[Calls, P], Call[T]]) -> Callable[Concatenate[Client, P], T]:
    # By its name: a client of another kind has calls of its own.
    name = call.__name__

    @functools.wraps(call)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        made: Call[T] = getattr(self.calls, name)(*args, **kwargs)
        return self.perform(made)

    vars(method)["__signature__"] = signature_of(call)
    return method


def _submitting(call: Callable[..., Call[Any]]) -> Any:
    """A blocking method whose ids know this client. Its type is said in `signatures.py`."""
    name = call.__name__

    @functools.wraps(call)
    def method(self: Client, /, *args: Any, **kwargs: Any) -> Any:
        return by_client(self, self.perform(getattr(self.calls, name)(*args, **kwargs)))

    vars(method)["__signature__"] = signature_of(call)
    return method


class Client:
    """Submits and looks up tasks, for synchronous code. Safe to share between threads.

    with Client("postgresql://app@db/app") as client:
        task_id = client.submit_task(send_email, to="a@example.com")
    """

    def __init__(self, config: Config | str | None = None) -> None:
        self._config = config if isinstance(config, Config) else Config.from_env(database_url=config)
        if len(self._config.shards) == 1 and self._config.shards_file is None:
            self._config = self._config.for_shard(self._config.home.number)
        if self._config.shards:
            self.database, self.calls = self._over_shards()
        else:
            self.database, self.calls = Database(self._config), Calls(self._config, id_type=SyncTaskId)

    submit_task: SyncSubmitTask = _submitting(Calls.submit_task)
    submit: SyncSubmit = _submitting(Calls.submit)
    submit_many: SyncSubmitMany = _submitting(Calls.submit_many)
    submit_each = _blocking(Calls.submit_each)
    get_task = _blocking(Calls.get_task)
    list_tasks = _blocking(Calls.list_tasks)
    search_tasks = _blocking(Calls.search_tasks)
    suggest = _blocking(Calls.suggest)
    saved_searches = _blocking(Calls.saved_searches)
    save_search = _blocking(Calls.save_search)
    delete_search = _blocking(Calls.delete_search)
    wait_for: SyncWaitFor = cast("Any", _blocking(Calls.wait_for))
    cancel_task = _blocking(Calls.cancel_task)
    replay_task = _blocking(Calls.replay_task)
    run_task_now = _blocking(Calls.run_task_now)
    edit_task = _blocking(Calls.edit_task)
    signal = _blocking(Calls.signal)
    signal_on_record = _blocking(Calls.signal_on_record)
    steps_of = _blocking(Calls.steps_of)
    approvals = _blocking(Calls.approvals)
    approval = _blocking(Calls.approval)
    approve = _blocking(Calls.approve)
    reject = _blocking(Calls.reject)
    answer = _blocking(Calls.answer)
    explain_task = _blocking(Calls.explain_task)
    queue_position = _blocking(Calls.queue_position)
    workers = _blocking(Calls.workers)
    drain_worker = _blocking(Calls.drain_worker)
    pause = _blocking(Calls.pause)
    resume = _blocking(Calls.resume)
    pauses = _blocking(Calls.pauses)
    bound_queue = _blocking(Calls.bound_queue)
    queue_bounds = _blocking(Calls.queue_bounds)
    bound_name = _blocking(Calls.bound_name)
    name_bounds = _blocking(Calls.name_bounds)
    limits = _blocking(Calls.limits)
    set_limit = _blocking(Calls.set_limit)
    remove_limit = _blocking(Calls.remove_limit)
    reset_limit = _blocking(Calls.reset_limit)
    sync_limits = _blocking(Calls.sync_limits)
    breakers = _blocking(Calls.breakers)
    set_breaker = _blocking(Calls.set_breaker)
    remove_breaker = _blocking(Calls.remove_breaker)
    reset_breaker = _blocking(Calls.reset_breaker)
    open_breaker = _blocking(Calls.open_breaker)
    close_breaker = _blocking(Calls.close_breaker)
    sync_breakers = _blocking(Calls.sync_breakers)
    settings = _blocking(Calls.settings)
    change_settings = _blocking(Calls.change_settings)
    cancel_tasks = _blocking(Calls.cancel_tasks)
    erase_tasks = _blocking(Calls.erase_tasks)
    cancel_found = _blocking(Calls.cancel_found)
    replay_found = _blocking(Calls.replay_found)
    cancel_chosen = _blocking(Calls.cancel_chosen)
    replay_chosen = _blocking(Calls.replay_chosen)
    count_states = _blocking(Calls.count_states)
    failures = _blocking(Calls.failures)
    dead_letters = _blocking(Calls.dead_letters)
    dead_letter_groups = _blocking(Calls.dead_letter_groups)
    latest_dead_letter_groups = _blocking(Calls.latest_dead_letter_groups)
    dead_letters_alike = _blocking(Calls.dead_letters_alike)
    replay_dead_letters = _blocking(Calls.replay_dead_letters)
    purge_dead_letters = _blocking(Calls.purge_dead_letters)
    start_replay = _blocking(Calls.start_replay)
    replays = _blocking(Calls.replays)
    get_replay = _blocking(Calls.get_replay)
    pause_replay = _blocking(Calls.pause_replay)
    resume_replay = _blocking(Calls.resume_replay)
    stop_replay = _blocking(Calls.stop_replay)
    create_schedule = _blocking(Calls.create_schedule)
    schedules = _blocking(Calls.schedules)
    get_schedule = _blocking(Calls.get_schedule)
    change_schedule = _blocking(Calls.change_schedule)
    pause_schedule = _blocking(Calls.pause_schedule)
    resume_schedule = _blocking(Calls.resume_schedule)
    run_schedule: SyncRunSchedule = _submitting(Calls.run_schedule)
    delete_schedule = _blocking(Calls.delete_schedule)
    backfill_schedule = _blocking(Calls.backfill_schedule)
    preview_schedule = _blocking(Calls.preview_schedule)
    explain_schedule = _blocking(Calls.explain_schedule)
    sync_schedules = _blocking(Calls.sync_schedules)
    submit_flow: SyncSubmitFlow = _submitting(Calls.submit_flow)
    flows = _blocking(Calls.flows)
    get_flow = _blocking(Calls.get_flow)
    cancel_flow = _blocking(Calls.cancel_flow)
    replay_flow = _blocking(Calls.replay_flow)
    create_token = _blocking(Calls.create_token)
    tokens = _blocking(Calls.tokens)
    revoke_token = _blocking(Calls.revoke_token)
    audit = _blocking(Calls.audit)

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

    def on_shard(self, number: int) -> Self:
        """This client for one of its shards alone, on the same connections."""
        from tasklib.client.sharded_calls import ShardedCalls
        from tasklib.sharding.databases import ShardedDatabase

        database = getattr(self, "database", None)  # a client over HTTP has none
        if not isinstance(database, ShardedDatabase):
            raise ConfigError("this client has no shards.")
        client = copy(self)
        client.database = database.of(number)
        client._config = client.database.config
        if isinstance(self.calls, ShardedCalls):
            client.calls = self.calls.of(number)
        return client

    has_database = True
    """False for clients of other kinds."""

    def asynchronous(self) -> AsyncClient:
        """A client to the same place for the running event loop."""
        return AsyncClient(self.config)

    def perform(self, call: Call[T]) -> T:
        """Carry out a call step by step."""
        try:
            effect = next(call)
            while True:
                try:
                    answer = self._do(effect)
                except BaseException as e:
                    effect = call.throw(e)
                else:
                    effect = call.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, effect: Effect) -> Any:
        match effect:
            case Query():
                return self.database.run(effect)
            case OnConnection(connection, query):
                return run_on(connection, query, self.config.schema)
            case InTransaction():
                return self._together(effect)
            case Pause(seconds):
                return time.sleep(seconds)
            case RunCoroutine(work):
                # In a thread: this one may have a loop that runs already.
                with ThreadPoolExecutor(1) as thread:
                    return thread.submit(asyncio.run, work(self.config)).result()
            case OnShards(calls):
                return self._on_shards(calls)
            case Connect():
                with self.database.connection():
                    return None
            case HttpEffect():
                raise TypeError(f"this client uses a database and can't perform {effect!r}.")
            case _:
                assert_never(effect)

    def _over_shards(self) -> tuple[Database, Calls]:
        from tasklib.client.sharded_calls import ShardedCalls
        from tasklib.sharding.databases import ShardedDatabase

        database = ShardedDatabase(self._config)
        return database, ShardedCalls(self._config, database.shards, id_type=SyncTaskId)

    def _on_shards(self, calls: Mapping[int, Call[Any]]) -> Mapping[int, Any]:
        from tasklib.sharding.databases import ShardedDatabase

        assert isinstance(self.database, ShardedDatabase)
        return self.database.each({n: partial(self.on_shard(n).perform, call) for n, call in calls.items()})

    def _together(self, work: InTransaction) -> Any:
        tries = Tries(repeatable=True)
        while True:
            answer = None
            try:
                with self.database.connection() as connection, connection.transaction():
                    if work.copied:
                        text = copy_statement(work.copy, self.config.schema)
                        with connection.cursor() as cursor, cursor.copy(text) as copy:
                            for rows in copied(work.copied, work.copy):
                                copy.write(rows)
                    for query in work.queries:
                        answer = execute(connection, query, self.config.schema)
                return answer
            except psycopg.Error as e:
                time.sleep(tries.pause_after(e))
                work = work.again()
