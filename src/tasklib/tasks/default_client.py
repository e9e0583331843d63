"""Where the clients behind the module-level calls come from. The tasks layer knows nothing of databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Performs(Protocol):
    """A client, as far as task functions and task ids need one: it makes a call and carries it out."""

    calls: Any

    def perform(self, call: Any) -> Any:
        """The value of the call; the one of an asynchronous client has to be awaited."""


_load: Callable[[], object] | None = None
_blocking: Callable[[], Performs] | None = None
_asynchronous: Callable[[], Performs] | None = None
_is_async: Callable[[object], bool] | None = None


def load_default_client_with(load: Callable[[], object]) -> None:
    """Say how to import what calls `connect_default_client`, when it is first needed."""
    global _load
    _load = load


def connect_default_client(
    blocking: Callable[[], Performs], asynchronous: Callable[[], Performs], is_async: Callable[[object], bool]
) -> None:
    """Say which clients `fn.submit()` and ids use, and which connections of a caller are asynchronous."""
    global _blocking, _asynchronous, _is_async
    _blocking, _asynchronous, _is_async = blocking, asynchronous, is_async


def default_client() -> Performs:
    if _blocking is None:
        _connect()
    assert _blocking is not None
    return _blocking()


def default_async_client() -> Performs:
    if _asynchronous is None:
        _connect()
    assert _asynchronous is not None
    return _asynchronous()


def is_async_connection(connection: object) -> bool:
    """Whether a caller's connection is an asynchronous one; InvalidOption if it is none that can be used."""
    if _is_async is None:
        _connect()
    assert _is_async is not None
    return _is_async(connection)


def _connect() -> None:
    assert _load is not None
    _load()
