"""What a worker and its child processes say to each other: JSON messages, each after its length in four bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias
from uuid import UUID

from tasklib.executors.outcomes import Done, Failed, Kind
from tasklib.tasks.context import TaskContext

_LENGTH = struct.Struct("!I")

MAIN_ALIAS = "__mp_main__"
"""What the worker's `__main__` is called in a child; the name that multiprocessing has taught everybody."""
MAIN_MARK = "__tasklib_import__"
"""Set on that module: the alias alone proves nothing, since importing multiprocessing makes one too."""


def main_import() -> str | None:
    """Whether the worker's script has been imported here: None, "under way" or "done"."""
    mark: str | None = getattr(sys.modules.get(MAIN_ALIAS), MAIN_MARK, None)
    return mark


@dataclass(frozen=True, slots=True)
class Setup:
    """To a new child: how to be like its worker. The database's address stays where it is."""

    sys_path: list[str]
    argv: list[str]
    pythonpath: str | None
    main_path: str | None
    main_module: str | None
    modules: list[str]
    max_payload_bytes: int
    max_error_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """To an idle child: make this attempt."""

    name: str
    module: str
    kwargs: str
    context: dict[str, Any]
    trace: dict[str, str] | None = None
    """The span of the attempt, which the worker has: what the task's own spans are part of."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """To a busy child: stop and exit."""


@dataclass(frozen=True, slots=True)
class Started:
    """From a child: the order has arrived. A child that dies before saying so hasn't begun."""


@dataclass(frozen=True, slots=True)
class Progress:
    """From a child: the task reports, as JSON text."""

    value: str


@dataclass(frozen=True, slots=True)
class Unloadable:
    """From a child: the modules can't be imported, and what is imported halfway is no base for another task."""

    error: str


Message: TypeAlias = Setup | Run | Cancel | Started | Progress | Unloadable | Done | Failed

_KINDS: dict[str, Callable[..., Message]] = {
    kind.__name__: kind for kind in (Setup, Run, Cancel, Started, Progress, Unloadable, Done, Failed)
}


def packed(message: Message) -> bytes:
    """The message as bytes, length first."""
    # ASCII escapes carry the lone surrogates of undecodable paths.
    body = json.dumps([type(message).__name__, asdict(message)]).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def receive(connection: socket.socket) -> Message | None:
    """Block until the next message; None when the other side is gone."""
    header = _exactly(connection, _LENGTH.size)
    body = _exactly(connection, *_LENGTH.unpack(header)) if header is not None else None
    return None if body is None else _unpacked(body)


async def receive_async(reader: asyncio.StreamReader) -> Message | None:
    """`receive` for the worker's side; None also when the other side talks nonsense."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return _unpacked(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError, ValueError, TypeError, KeyError):
        return None


def described(context: TaskContext) -> dict[str, Any]:
    """The parts of a context that can travel: its public fields."""
    parts = {f.name: getattr(context, f.name) for f in fields(context) if not f.name.startswith("_")}
    trace = context.trace_context
    return parts | {"id": str(context.id), "trace_context": None if trace is None else dict(trace)}


def rebuilt(parts: dict[str, Any], report: Callable[[str], None]) -> TaskContext:
    """The context in the child, reporting through `report`."""
    return TaskContext(**(parts | {"id": UUID(parts["id"])}), _report=report)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    # Not through makefile(): its lock, held by a thread that waits for input, can keep an interpreter from ending.
    parts = bytearray()
    while len(parts) < count:
        try:
            part = connection.recv(count - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


def _unpacked(body: bytes) -> Message:
    kind, values = json.loads(body)
    if kind == Failed.__name__:
        values["kind"] = Kind(values["kind"])
    return _KINDS[kind](**values)
