"""A TCP proxy before PostgreSQL that delays, stalls, resets, half-closes, and drops the link right after a commit.

It knows its links by the application_name in their first packet: `tasklib worker tasks`, `tasklib client`, ...
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field

_NAME = re.compile(rb"application_name\0([^\0]*)\0")


@dataclass(eq=False)
class Pipe:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    name: str = ""
    drops_next_answer: bool = False
    drops_only: bytes = b""
    """Only the answer to a statement whose name begins so."""
    asked: bool = False
    deaf: bool = False
    """The server believes that the client is gone; what the client says is lost."""
    flows: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """Runs on a loop of its own, in a thread. Its methods may be called from any other."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._pipes: set[Pipe] = set()
        self._delay = 0.0
        self._is_cut = False
        self._loop = asyncio.new_event_loop()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.dropped = 0
        threading.Thread(target=self._run, daemon=True, name="proxy").start()

    def delay(self, seconds: float) -> None:
        self._delay = seconds

    def stall(self, purpose: str = "") -> int:
        """Let nothing through on these links; they stay open. Returns how many."""
        return self._each(purpose, lambda pipe: pipe.flows.clear())

    def resume(self) -> None:
        self._each("", lambda pipe: pipe.flows.set())

    def cut(self) -> None:
        """Nothing gets through any more, on old links or new ones, until `mend()`."""
        self._is_cut = True
        self.stall()

    def mend(self) -> None:
        self._is_cut = False
        self.reset()  # what was in the middle of something won't recover; who wants to goes on anew

    def reset(self, purpose: str = "") -> int:
        return self._each(purpose, self._reset)

    def half_close(self, purpose: str = "") -> int:
        """The server is told that the client is gone; the client is told nothing."""

        def deafen(pipe: Pipe) -> None:
            pipe.deaf = True
            pipe.server.write_eof()

        return self._each(purpose, deafen)

    def drop_after_commit(self, purpose: str, statement: str = "") -> int:
        """The next answer on each of these links is lost together with the link, though the statement took effect.

        `statement`: only the answer to a prepared statement whose name begins so.
        """

        def arm(pipe: Pipe) -> None:
            pipe.drops_next_answer, pipe.asked, pipe.drops_only = True, False, statement.encode()

        return self._each(purpose, arm)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _each(self, purpose: str, operation: object) -> int:
        done: list[int] = []
        ready = threading.Event()

        def do() -> None:
            pipes = [pipe for pipe in self._pipes if purpose in pipe.name]
            for pipe in pipes:
                with suppress(OSError, RuntimeError):
                    operation(pipe)  # type: ignore[operator]
            done.append(len(pipes))
            ready.set()

        self._loop.call_soon_threadsafe(do)
        ready.wait(10)
        return done[0] if done else 0

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listening))
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._server)
        except OSError:
            writer.close()
            return
        pipe = Pipe(writer, to_server)
        if not self._is_cut:
            pipe.flows.set()
        self._pipes.add(pipe)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._up(pipe, reader))
                both.create_task(self._down(pipe, from_server))
        except* (OSError, ConnectionError):
            pass
        finally:
            self._pipes.discard(pipe)
            self._reset(pipe)

    async def _up(self, pipe: Pipe, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            if not pipe.name and (match := _NAME.search(data)):
                pipe.name = match[1].decode()
            await self._pass(pipe)
            pipe.asked = pipe.asked or pipe.drops_only in data
            if not pipe.deaf:
                pipe.server.write(data)
                await pipe.server.drain()
        raise ConnectionResetError

    async def _down(self, pipe: Pipe, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            if pipe.drops_next_answer and pipe.asked:
                self.dropped += 1
                raise ConnectionResetError
            await self._pass(pipe)
            pipe.client.write(data)
            await pipe.client.drain()
        if pipe.deaf:
            await asyncio.Event().wait()  # until the client finds out by itself
        raise ConnectionResetError

    async def _pass(self, pipe: Pipe) -> None:
        await pipe.flows.wait()
        if self._delay:
            await asyncio.sleep(self._delay)

    def _reset(self, pipe: Pipe) -> None:
        """RST rather than FIN: no farewell."""
        for end in (pipe.client, pipe.server):
            with suppress(OSError, AttributeError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError, RuntimeError):
                end.transport.abort()
