"""The worker's end of one child process: starting it, having it run tasks, ending it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tasklib.config import Config
from tasklib.executors.child_limits import LimitRelay
from tasklib.executors.child_protocol import (
    MOST_BYTES_AHEAD,
    Cancel,
    EnterLimit,
    LeaveLimit,
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
    packet,
)
from tasklib.executors.launching import Forked, Lifeline, Process, Template, exit_text, spawn
from tasklib.executors.outcomes import Done, Failed
from tasklib.tasks.context import LimitBlockCalls

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


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The order was handed to a busy child ahead of its turn, and the child never had it."""


Ending: TypeAlias = Done | Failed | Unloadable | TakenBack | None
"""How an attempt in a child ended; None if the child says no more, or nonsense: the task may have got hold of the
socket."""


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """Whom to tell what of an attempt: its reports, when its function is called, and how long that ran."""

    report: Callable[[str], None] | None
    begun: Callable[[], None]
    took: Callable[[float], None]
    turn: Callable[[], None] = lambda: None
    """The attempt was handed over ahead, and the one before it has ended."""
    limits: LimitBlockCalls | None = None
    """Whom to ask for room in a limit."""


@dataclass(slots=True, eq=False)
class Handed:
    """An order that a child has, or that waits in its socket, as known from the child's messages."""

    name: str
    listener: Listener
    limit: float
    """Seconds that the child may take to call the function, once it is the order's turn."""
    ended: asyncio.Future[Ending]
    answer: Callable[[Message], None]
    """Says something to the child while its task runs."""
    relay: LimitRelay | None = None
    until_begun: asyncio.TimerHandle | None = None
    has_begun: bool = False
    has_turn: bool = True
    """False while the one before it has not ended, as far as its listener knows."""
    next: Handed | None = None

    def heard(self, message: Message | None) -> None:
        if self.ended.done():
            return  # cancelled, or the task goes on talking into the socket
        try:
            match message:
                case Started():
                    self.has_begun = True
                    self.stop_waiting()
                    self.listener.begun()
                case Progress(value):
                    if self.listener.report is not None:
                        self.listener.report(value)
                case Took(seconds):
                    self.listener.took(seconds)
                case EnterLimit() | LeaveLimit():
                    self._relay().heard(message)
                case Done() | Failed() | Unloadable():
                    self.ended.set_result(message)
                case _:
                    self.ended.set_result(None)
        except Exception as e:
            self.ended.set_exception(e)

    def _relay(self) -> LimitRelay:
        """On demand: most tasks enter no limit."""
        if self.relay is None:
            self.relay = relay = LimitRelay(self.name, self.listener.limits, self.answer)
            self.ended.add_done_callback(lambda _: relay.close())
        return self.relay

    def stop_waiting(self) -> None:
        if self.until_begun is not None:
            self.until_begun.cancel()

    def take_turn(self) -> None:
        if not self.has_turn:
            self.has_turn = True
            self.listener.turn()

    def was_taken_back(self) -> None:
        if not self.ended.done():
            self.ended.set_result(TakenBack())


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
        self._ahead: tuple[socket.socket, socket.socket] | None = None
        self._handed: deque[Handed] = deque()
        self._process: Process | None = None
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

    @property
    def is_busy(self) -> bool:
        """Whether it has an order."""
        return bool(self._handed)

    def run(self, order: RunAttempt, listener: Listener, limit: float) -> Handed:
        """Have the idle child make an attempt, which `ended` waits for.

        A child that has not called the function after `limit` seconds is ended. It may call it at that very moment. So
        what it has said is read to the end before the answer is that the attempt has not begun.
        """
        handed = Handed(order.name, listener, limit, asyncio.get_running_loop().create_future(), self._answer)
        self._send(order)
        self._handed.append(handed)
        self._expect_its_begin(handed)
        self._messages.hand_to(self._heard)
        return handed

    def run_next(self, order: RunAttempt, listener: Listener, limit: float) -> Handed | None:
        """Hand the child its next order while it runs another; None if it doesn't, or if the order is too long.

        It waits in a socket of which the worker has both ends. It is the child's when the child has read it, and until
        then the worker can take it back by reading it.
        """
        # The present order was read if its function has begun: there is never more than one order in that socket.
        if self._ahead is None or len(self._handed) != 1 or not self._handed[0].has_begun:
            return None
        message = packet(order)
        if len(message) > MOST_BYTES_AHEAD:
            return None
        try:
            self._ahead[0].send(message)
        except OSError:
            return None
        ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        handed = Handed(order.name, listener, limit, ended, self._answer, has_turn=False)
        self._handed[0].next = handed
        self._handed.append(handed)
        return handed

    def has_next(self, handed: Handed) -> bool:
        """Whether this is the order behind the one that the child runs."""
        return len(self._handed) > 1 and self._handed[1] is handed

    def take_back(self) -> bool:
        """Take the next order back, whose `ended` then says so; False if there is none, or the child has it."""
        if len(self._handed) < 2 or self._ahead is None:
            return False
        try:
            self._ahead[1].recv(MOST_BYTES_AHEAD)
        except OSError:
            return False
        self._handed.pop().was_taken_back()
        self._handed[0].next = None
        return True

    async def ended(self, handed: Handed) -> Done | Failed | Unloadable | TakenBack | Death:
        """Wait until an attempt has ended. CancelledError means that the child has to be ended to stop it."""
        try:
            ended = await handed.ended
        except asyncio.CancelledError:
            if not self._is_past(handed):
                raise
            ended = await handed.ended
        finally:
            handed.stop_waiting()
        if ended is None:
            return await self._death(handed)
        if not isinstance(ended, TakenBack):
            handed.take_turn()  # both may have ended before either is told
        if handed.next is not None:
            handed.next.take_turn()
        return ended

    def _is_past(self, handed: Handed) -> bool:
        """Whether the attempt ends without ending the child: it is over, or its order was taken back."""
        if handed.ended.cancelled():
            handed.ended = asyncio.get_running_loop().create_future()
        if handed not in self._handed:
            return True
        is_next = handed is not self._handed[0]
        if self.take_back():
            return is_next
        # The child has read the next order, so this one has ended before, and the outcome is on its way.
        return handed.next is not None

    def _heard(self, message: Message | None) -> None:
        if message is None:
            # Of the next order the child has said nothing; unless there are words that could not be read.
            if len(self._handed) > 1 and not self._messages.unclear:
                self._handed.pop().was_taken_back()
                self._handed[0].next = None
            for handed in self._handed:
                handed.heard(None)
            return
        self._handed[0].heard(message)
        if isinstance(message, Done | Failed | Unloadable):
            self._handed.popleft().stop_waiting()
            self.tasks += 1
            if self._handed:
                self._expect_its_begin(self._handed[0])
            else:
                self._messages.hand_to(None)

    def _expect_its_begin(self, handed: Handed) -> None:
        handed.until_begun = asyncio.get_running_loop().call_later(handed.limit, self.end)

    def end(self) -> asyncio.Task[None]:
        """Begin to end the child, once. The task is done when nothing of the child is left."""
        if self._ending is None:
            self.take_back()
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
        self._ahead = ahead = socket.socketpair(type=socket.SOCK_SEQPACKET)
        for end in ahead:
            end.setblocking(False)
        with theirs, interruptions:
            connected = await asyncio.get_running_loop().create_connection(lambda: self._messages, sock=ours)
            self._transport = connected[0]
            self._send(self._setup)
            descriptors = theirs.fileno(), interruptions.fileno(), ahead[1].fileno(), lifeline.theirs
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

    async def _death(self, handed: Handed) -> Death:
        assert self._process is not None
        name, begun = handed.name, handed.has_begun or self._messages.unclear
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
            if self.is_busy:
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
            if self.is_busy:
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

    def _answer(self, message: Message) -> None:
        assert self._interruptions is not None
        text = packed(message)
        try:
            is_sent = self._interruptions.send(text) == len(text)
        except BlockingIOError:
            is_sent = False
        except OSError:
            return  # it is dead
        if not is_sent:
            self.end()  # it has read nothing for long, and half a message can't be completed

    def _say_goodbye(self) -> None:
        if self._transport is not None:
            self._transport.close()  # the child leaves by itself

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self._interruptions is not None:
            self._interruptions.close()
        for end in self._ahead or ():
            end.close()

    def _send(self, message: Message) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packed(message))
