"""The module-level calls: `tasklib.init(...)` once, then `await tasklib.submit_task(...)`; `sync.py` has the others."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from tasklib.client.async_clients import AsyncClient
from tasklib.client.calls import Calls
from tasklib.client.clients import Client
from tasklib.client.effects import Call
from tasklib.client.signatures import RunSchedule, SubmitMany, SubmitTask, WaitFor, signature_of
from tasklib.config import Config, url_in
from tasklib.db.callers import is_async
from tasklib.errors import NotInitialized
from tasklib.tasks.default_client import connect_default_client, provided_client
from tasklib.tasks.submitter import Awaited, mark_for_asyncio, returns_awaited

P = ParamSpec("P")
T = TypeVar("T")

_client: Client | None = None
# A connection belongs to the loop it was opened on, and a program may run several loops one after another.
_async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()
# Held while clients are made and replaced. A signal handler may come in between, in the same thread: so it can be taken
# again there.
_changing = threading.RLock()
_stand_ins: list[StandIn] = []


class StandIn(Protocol):
    """Provides other clients for the module-level calls: how `tasklib.testing.inline` takes over."""

    def client(self, config: Config | None) -> Client: ...
    def async_client(self, config: Config | None) -> AsyncClient: ...


def init(config: Config | str | None = None) -> Config:
    """Set the database for the module-level calls: a URL, a Config, or nothing to read the environment.

    Connections are opened when first needed. A second call replaces the first.
    """
    client = Client(config)
    use(client)
    return client.config


def use(client: Client) -> None:
    """Put this client behind the module-level calls. It replaces the one before."""
    global _client
    with _changing:
        close()
        _client = client


def close() -> None:
    """Close what the module-level calls opened and forget the configuration."""
    global _client
    with _changing:
        if _client is not None:
            _client.close()
            _client = None
        for loop in _loops():
            _close_client_of(loop)


def configured() -> Config | None:
    """The configuration of the module-level calls; None without `init`, a framework and a URL in the environment.

    None also if they go another way than to a database.
    """
    if given_to_init() is None and _client is None and url_in(os.environ):
        with _changing:
            if _client is None:  # another thread may have been quicker
                init()
    return given_to_init()


def given_to_init() -> Config | None:
    """The configuration that `init` was called with, or a framework has; None without, and if it names no database."""
    if _client is None:
        with _changing:
            if _client is None and (provided := provided_client()) is not None:
                use(cast("Client", provided))
    client = _client
    return client.config if client is not None and client.has_database else None


def default_client() -> Client:
    """The client behind the module-level calls; from the environment if `init` was not called."""
    config = configured()
    if _stand_ins:
        return _stand_ins[-1].client(config)
    client = _client
    if client is None:
        raise NotInitialized
    return client


def default_async_client() -> AsyncClient:
    """The same for the running event loop."""
    if _stand_ins:
        return _stand_ins[-1].async_client(configured())
    loop = asyncio.get_running_loop()
    client = _async_clients.get(loop)
    if client is None:
        with _changing:
            for other in _loops():
                if other.is_closed():
                    _close_client_of(other)
            client = _async_clients[loop] = default_client().asynchronous()
    return client


def _loops() -> list[asyncio.AbstractEventLoop]:
    # By references: going through the dictionary itself fails if a loop of another thread is collected meanwhile.
    return [loop for ref in _async_clients.keyrefs() if (loop := ref()) is not None]


def _close_client_of(loop: asyncio.AbstractEventLoop) -> None:
    if (client := _async_clients.pop(loop, None)) is not None:
        client.close()


@contextmanager
def standing_in(stand_in: StandIn) -> Iterator[None]:
    """Put the stand-in behind the module-level calls, in every thread, until the block ends. The innermost counts."""
    _stand_ins.append(stand_in)
    try:
        yield
    finally:
        _stand_ins.remove(stand_in)


def blocking(call: Callable[Concatenate[Calls, P], Call[T]], called: str | None = None) -> Callable[P, T]:
    """A module-level function for synchronous code. `called`: its name there."""
    name = call.__name__

    @functools.wraps(call)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        client = default_client()
        made: Call[T] = getattr(client.calls, name)(*args, **kwargs)
        return client.perform(made)

    called = called or name
    function.__name__, function.__qualname__ = called, f"Calls.{called}"
    vars(function)["__signature__"] = signature_of(call, of_function=True)
    return function


def awaitable(
    call: Callable[Concatenate[Calls, P], Call[T]], called: str | None = None
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A module-level function that is awaited, and says so to a caller who forgets it. `called`: its name here."""
    name = call.__name__
    called = called or name
    written, instead = f"tasklib.{called}", f"tasklib.sync.{called}"

    async def perform(*args: P.args, **kwargs: P.kwargs) -> T:
        client = default_async_client()
        made: Call[T] = getattr(client.calls, name)(*args, **kwargs)
        return await client.perform(made)

    perform.__name__ = perform.__qualname__ = called  # for the warning of one that is never awaited

    @returns_awaited
    @functools.wraps(call)
    def function(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return Awaited(perform(*args, **kwargs), written, instead)

    function.__name__, function.__qualname__ = called, f"Calls.{called}"
    vars(function)["__signature__"] = signature_of(call, of_function=True)
    return function


submit_task: SubmitTask = cast("Any", awaitable(Calls.submit_task))
submit_many: SubmitMany = cast("Any", awaitable(Calls.submit_many))
wait_for: WaitFor = cast("Any", awaitable(Calls.wait_for))
get_task = awaitable(Calls.get_task)
list_tasks = awaitable(Calls.list_tasks)
cancel_task = awaitable(Calls.cancel_task)
replay_task = awaitable(Calls.replay_task)
create_schedule = awaitable(Calls.create_schedule)
list_schedules = awaitable(Calls.schedules, "list_schedules")  # `tasklib.schedules` is a package
get_schedule = awaitable(Calls.get_schedule)
change_schedule = awaitable(Calls.change_schedule)
pause_schedule = awaitable(Calls.pause_schedule)
resume_schedule = awaitable(Calls.resume_schedule)
run_schedule: RunSchedule = cast("Any", awaitable(Calls.run_schedule))
delete_schedule = awaitable(Calls.delete_schedule)
backfill_schedule = awaitable(Calls.backfill_schedule)
preview_schedule = awaitable(Calls.preview_schedule)
explain_schedule = awaitable(Calls.explain_schedule)
signal = awaitable(Calls.signal)
list_approvals = awaitable(Calls.approvals, "list_approvals")
approve = awaitable(Calls.approve)
reject = awaitable(Calls.reject)

mark_for_asyncio()
connect_default_client(default_client, default_async_client, is_async)
