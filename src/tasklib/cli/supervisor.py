"""Keeping a worker running in a child process: started anew when files change, drained before it goes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from importlib.util import cache_from_source
from pathlib import Path

from tasklib.cli.processes import signal_child
from tasklib.cli.report import note
from tasklib.cli.watch import FileWatch
from tasklib.worker.signals import stop_signals


class Supervisor:
    """Runs the command until a signal comes; a second signal makes its end quicker."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], watch: FileWatch) -> None:
        self._command = command
        self._environment = environment
        self._watch = watch
        self._child: Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        with stop_signals(self._on_signal):
            while not self._stopping.is_set():
                # What changes from here on may not be in the child.
                _forget_bytecode(self._watch.changed())
                self._child = await self._start()
                if self._stopping.is_set():
                    self._signal_child()  # the signal came too early for it
                if changed := await self._until_change(self._child):
                    _forget_bytecode(changed)
                    note(f"{_named(changed)} changed: restarting the worker", "bold")
                    self._signal_child()
                await self._child.wait()

    async def _start(self) -> Process:
        # A process group of its own: the terminal's Ctrl-C reaches the child through us, once. No stdin, as a process
        # in the background that reads the terminal is stopped.
        return await asyncio.create_subprocess_exec(
            *self._command, env=dict(self._environment), stdin=DEVNULL, process_group=0
        )

    async def _until_change(self, child: Process) -> list[Path]:
        """Wait for changed files or a signal. A child that ends is replaced only when a file changes."""
        stopping = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(child.wait())
        try:
            waiting = {stopping, ended}
            while True:
                done, waiting = await asyncio.wait(
                    waiting, timeout=self._watch.pause, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping in done:
                    return []
                if ended in done:
                    note("The worker has ended. It restarts when a file changes.", "yellow")
                if changed := self._watch.changed():
                    return changed
        finally:
            stopping.cancel()
            ended.cancel()

    def _on_signal(self) -> None:
        self._stopping.set()
        self._signal_child()

    def _signal_child(self) -> None:
        if self._child is not None:
            signal_child(self._child, signal.SIGTERM)


def _forget_bytecode(paths: Sequence[Path]) -> None:
    """Python knows a compiled file to be current by whole seconds and the size: two quick edits may look the same."""
    for path in paths:
        with contextlib.suppress(OSError, NotImplementedError):
            os.unlink(cache_from_source(str(path)))


def _named(paths: Sequence[Path]) -> str:
    here = Path.cwd()
    first = paths[0].relative_to(here) if paths[0].is_relative_to(here) else paths[0]
    return f"{first}" if len(paths) == 1 else f"{first} and {len(paths) - 1} more"
