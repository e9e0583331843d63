"""The worker's end of one child process: starting it, having it run tasks, ending it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from tasklib.config import Config
from tasklib.executors.child_protocol import (
    Cancel,
    Message,
    Messages,
    NotForked,
    Progress,
    Ready,
    RunAttempt,
    Setup,
    Started,
    Took,
    Unforkable,
    Unloadable,
    most_bytes,
    packed,
)
from tasklib.executors.launching import Forked, Lifeline, Process, Template, exit_text, spawn
from tasklib.executors.outcomes import Done, Failed

_LAST_WORDS_SECONDS = 1.0
"""How long after a child's death its last words may take to arrive."""


class NotStarted(Exception):
    """There is no child, for a reason that may pass."""


class CantImport(Exception):
    """The task modules can't be imported; the message is the traceback."""


class CantFork(Exception):
    """Children must be spawned, because forks of a template that has imported these modules might hang."""


@dataclass(frozen=True, slots=True)
class Death:
    """The child is dead, and with it the attempt, if it had begun."""

    error: str
    begun: bool


@dataclass(slots=True, eq=False)
class _Attempt:
    """An attempt in a child, as known from its messages."""

    report: Callable[[str], None] | None
    begun: Callable[[], None]
    took: Callable[[float], None]
    until_begun: asyncio.TimerHandle
    ended: asyncio.Future[Done | Failed | Unloadable | None]
    """How it ended; None if the child says no more, or nonsense: the task may have got hold of the socket."""
    has_begun: bool = False

    def heard(self, message: Message | None) -> None:
        if self.ended.done():
            return  # cancelled, or the task goes on talking into the socket
        try:
            match message:
                case Started():
                    self.has_begun = True
                    self.until_begun.cancel()
                    self.begun()
                case Progress(value):
                    if self.report is not None:
                        self.report(value)
                case Took(seconds):
                    self.took(seconds)
                case Done() | Failed() | Unloadable():
                    self.ended.set_result(message)
                case _:
                    self.ended.set_result(None)
        except Exception as e:
            self.ended.set_exception(e)


class Child:
    """A child process, from before its start to after its end."""

    def __init__(self, setup: Setup, config: Config, template: Template | None) -> None:
        self.tasks = 0
        self._setup = setup
        self._template = template
        self._grace = config.process_kill_grace_seconds
        self._messages = Messages(most_bytes(config))
        self._lifeline: Lifeline | None = None
        self._transport: asyncio.Transport | None = None
        self._interruptions: socket.socket | None = None
        self._process: Process | None = None
        self._busy = False
        self._ending: asyncio.Task[None] | None = None
        # A task of its own: a cancelled attempt can't leave a process behind that nothing knows of.
        self._starting = asyncio.create_task(self._start(config.process_start_timeout_seconds))

    @property
    def alive(self) -> bool:
        """Whether it takes orders, as far as is known."""
        if self._process is None or not self._starting.done() or self._ending is not None:
            return False
        return not (self._reaping.done() or self._messages.ended)

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, or has been."""
        return self._ending is not None

    async def started(self) -> None:
        """Wait until the child takes orders; else NotStarted, CantImport or CantFork is raised."""
        await asyncio.shield(self._starting)

    async def run(
        self,
        order: RunAttempt,
        report: Callable[[str], None] | None,
        begun: Callable[[], None],
        took: Callable[[float], None],
        begin_by: float,
    ) -> Done | Failed | Unloadable | Death:
        """Have the child make an attempt; pass on what it reports, when its function is called, how long that runs.

        A child that has not called the function by `begin_by`, on the loop's clock, is ended. It may call it at that
        very moment. So what it has said is read to the end before the answer is that the attempt has not begun.
        """
        loop = asyncio.get_running_loop()
        self._busy = True
        self._send(order)
        until_begun = loop.call_at(begin_by, self.end)
        attempt = _Attempt(report, begun, took, until_begun, loop.create_future())
        self._messages.hand_to(attempt.heard)
        try:
            ended = await attempt.ended
        finally:
            until_begun.cancel()
            self._messages.hand_to(None)
        if ended is None:
            return await self._death(order.name, attempt.has_begun or self._messages.unclear)
        self._busy = False
        self.tasks += 1
        return ended

    def end(self) -> asyncio.Task[None]:
        """Begin to end the child, once. The task is done when nothing of the child is left."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        return self._ending

    async def _start(self, limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                await self._launch()
                await self._ready()
        except TimeoutError:
            if self._template is not None:
                self._template.kill()
            await self._clear_away()
            raise NotStarted(
                f"it was not ready within {limit:g} s (process_start_timeout_seconds), imports included"
            ) from None
        except OSError as e:
            await self._clear_away()
            raise NotStarted(str(e)) from e
        except BaseException:
            await self._clear_away()
            raise

    async def _launch(self) -> None:
        """Get a process under way that has one end of the socket; the other end is ours."""
        self._lifeline = lifeline = Lifeline()
        ours, theirs = socket.socketpair()
        self._interruptions, interruptions = socket.socketpair()
        self._interruptions.setblocking(False)
        with theirs, interruptions:
            connected = await asyncio.get_running_loop().create_connection(lambda: self._messages, sock=ours)
            self._transport = connected[0]
            self._send(self._setup)
            descriptors = theirs.fileno(), interruptions.fileno(), lifeline.theirs
            if self._template is None:
                self._is(await spawn("tasklib.executors.child", *descriptors))
            else:
                await self._template.fork(*descriptors)
        lifeline.hand_over()
        if self._ending is not None:
            raise NotStarted("it is no longer wanted")

    async def _ready(self) -> None:
        match await self._messages.receive():
            case Ready(pid):
                if self._template is not None:
                    self._template.has_forked = True
                    self._is(Forked(pid, self._template))
            case Unloadable(error):
                raise CantImport(error)
            case Unforkable(reason):
                raise CantFork(reason)
            case NotForked(error):
                raise NotStarted(error)
            case _:
                raise NotStarted(await self._why_it_died())

    def _is(self, process: Process) -> None:
        self._process = process
        self._reaping = asyncio.create_task(self._reap(process))

    async def _why_it_died(self) -> str:
        if self._process is not None:
            self._process.kill()  # it has closed its socket
            return f"process {self._process.pid} died with {exit_text(await asyncio.shield(self._reaping))}"
        assert self._template is not None
        return await self._template.why_it_hung_up(_LAST_WORDS_SECONDS)

    async def _reap(self, process: Process) -> int | None:
        code = await process.wait()
        # Something outside the group may still hold the other end of the socket: don't wait for it forever.
        asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._hang_up)
        return code

    async def _death(self, name: str, begun: bool) -> Death:
        assert self._process is not None
        # The socket is closed, so the process is dying. If not, the task closed it, and the child is of no use.
        await asyncio.wait([self._reaping], timeout=_LAST_WORDS_SECONDS)
        if not self._reaping.done():
            self._process.kill()
        code = await asyncio.shield(self._reaping)
        how = f"child process {self._process.pid} died with {exit_text(code)}"
        if not begun:
            return Death(f"{how} before it could run {name}", begun)
        hint = " The kernel sends it when memory runs out." if code == -signal.SIGKILL else ""
        if self.is_ending:
            hint = " It was ended because it called the function too late (process_start_timeout_seconds)."
        return Death(f"WorkerLost: {how} while running {name}.{hint}", begun)

    async def _end(self) -> None:
        if not self._starting.done():
            self._hang_up()
            await asyncio.wait([self._starting])
        if self._starting.exception() is not None:
            return  # it has cleared away what there was
        assert self._process is not None
        try:
            if self._busy:
                self._ask_to_stop()
            elif self.tasks:
                self._say_goodbye()
            else:
                self._process.kill()  # it has nothing to clean up
            await asyncio.wait([self._reaping], timeout=self._grace)
        finally:
            await self._clear_away()

    async def _clear_away(self) -> None:
        """Leave nothing of the child, however far it has come."""
        if self._process is not None:
            if not self._reaping.done():
                self._process.kill()
            await asyncio.shield(self._reaping)
            if self._busy:
                await self._messages.end()  # its last words may still be on the way
        self._hang_up()
        if self._lifeline is not None:
            self._lifeline.cut()  # which kills a fork that we know nothing of yet

    def _ask_to_stop(self) -> None:
        """The child raises in the task, lets it clean up, and exits."""
        assert self._process is not None
        assert self._interruptions is not None
        assert self._transport is not None
        if self._transport.get_write_buffer_size():
            self._process.kill()  # it has not even read the order
            return
        with contextlib.suppress(OSError):  # it is dead
            self._interruptions.send(packed(Cancel()))

    def _say_goodbye(self) -> None:
        if self._transport is not None:
            self._transport.close()  # the child leaves by itself

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self._interruptions is not None:
            self._interruptions.close()

    def _send(self, message: Message) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packed(message))
