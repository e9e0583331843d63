"""`@task(executor="process")`: task functions in child processes, which can be killed.

Each child is a fresh interpreter in a session of its own. It is started when a task needs it, kept for the next one,
and replaced when it dies, when it has to be stopped, and after `process_max_tasks` tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasklib.config import Config
from tasklib.executors.outcomes import Done, Failed, Kind, Released
from tasklib.executors.wire import (
    Cancel,
    Message,
    Progress,
    Run,
    Setup,
    Started,
    Unloadable,
    described,
    main_import,
    packed,
    receive_async,
)
from tasklib.tasks.context import TaskContext
from tasklib.tasks.function import TaskFunction

# How long after a child's death its last words may take to arrive.
_LAST_WORDS_SECONDS = 1.0

_lifelines: set[int] = set()


def _close_lifelines() -> None:
    for descriptor in _lifelines:
        os.close(descriptor)
    _lifelines.clear()


if sys.platform != "win32":
    # A copy of the worker, made by multiprocessing in some thread, must not keep the children alive after it.
    os.register_at_fork(after_in_child=_close_lifelines)


class ProcessExecutor:
    """Runs each task in a child process; as many children as tasks at a time."""

    def __init__(self, config: Config, modules: Sequence[str] = ()) -> None:
        _refuse_an_unguarded_script()
        self._config = config
        self._modules = list(modules)
        self._idle: list[_Child] = []
        self._children: set[_Child] = set()
        self._closed = False

    async def run(
        self,
        function: TaskFunction[Any, Any],
        kwargs: str,
        context: TaskContext,
        trace: dict[str, str] | None = None,
    ) -> Done | Failed | Released:
        """Make one attempt. Cancelling it ends the child; then CancelledError is raised as usual."""
        order = Run(function.name, function.function.__module__, kwargs, described(context), trace)
        while True:
            child = self._take()
            try:
                ended = await child.run(order, context._report)
            except BaseException:
                await asyncio.shield(self._end(child))
                raise
            if not isinstance(ended, _Death):
                return self._settled(child, ended)
            self._end(child)
            if self._closed:
                raise asyncio.CancelledError("the executor was closed")
            if ended.begun or child.tasks == 0:
                return ended.outcome
            # It died idle, unnoticed: another one takes the order.

    async def close(self) -> None:
        """End all children: idle ones leave, busy ones are terminated, then killed. Their `run` is cancelled."""
        self._closed = True
        self._idle.clear()
        endings = [self._end(child) for child in self._children]
        await asyncio.gather(*endings, return_exceptions=True)

    def _take(self) -> _Child:
        if self._closed:
            raise RuntimeError("this ProcessExecutor is closed.")
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._end(child)
        child = _Child(_setup(self._config, self._modules), self._config.process_kill_grace_seconds)
        self._children.add(child)
        return child

    def _settled(self, child: _Child, ended: Done | Failed | Unloadable) -> Done | Failed:
        if self._closed or isinstance(ended, Unloadable) or child.tasks >= self._config.process_max_tasks:
            self._end(child)
        else:
            self._idle.append(child)
        return Failed(ended.error) if isinstance(ended, Unloadable) else ended

    def _end(self, child: _Child) -> asyncio.Task[None]:
        ending = child.end()
        ending.add_done_callback(lambda _: self._children.discard(child))
        return ending


@dataclass(frozen=True, slots=True)
class _Death:
    """There is no child to make the attempt, or not any more."""

    outcome: Failed | Released
    begun: bool


class _Child:
    """The worker's end of one child process."""

    def __init__(self, setup: Setup, grace: float) -> None:
        self.tasks = 0
        self._setup = setup
        self._grace = grace
        self._busy = False
        self._ending: asyncio.Task[None] | None = None
        # A task of its own: a cancelled attempt can't leave a process behind that nobody knows of.
        self._starting = asyncio.create_task(self._start())

    @property
    def alive(self) -> bool:
        return not (self._reaping.done() or self._reader.at_eof())

    async def run(self, order: Run, report: Callable[[str], None] | None) -> Done | Failed | Unloadable | _Death:
        """Have the child make an attempt, and pass its reports on."""
        try:
            await asyncio.shield(self._starting)
        except OSError as e:
            return _Death(Released(f"no child process could be started: {e}"), begun=False)
        begun = False
        self._busy = True
        self._send(order)
        while True:
            match await receive_async(self._reader):
                case Started():
                    begun = True
                case Progress(value):
                    if report is not None:
                        report(value)
                case Done() | Failed() | Unloadable() as ended:
                    self._busy = False
                    self.tasks += 1
                    return ended
                case _:  # nothing, or nonsense: the task may have got hold of the socket
                    return await self._death(order.name, begun)

    def end(self) -> asyncio.Task[None]:
        """Begin to end the child, once. The task is done when nothing of the child is left."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        return self._ending

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            try:
                self._process = await self._spawn(theirs.fileno())
            except BaseException:
                self._writer.transport.abort()
                raise
        self._reaping = asyncio.create_task(self._reap())
        self._send(self._setup)

    async def _spawn(self, control: int) -> Process:
        # Never written to. It closes when this process ends, however it ends, and that kills the child.
        theirs, self._lifeline = os.pipe()
        _lifelines.add(self._lifeline)
        try:
            return await asyncio.create_subprocess_exec(
                *_command(control, theirs),
                stdin=subprocess.DEVNULL,
                pass_fds=(control, theirs),
                env=os.environ | {"PYTHONPATH": _absolute(sys.path)},
                # Away from the terminal's Ctrl-C, and a group that can be killed with all that a task started.
                start_new_session=True,
            )
        except BaseException:
            self._cut_lifeline()
            raise
        finally:
            os.close(theirs)

    async def _reap(self) -> int:
        code = await self._process.wait()
        # What the task has started and left behind. As long as there is any, the number is not given to others.
        _kill_group(self._process.pid)
        # Something outside the group may still hold the other end of the socket: don't wait for it forever.
        asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._writer.transport.abort)
        return code

    async def _death(self, name: str, begun: bool) -> _Death:
        # The socket is closed, so the process is dying. If not, the task closed it, and the child is of no use.
        await asyncio.wait([self._reaping], timeout=_LAST_WORDS_SECONDS)
        if not self._reaping.done():
            _kill_group(self._process.pid)
        code = await asyncio.shield(self._reaping)
        how = f"child process {self._process.pid} died with {_exit_text(code)}"
        if not begun:
            return _Death(Released(f"{how} before it could run {name}"), begun)
        hint = " The kernel sends it when memory runs out." if code == -signal.SIGKILL else ""
        return _Death(Failed(f"WorkerLost: {how} while running {name}.{hint}", Kind.CRASH), begun)

    async def _end(self) -> None:
        try:
            await self._starting
        except Exception:
            return  # there is nothing to end, and `run` has said why
        try:
            if self._busy:
                self._send(Cancel())  # the child raises in the task, lets it clean up, and exits
            elif self.tasks:
                self._writer.close()  # the child leaves by itself
            else:
                _kill_group(self._process.pid)  # it is still starting and has nothing to clean up
            await asyncio.wait([self._reaping], timeout=self._grace)
        finally:
            if not self._reaping.done():
                _kill_group(self._process.pid)
            await asyncio.shield(self._reaping)
            self._writer.transport.abort()
            self._cut_lifeline()

    def _cut_lifeline(self) -> None:
        _lifelines.discard(self._lifeline)
        os.close(self._lifeline)

    def _send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(packed(message))


def _setup(config: Config, modules: list[str]) -> Setup:
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    return Setup(
        sys_path=list(sys.path),
        argv=list(sys.argv),
        pythonpath=os.environ.get("PYTHONPATH"),
        main_path=getattr(main, "__file__", None),
        main_module=None if name == "__main__" else name,  # a directory or zip file, known by its path only
        modules=modules,
        max_payload_bytes=config.max_payload_bytes,
        max_error_bytes=config.max_error_bytes,
    )


def _command(*descriptors: int) -> list[str]:
    # -O, -W, -X and the like carry over, in the way multiprocessing does it.
    # -P: a json.py in the current directory must not replace the standard library's in the child alone.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-P", "-m", "tasklib.executors.child", *map(str, descriptors)]


def _absolute(path: list[str]) -> str:
    return os.pathsep.join(os.path.abspath(entry) for entry in path)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _refuse_an_unguarded_script() -> None:
    if main_import() == "under way":
        raise RuntimeError(
            "a child process is importing this script to find its task functions, and the script starts a worker. "
            'Start it under `if __name__ == "__main__":`.'
        )
