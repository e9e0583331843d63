"""The clients behind the module-level calls, for task functions and task ids. This layer knows nothing of databases.

`client/default.py` puts its functions here when it is imported, which is when one of them is first called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol


class Performs(Protocol):
    """A client, as far as task functions and task ids need one: it makes a call and carries it out."""

    calls: Any

    def perform(self, call: Any) -> Any:
        """The value of the call; the one of an asynchronous client has to be awaited."""


_load: Callable[[], object]
_provided: Callable[[], Performs] | None = None


def load_default_client_with(load: Callable[[], object]) -> None:
    """Say how to import what calls `connect_default_client`, when it is first needed."""
    global _load
    _load = load


def connect_default_client(
    for_sync: Callable[[], Performs], for_async: Callable[[], Performs], is_async: Callable[[object], bool]
) -> None:
    """Say which clients `fn.submit()` and ids use, and which connections of a caller are asynchronous."""
    global sync_client, async_client, is_async_connection
    sync_client, async_client, is_async_connection = for_sync, for_async, is_async


def provide_default_client(make: Callable[[], Performs] | None) -> None:
    """Say which client to use where `tasklib.init` is not called: how a framework brings in its own settings."""
    global _provided
    _provided = make


def provided_client() -> Performs | None:
    """A new client from the framework that this program runs in; None without one."""
    return None if _provided is None else _provided()


def _loaded(name: str, *arguments: Any) -> Any:
    """Call one of the functions below once the real one is in its place."""
    _load()
    return globals()[name](*arguments)


sync_client: Callable[[], Performs] = partial(_loaded, "sync_client")
async_client: Callable[[], Performs] = partial(_loaded, "async_client")
is_async_connection: Callable[[object], bool] = partial(_loaded, "is_async_connection")
"""Whether a caller's connection is an asynchronous one; InvalidOption if it is none that can be used."""
