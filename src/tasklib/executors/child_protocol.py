"""What a worker and its child processes say to each other: JSON messages, each after its length in four bytes.

With the template that forks the children, it exchanges packets of a few bytes, which can carry descriptors.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypeAlias, get_args
from uuid import UUID

from tasklib.config import Config
from tasklib.executors.outcomes import Done, Failed, FailureKind
from tasklib.tasks.context import LimitBlockCalls, TaskContext

_LENGTH = struct.Struct("!I")
_LONGEST_ESCAPE = len("\\u0000")
_CHUNK_BYTES = 65_536
MOST_BYTES_AHEAD = 32_768
"""The longest order that is handed to a busy child. A socket's buffer holds several of them."""
_BESIDES = 4096
"""What a message consists of beside its one long text: the names of its fields, the other values."""

FORK = b"fork"
"""To a template: make a child. The child's two sockets and its lifeline come with it; the rest is said over those."""
EXIT_CODE_OF = struct.Struct("!q")
"""To a template: how has the child with this process id ended? It is dead, or about to be."""
EXIT_CODE = struct.Struct("!qi")
"""From a template: the process id and the exit code, a negative one for a signal."""

MAIN_ALIAS = "__mp_main__"
"""What the worker's `__main__` is called in a child; the name that multiprocessing uses, too."""
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
    name: str
    """The task that the child is started for; any other may be the first one it runs."""
    module: str
    """Where that task's function is defined."""
    preparations: list[list[str]] = field(default_factory=list)
    """Modules whose `prepare` is called before any other is imported, each with its argument."""
    finishings: list[list[str]] = field(default_factory=list)
    """Modules whose `finish` is called after the imports, each with its argument."""


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """To an idle child: make this attempt."""

    name: str
    module: str
    kwargs: str
    context: dict[str, Any]
    timeout_seconds: float | None = None
    """How long the function may run, counted from when it is called."""
    trace: dict[str, str] | None = None
    """The span of the attempt, which the worker has: what the task's own spans are part of."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """To a busy child, over the socket for interruptions: stop and exit."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From a new child, or from its template: the modules are imported, and this process takes orders."""

    pid: int


@dataclass(frozen=True, slots=True)
class NotForked:
    """From a template: the kernel refused to make a process. The template can be asked again."""

    error: str


@dataclass(frozen=True, slots=True)
class Unforkable:
    """From a template: a copy of it might hang, because of what importing the modules has started."""

    reason: str


@dataclass(frozen=True, slots=True)
class Started:
    """From a child: the function is about to be called. A child that dies before saying so hasn't begun."""


@dataclass(frozen=True, slots=True)
class Progress:
    """From a child: the task reports, as JSON text."""

    value: str


@dataclass(frozen=True, slots=True)
class Took:
    """From a child, before the outcome: how long the function ran. By the time it is read here, more has passed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class EnterLimit:
    """From a child: a block of its task, `with limit(...)`, waits for room. Answered by a LimitBlockAnswer."""

    number: int
    name: str
    key: str
    cost: int
    timeout: float | None
    rule: dict[str, Any]
    nested: int


@dataclass(frozen=True, slots=True)
class LeaveLimit:
    """From a child: that block has ended, or waits no longer. Answered by a LimitBlockAnswer."""

    number: int


@dataclass(frozen=True, slots=True)
class LimitBlockAnswer:
    """To a busy child, over the socket for interruptions: the block may go on, or has failed."""

    number: int
    error: str | None = None
    """The name of its class."""
    text: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unloadable:
    """From a child: the modules can't be imported, and what is imported halfway is no base for another task."""

    error: str


Message: TypeAlias = (
    Setup
    | RunAttempt
    | Cancel
    | Ready
    | NotForked
    | Unforkable
    | Started
    | Progress
    | Took
    | EnterLimit
    | LeaveLimit
    | LimitBlockAnswer
    | Unloadable
    | Done
    | Failed
)

_KINDS: dict[str, Callable[..., Message]] = {kind.__name__: kind for kind in get_args(Message)}


def packed(message: Message) -> bytes:
    """The message as bytes, length first."""
    body = packet(message)
    return _LENGTH.pack(len(body)) + body


def packet(message: Message) -> bytes:
    """The message for a socket that keeps messages apart."""
    # ASCII escapes carry the lone surrogates of undecodable paths.
    values = {name: getattr(message, name) for name in message.__dataclass_fields__}
    return json.dumps([type(message).__name__, values]).encode("ascii")


def receive(connection: socket.socket) -> Message | None:
    """Block until the next message; None when the other side is gone."""
    header = _exactly(connection, _LENGTH.size)
    body = _exactly(connection, *_LENGTH.unpack(header)) if header is not None else None
    return None if body is None else _unpacked(body)


class Orders:
    """What the worker says, for the child's main thread."""

    def __init__(self, connection: socket.socket, ahead: socket.socket) -> None:
        self._connection = connection
        self._ahead = ahead
        self._frames = _Frames(sys.maxsize)
        self._poll = select.poll()
        for source in (connection, ahead):
            self._poll.register(source, select.POLLIN)

    def receive(self) -> Message | None:
        """Block until the next message; None when the worker is gone."""
        while (body := self._frames.next()) is None:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._connection.fileno() not in ready:
                if packet := self._handed_ahead():
                    return _unpacked(packet)
                continue
            try:
                part = self._connection.recv(_CHUNK_BYTES)
            except OSError:
                return None
            if not part:
                return None
            self._frames.add(part)
        return _unpacked(body)

    def _handed_ahead(self) -> bytes | None:
        """One whole order. The worker takes it back by reading it, so it may be gone by now."""
        try:
            packet = self._ahead.recv(MOST_BYTES_AHEAD, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        if not packet:  # closed
            self._poll.unregister(self._ahead)
        return packet


class Messages(asyncio.Protocol):
    """What a child says, for the worker's loop.

    A message goes to `handler` as soon as it is read, if there is one; else it is kept for `receive` or the next one.
    """

    def __init__(self, most_bytes: int) -> None:
        self.ended = False
        """Nothing more will come: the other side is gone, or has talked nonsense, or more than it may."""
        self.unclear = False
        """It ended with bytes that could not be read: the child may have said more than has arrived."""
        self._frames = _Frames(most_bytes)
        self._arrived: deque[Message] = deque()
        self._handler: Callable[[Message | None], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._has_ended = asyncio.Event()

    async def receive(self) -> Message | None:
        """The next message; None at the end."""
        while not self._arrived:
            if self.ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._arrived.popleft()

    def hand_to(self, handler: Callable[[Message | None], None] | None) -> None:
        """Give it each message from now on, and None at the end. It may leave the rest to another one."""
        self._handler = handler
        self._hand_on()

    async def end(self) -> None:
        """Wait until nothing more will come. What has arrived can be received all the same."""
        await self._has_ended.wait()

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        self._frames.add(data)
        try:
            while (body := self._frames.next()) is not None:
                self._arrived.append(_unpacked(body))
        except (ValueError, TypeError, KeyError):
            self.ended = self.unclear = True
        if self._arrived or self.ended:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self.ended:
            self._has_ended.set()
        if self._handler is not None:
            self._hand_on()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _hand_on(self) -> None:
        while self._handler is not None and self._arrived:
            self._handler(self._arrived.popleft())
        if self._handler is not None and self.ended:
            self._handler(None)


class _Frames:
    """Takes a stream of bytes apart into the messages it carries."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def add(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """The next message, once it is complete; ValueError if it is too long."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if length > self._most_bytes:
            raise ValueError("longer than any message")
        if len(buffer) < (end := _LENGTH.size + length):
            return None
        body = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        return body


def most_bytes(config: Config) -> int:
    """The longest message that a child may send: a result, an error or a report, each byte of it escaped."""
    return _LONGEST_ESCAPE * max(config.max_payload_bytes, config.max_error_bytes) + _BESIDES


def described(context: TaskContext) -> dict[str, Any]:
    """The parts of a context that can travel: its public fields."""
    parts = {f.name: getattr(context, f.name) for f in fields(context) if not f.name.startswith("_")}
    trace, slot = context.trace_context, context.slot
    return parts | {
        "id": str(context.id),
        "trace_context": None if trace is None else dict(trace),
        "slot": None if slot is None else slot.isoformat(),
    }


def rebuilt(
    parts: dict[str, Any], arguments: str, report: Callable[[str], None], limits: LimitBlockCalls
) -> TaskContext:
    """The context in the child, reporting through `report` and entering limits through `limits`."""
    slot = None if parts["slot"] is None else datetime.fromisoformat(parts["slot"])
    values: dict[str, Any] = parts | {"id": UUID(parts["id"]), "slot": slot, "_report": report, "_limits": limits}
    return TaskContext(**values, _arguments=arguments)


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
    kind, values = json.loads(body.decode("ascii"))
    if kind == Failed.__name__:
        values["kind"] = FailureKind(values["kind"])
    return _KINDS[kind](**values)
