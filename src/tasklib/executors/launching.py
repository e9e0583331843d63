"""Starting child processes from the worker: as new interpreters, or as forks of a template."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process as Interpreter
from typing import Protocol

from tasklib.executors.child_protocol import EXIT_CODE, EXIT_CODE_OF, FORK

_STATUS_SECONDS = 5.0
"""How long a template may take to say how its child ended. It may be busy with an import."""

_lifelines: set[int] = set()


def _close_lifelines() -> None:
    for descriptor in _lifelines:
        os.close(descriptor)
    _lifelines.clear()


if sys.platform != "win32":
    # A copy of the worker, made by multiprocessing in some thread, must not keep the children alive after it.
    os.register_at_fork(after_in_child=_close_lifelines)


class Lifeline:
    """A pipe that is never written to. It closes when this process ends, however it ends, and that kills the child."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()
        _lifelines.add(self._ours)

    def hand_over(self) -> None:
        """The child has its end by now, or never will."""
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def cut(self) -> None:
        """Have the kernel kill the child's process group, if it is there."""
        self.hand_over()
        if self._ours in _lifelines:
            _lifelines.discard(self._ours)
            os.close(self._ours)


class Process(Protocol):
    """A child process, however it was started."""

    pid: int

    async def wait(self) -> int | None:
        """Wait until it is dead and its process group killed; its exit code, None if that is not known."""
        ...

    def kill(self) -> None:
        """Kill it with everything it has started."""
        ...


class Spawned:
    """A new interpreter."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self.pid = interpreter.pid

    async def wait(self) -> int | None:
        code = await self._interpreter.wait()
        # What the task has started and left behind. As long as there is any, the number is not given to others.
        _kill_group(self.pid)
        return code

    def kill(self) -> None:
        _kill_group(self.pid)


class Forked:
    """A fork of a template, which is its parent."""

    def __init__(self, pid: int, template: Template) -> None:
        self.pid = pid
        self._template = template
        self._pidfd = os.pidfd_open(pid)
        self._reaped = False

    async def wait(self) -> int | None:
        try:
            await _readable(self._pidfd)
            # Nothing has asked for its exit code yet, so the number still is this child's.
            self.kill()
        finally:
            os.close(self._pidfd)
        self._reaped = True
        return await self._template.exit_code(self.pid)

    def kill(self) -> None:
        if not self._reaped and not _kill_group(self.pid):
            # It has no group of its own yet, and so nothing that it has started.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)


async def spawn(module: str, *descriptors: int) -> Spawned:
    """Start a new interpreter with this module of ours, in a session of its own."""
    interpreter = await asyncio.create_subprocess_exec(
        *_command(module, *descriptors),
        stdin=subprocess.DEVNULL,
        pass_fds=descriptors,
        env=os.environ | {"PYTHONPATH": _absolute(sys.path)},
        # Away from the terminal's Ctrl-C, and a group that can be killed with all that a task started.
        start_new_session=True,
    )
    return Spawned(interpreter)


class Template:
    """The worker's end of a template process. It is started with the first child."""

    def __init__(self) -> None:
        self.has_forked = False
        self._process: Spawned | None = None
        self._reaping: asyncio.Task[int | None] | None = None
        self._asked: dict[int, asyncio.Future[int | None]] = {}
        self._starting = asyncio.Lock()
        self._ended = False
        self._loop = asyncio.get_running_loop()

    @property
    def alive(self) -> bool:
        """Whether it can be asked for a child."""
        return not self._ended

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left."""
        return self._ended and (self._reaping is None or self._reaping.done())

    async def fork(self, *descriptors: int) -> None:
        """Ask for a child with these descriptors; the rest is said over them. OSError if that is in vain."""
        async with self._starting:
            if self._process is None:
                await self._start()
        # Not a blocking socket: with so many requests unanswered that no more fit, the template is stuck.
        try:
            socket.send_fds(self._requests, [FORK], descriptors)
        except BlockingIOError:
            self.kill()
            raise
        except ConnectionError as e:
            raise ConnectionError(await self.why_it_hung_up(_STATUS_SECONDS)) from e

    async def exit_code(self, pid: int) -> int | None:
        """How its child has ended; None if the template is gone or doesn't answer."""
        if self._ended:
            return None
        answer: asyncio.Future[int | None] = self._loop.create_future()
        self._asked[pid] = answer
        try:
            self._requests.send(EXIT_CODE_OF.pack(pid))
            async with asyncio.timeout(_STATUS_SECONDS):
                return await answer
        except (OSError, TimeoutError):
            return None
        finally:
            self._asked.pop(pid, None)

    async def why_it_hung_up(self, seconds: float) -> str:
        """Why it has closed a child's socket without a word."""
        if self._reaping is not None:
            await asyncio.wait([self._reaping], timeout=seconds)
            if self._reaping.done():
                return f"the template process died with {exit_text(self._reaping.result())}"
        return "the template process closed the child's socket"

    def leave(self) -> None:
        """Let it end; its children go on without it."""
        self._closed()

    def kill(self) -> None:
        """End it at once; its children go on without it."""
        self._closed()
        if self._process is not None:
            self._process.kill()

    async def close(self, grace: float) -> None:
        """Let it end, then kill it."""
        async with self._starting:
            self._closed()
        if self._reaping is not None:
            await asyncio.wait([self._reaping], timeout=grace)
            self.kill()
            await asyncio.shield(self._reaping)

    async def _start(self) -> None:
        lifeline = Lifeline()
        try:
            self._requests, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            self._requests.setblocking(False)
            try:
                with theirs:
                    process = await spawn("tasklib.executors.template", theirs.fileno(), lifeline.theirs)
            except BaseException:
                self._requests.close()
                raise
        except BaseException:
            lifeline.cut()
            raise
        lifeline.hand_over()
        self._process = process
        self._loop.add_reader(self._requests.fileno(), self._answered)
        self._reaping = asyncio.create_task(self._reap(process, lifeline))

    async def _reap(self, process: Spawned, lifeline: Lifeline) -> int | None:
        try:
            return await process.wait()
        finally:
            self._closed()
            lifeline.cut()

    def _answered(self) -> None:
        try:
            answer = self._requests.recv(EXIT_CODE.size)
        except BlockingIOError:
            return
        except OSError:
            answer = b""
        if not answer:
            self._closed()
            return
        pid, code = EXIT_CODE.unpack(answer)
        if (asked := self._asked.get(pid)) is not None and not asked.done():
            asked.set_result(code)

    def _closed(self) -> None:
        if not self._ended and self._process is not None:
            self._loop.remove_reader(self._requests.fileno())
            self._requests.close()
        self._ended = True
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)


def why_not_from_a_template() -> str | None:
    """Why this system can't fork children from a template."""
    if not hasattr(os, "pidfd_open"):
        return "this system has no pidfd_open"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as e:
        return f"this system doesn't allow pidfd_open: {e}"
    return None


def _kill_group(pid: int) -> bool:
    """Kill a process with everything it has started; False if there is no such group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def exit_text(code: int | None) -> str:
    if code is None:
        return "an exit code that is not known"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _command(module: str, *descriptors: int) -> list[str]:
    # -O, -W, -X and the like carry over as in multiprocessing, by the same private function: there is no public one.
    # -P: a json.py in the current directory must not replace the standard library's in the child alone.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-P", "-m", module, *map(str, descriptors)]


def _absolute(path: list[str]) -> str:
    return os.pathsep.join(os.path.abspath(entry) for entry in path)
