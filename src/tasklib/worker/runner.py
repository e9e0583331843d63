"""Running attempts: each in its executor, within its time, ending in exactly one outcome."""

from __future__ import annotations

import asyncio
from typing import Any, assert_never

from tasklib.config import Config
from tasklib.db.database import AsyncDatabase, Database
from tasklib.errors import TaskTimeout
from tasklib.events import Events, LeaseLost, SlotStuck, TaskStarted
from tasklib.executors.functions import call, call_async
from tasklib.executors.outcomes import Cancelled, Failed, Kind, Lost, Outcome, Released, failed
from tasklib.executors.processes import ProcessExecutor
from tasklib.executors.threads import ThreadExecutor
from tasklib.executors.transactions import call_in_transaction, call_in_transaction_async, transaction_config
from tasklib.tasks.function import Executor
from tasklib.worker.attempt import Attempt, Interruption
from tasklib.worker.settler import Settler
from tasklib.worker.slots import Slots

_STUBBORN_SECONDS = 5.0
"""How long a cancelled coroutine (or a killed child) may take to end before its attempt is settled without it."""


class Runner:
    """Starts attempts, interrupts them, and hands their outcomes to the settler."""

    def __init__(
        self, config: Config, slots: Slots, settler: Settler, events: Events, modules: tuple[str, ...]
    ) -> None:
        self._config = config
        self._slots = slots
        self._settler = settler
        self._events = events
        self._threads = ThreadExecutor()
        self._processes = ProcessExecutor(config, modules)
        shared = transaction_config(config, slots.size)
        self._async_database, self._database = AsyncDatabase(shared), Database(shared)
        self.running: dict[Attempt, None] = {}

    def start(self, attempt: Attempt) -> None:
        """Begin an attempt."""
        self.running[attempt] = None
        if self._is_suspect(attempt):
            attempt.executor = Executor.PROCESS
        attempt.context._report = lambda text: self._settler.report_progress(attempt, text)
        if attempt.context.deadline is not None:
            loop = asyncio.get_running_loop()
            attempt.timer = loop.call_at(attempt.context.deadline, self.interrupt, attempt, Interruption.TIMEOUT)
        if self._events:
            self._events.emit(TaskStarted(attempt.claimed.id, attempt.claimed.name, attempt.context.attempt))
        attempt.runner = asyncio.create_task(self._run(attempt))

    def interrupt(self, attempt: Attempt, why: Interruption) -> None:
        """Stop an attempt: cancel the coroutine, kill the child, ask the thread. The first reason counts."""
        if attempt.settled or attempt.interruption is not None:
            return
        attempt.interruption = why
        attempt.context.cancel()
        if why is Interruption.LEASE_LOST:
            self._events.emit(LeaseLost(attempt.claimed.id, attempt.claimed.name, attempt.claimed.token))
        if attempt.executor is Executor.THREAD:
            # A thread can only be asked. A cancelled one ends as it ends; the others are settled without it.
            if why is not Interruption.CANCELLED:
                self._settle_without_it(attempt)
            return
        assert attempt.runner is not None
        if attempt.begun:  # a task cancelled before its first step would never get to say how it ended
            attempt.runner.cancel()
        patience = _STUBBORN_SECONDS + self._config.process_kill_grace_seconds
        asyncio.get_running_loop().call_later(patience, self._settle_without_it, attempt)

    async def close(self) -> None:
        """End threads and children; the attempts are over by now."""
        self._threads.close()
        await self._processes.close()
        self._async_database.close()
        self._database.close()

    def _is_suspect(self, attempt: Attempt) -> bool:
        """One more crash and the task is given up as poison, though it may only have been near the culprit.

        So it runs on its own in a child this time: if it is the culprit it can't take another worker down, and if the
        child dies there is no doubt whose fault it was.
        """
        crashes = attempt.claimed.crash_count
        return crashes > 0 and crashes + 1 >= self._config.crash_limit and attempt.function.can_run_in_a_process

    async def _run(self, attempt: Attempt) -> None:
        attempt.begun = True
        try:
            outcome = self._interrupted(attempt) if attempt.interruption else await self._outcome(attempt)
        except asyncio.CancelledError as e:
            outcome = self._interrupted(attempt) if attempt.interruption else failed(e, attempt.function, self._config)
        self._finish(attempt, outcome)

    async def _outcome(self, attempt: Attempt) -> Outcome:
        function, kwargs, context, config = attempt.function, attempt.claimed.kwargs, attempt.context, self._config
        match attempt.executor:
            case Executor.LOOP if function.transactional:
                return await call_in_transaction_async(function, kwargs, context, attempt.lease, self._async_database)
            case Executor.LOOP:
                return await call_async(function, kwargs, context, config)
            case Executor.THREAD if function.transactional:
                return await self._in_thread(
                    call_in_transaction, function, kwargs, context, attempt.lease, self._database
                )
            case Executor.THREAD:
                return await self._in_thread(call, function, kwargs, context, config)
            case Executor.PROCESS:
                return await self._processes.run(function, kwargs, context)
            case _:
                assert_never(attempt.executor)

    async def _in_thread(self, function: Any, *args: Any) -> Outcome:
        outcome: Outcome = await self._threads.submit(lambda: function(*args))
        return outcome

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """The function has ended, in time or not."""
        self.running.pop(attempt, None)
        if attempt.timer is not None:
            attempt.timer.cancel()
        if attempt.settled:
            self._slots.give_back()  # settled without it long ago; only now is its slot free
        elif attempt.interruption is Interruption.LEASE_LOST:
            self._settler.put(attempt, Lost())
        elif attempt.interruption is Interruption.CANCELLED and isinstance(outcome, Failed):
            self._settler.put(attempt, Cancelled(outcome.error))
        else:
            self._settler.put(attempt, outcome)

    def _settle_without_it(self, attempt: Attempt) -> None:
        """The attempt is over though its function goes on. It keeps its slot, which would otherwise be a lie."""
        if attempt.settled or attempt not in self.running:
            return
        self._slots.keep()
        self._events.emit(SlotStuck(attempt.claimed.id, attempt.claimed.name))
        self._settler.put(attempt, self._interrupted(attempt))

    def _interrupted(self, attempt: Attempt) -> Outcome:
        match attempt.interruption:
            case Interruption.TIMEOUT:
                error = TaskTimeout(f"the attempt ran longer than its timeout of {attempt.timeout_seconds} s")
                return Failed(f"{type(error).__name__}: {error}", Kind.TIMEOUT)
            case Interruption.LEASE_LOST:
                return Lost()
            case Interruption.SHUTDOWN:
                return Released()
            case Interruption.CANCELLED:
                return Cancelled("the task was cancelled while it ran")
            case None:
                raise AssertionError("nobody interrupted this attempt")
            case _:
                assert_never(attempt.interruption)
