"""Running attempts: each in its executor, within its time, ending in exactly one outcome."""

from __future__ import annotations

import asyncio
import contextvars
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import assert_never

from tasklib import tracing
from tasklib.backends.backend import Found, PlaceStore, StepStore
from tasklib.client.submissions import Defaults
from tasklib.config import Config
from tasklib.db.connect import TASK
from tasklib.db.database import AsyncDatabase, Database
from tasklib.errors import TaskTimeout
from tasklib.events import Events, LeaseLost, SlotStuck, TaskNotBegun, TaskStarted
from tasklib.executors.children import TakenBack
from tasklib.executors.durable import call_durable, call_durable_async
from tasklib.executors.exits import is_from_a_signal_handler
from tasklib.executors.functions import call, call_async, eager_task, failed
from tasklib.executors.outcomes import Cancelled, Done, Failed, FailureKind, Lost, Outcome, Released
from tasklib.executors.timing import RepeatedLook
from tasklib.executors.transactions import call_in_transaction, call_in_transaction_async, transaction_config
from tasklib.store.settle import Leased
from tasklib.tasks import registry
from tasklib.tasks.blobs import is_long
from tasklib.tasks.function_settings import Executor
from tasklib.tasks.payload_stores import store_of
from tasklib.worker.attempt import Attempt, Interruption
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.begins import Begins
from tasklib.worker.blobs import put_result, read_arguments
from tasklib.worker.calls import AttemptCalls, BlockCalls
from tasklib.worker.executors import Executors
from tasklib.worker.journal import AttemptJournal, Journals
from tasklib.worker.limit_blocks import LimitBlocks
from tasklib.worker.sealing import MARKED, open_arguments
from tasklib.worker.settler import Settler
from tasklib.worker.slots import PATIENCE_SECONDS, Slots
from tasklib.worker.spans import begin_span

_STUBBORN_SECONDS = 5.0
"""How long a cancelled coroutine (or a killed child) may take to end before its attempt is settled without it."""

_THREAD, _PROCESS = Executor.THREAD, Executor.PROCESS
"""For what runs for every task: looking a member up in its class takes longer than comparing it."""

_BREATH_SECONDS = 0.005
"""How long starting tasks may keep the loop from everything else."""

_NOT_BEGUN_SECONDS = 1.0
"""How long a task whose function could not be called is held before it is released."""

_LOOKS_AHEAD = 4
"""What waits is given back if it would still wait after so many times the timeout, at the pace seen lately."""


class Runner:
    """Starts attempts, interrupts them, and hands their outcomes to the settler."""

    def __init__(
        self,
        config: Config,
        slots: Slots,
        settler: Settler,
        events: Events,
        executors: Executors,
        begins: Begins,
        begin_limit: BeginLimit,
        stop_asked: asyncio.Event,
        places: PlaceStore,
        steps: StepStore | None = None,
    ) -> None:
        self._config = config
        self._slots = slots
        self._settler = settler
        self._events = events
        self._begins = begins
        self.begin_limit = begin_limit
        self._stop_asked = stop_asked
        slots.on_given_back = begin_limit.on_raised = self._start_waiting
        self._loop = asyncio.get_running_loop()
        self._fresh_context = contextvars.copy_context().copy
        self._threads, self._processes = executors.threads, executors.processes
        shared = transaction_config(config, slots.size)
        self._async_database, self._database = AsyncDatabase(shared, TASK), Database(shared, TASK)
        defaults = Defaults(config)
        self._journals = None if steps is None else Journals(steps, self._async_database, self._database, defaults)
        blocks = LimitBlocks(places)
        self._calls: Callable[[Attempt], BlockCalls] = (
            partial(BlockCalls, blocks, self._loop)
            if steps is None
            else partial(AttemptCalls, steps, blocks, defaults, self._loop)
        )
        self._report = settler.progress.report
        self.running: dict[Attempt, None] = {}
        """What this worker holds: attempts that run, and those that wait for a slot."""
        self._waiting: deque[Attempt] = deque()
        self._ahead: dict[Attempt, None] = {}
        """Attempts that have no slot yet: their orders wait in the sockets of busy children."""
        self._claimed = 0
        self._starting = self._traces = False
        self._records_all = config.crash_limit <= 1  # then the first crash is the last
        self._store = store_of(config)
        self._recording: set[asyncio.Task[None]] = set()
        self._ended = 0
        self._late = RepeatedLook(self._give_back_late)
        self._deadlines = RepeatedLook(self._interrupt_overdue)

    def start(self, found: Found) -> None:
        """Begin the claimed tasks; those beyond the slots as soon as slots are free."""
        now = time.monotonic()
        worker_id, deadline, report, calls = found.worker_id, found.lease_deadline, self._report, self._calls
        first, self._claimed = self._claimed + 1, self._claimed + len(found.tasks)
        for place, row in enumerate(found.tasks, first):
            function = registry.functions.get(row.name)
            assert function is not None, "a claim only brings names this worker asked for"
            attempt = Attempt(row, function, worker_id, deadline, now, place, report, calls)
            if function.sealing is not None or row.kwargs.startswith(MARKED):
                open_arguments(attempt, self._config)
            self.running[attempt] = None
            self._waiting.append(attempt)
        if self._stop_asked.is_set():  # what a last claim has brought is given back
            self.release_waiting()
            return
        self._start_waiting()
        if self._waiting:
            self._late.at(self._waiting[0].started_at + PATIENCE_SECONDS)

    def release_waiting(self) -> None:
        """Release the tasks that have not been started."""
        while self._waiting:
            self.interrupt(self._next_waiting(), Interruption.SHUTDOWN)
        for attempt in list(self._ahead):
            self._take_back(attempt)

    def interrupt(self, attempt: Attempt, why: Interruption) -> None:
        """Stop an attempt: cancel the coroutine, kill the child, ask the thread. The first to end it counts."""
        if attempt.settled or attempt.is_ending or attempt.interruption is why:
            return
        attempt.interrupt(why)
        if why is Interruption.LEASE_LOST:
            claimed = attempt.claimed
            self._events.emit(LeaseLost(claimed.id, claimed.name, claimed.token, attempt.trace_id))
        if not attempt.begun:
            self.running.pop(attempt, None)
            self._settler.put(attempt, self._interrupted(attempt))
            return
        if self._take_back(attempt):
            return  # and is settled as soon as that is known
        if attempt.executor is Executor.THREAD:
            # A thread can only be asked. A cancelled one ends as it ends, within its time; the others are settled
            # without it.
            if why is not Interruption.CANCELLED:
                self._settle_without_it(attempt)
            return
        # A task cancelled before its first step would never get to say how it ended.
        if attempt.entered and attempt.runner is not None:
            attempt.runner.cancel()
        timeout = _STUBBORN_SECONDS + self._config.process_kill_grace_seconds
        self._loop.call_later(timeout, self._settle_without_it, attempt)

    def leases(self) -> list[Leased]:
        """The attempts that go on."""
        return [attempt.claimed for attempt in self.running if not attempt.settled]

    def cancel(self, leases: Iterable[Leased]) -> None:
        """These were cancelled."""
        cancelled = {(lease.id, lease.token) for lease in leases}
        for attempt in list(self.running):
            if (attempt.claimed.id, attempt.claimed.token) in cancelled and not attempt.settled:
                self.interrupt(attempt, Interruption.CANCELLED)

    async def children_keep_failing(self) -> str:
        """Wait until no child process could be started many times in a row; why."""
        return await self._processes.starts_keep_failing()

    def close(self) -> None:
        """Let go of what attempts needed; they are over by now."""
        self._begins.close()
        if self._journals is not None:
            self._journals.close()
        self._late.stop()
        self._deadlines.stop()
        self._async_database.close()
        self._database.close()

    def _is_suspect(self, attempt: Attempt) -> bool:
        """One more crash and the task is given up as poison, though it may only have been near the culprit.

        So it runs on its own in a child this time: if it is the culprit it can't take another worker down, and if the
        child dies there is no doubt whose fault it was.
        """
        crashes = attempt.claimed.crash_count
        return crashes + 1 >= self._config.crash_limit and attempt.function.can_run_in_a_process

    def _start_waiting(self) -> None:
        """Start what waits while there are slots; a long row of short tasks lets the loop breathe in between."""
        if self._starting:  # an attempt that ended at once, further down this very loop
            return
        self._starting = True
        self._traces = tracing.API in sys.modules
        slots = self._slots
        now = time.monotonic()
        breathe_at = now + _BREATH_SECONDS
        # Here and in the calls below, what runs for every task is written out: functions cost more than their work.
        most, most_open = slots.most_running, self.begin_limit.most
        while slots.running < most:
            if self._ahead and self._take_back(self._first_ahead()):
                break  # a slot is free: those that were handed over ahead come first
            if not self._waiting:
                break
            if now > breathe_at:
                self._loop.call_soon(self._start_waiting)
                break
            if slots.taken - slots.waiting >= most_open:
                self.begin_limit.ask_for_more()
                break
            slots.waiting -= 1
            attempt = self._waiting.popleft()
            if attempt.interruption is not None:
                continue
            if attempt.claimed.crash_count or attempt.function.at_most_once or self._records_all:
                self._begin_on_record(attempt, now)
            else:
                self._begin(attempt, now)
            now = time.monotonic()
        while self._waiting and self._hand_ahead(self._waiting[0]):
            pass
        self._starting = False

    def _next_waiting(self) -> Attempt:
        self._slots.waiting -= 1
        return self._waiting.popleft()

    def _begin_on_record(self, attempt: Attempt, now: float) -> None:
        if attempt.claimed.crash_count and self._is_suspect(attempt):
            attempt.executor = Executor.PROCESS
        if attempt.executor is Executor.PROCESS:
            attempt.goes_on_record = True  # when there is a child to call it
            self._begin(attempt, now)
        else:
            self._record(attempt)

    def _record(self, attempt: Attempt) -> None:
        """Begin it once that is on record. It has its slot from now on, and its time does not run yet."""
        self._slots.running += 1
        recording = self._loop.create_task(self._record_and_begin(attempt))
        self._recording.add(recording)
        recording.add_done_callback(self._recording.discard)

    async def _record_and_begin(self, attempt: Attempt) -> None:
        try:
            is_ours, problem = await self._begins.record(attempt), ""
        except Exception as e:  # whatever it is, the function was not called
            is_ours, problem = False, f"its start could not be recorded: {e}"
        self._slots.running -= 1
        if attempt.settled:
            pass  # interrupted meanwhile
        elif is_ours:
            self._begin(attempt, time.monotonic())
        elif problem:
            self._give_back_not_begun(attempt, problem)
        else:
            self.running.pop(attempt, None)
            self._settler.put(attempt, Lost())
        self._start_waiting()

    def _hand_ahead(self, attempt: Attempt) -> bool:
        """Hand the task to a child that runs a short one, to begin next there without waiting for this worker."""
        if attempt.executor is not _PROCESS or attempt.interruption or self._traces:
            return False
        if attempt.claimed.crash_count or attempt.function.at_most_once or self._records_all or attempt.refusal:
            return False
        if self._slots.running < self._slots.most_running or not self._processes.can_hand_ahead:
            return False
        if self._slots.open >= self.begin_limit.most:
            self.begin_limit.ask_for_more()
            return False
        if self._ahead:
            first = self._first_ahead()
            # The others that are ahead may overtake it, and so may this one. More than the slots must not.
            if first.overtaken + len(self._ahead) > self._slots.size and self._take_back(first):
                return False
        attempt.ahead = self._processes.hand_ahead(
            attempt.function,
            attempt.claimed.kwargs,
            attempt.context(),
            lambda name: self._slots.prefetch.are_short([name]),
            timeout_seconds=attempt.timeout_seconds,
            begun=partial(self._called_in_child, attempt),
            took=attempt.took,
            turn=partial(self._has_turn, attempt),
        )
        if attempt.ahead is None:
            return False
        self._next_waiting()
        self._ahead[attempt], attempt.overtaken = None, 0
        attempt.begin(time.monotonic())
        attempt.runner = eager_task(self._run(attempt), self._loop, self._fresh_context())
        self._late.at(attempt.started_at + PATIENCE_SECONDS)
        return True

    def _first_ahead(self) -> Attempt:
        return min(self._ahead, key=attrgetter("place"))

    def _take_back(self, attempt: Attempt) -> bool:
        """Take its order back from the child that it was handed to, unless the child has it already."""
        return attempt.ahead is not None and attempt.ahead.take_back()

    def _has_turn(self, attempt: Attempt) -> None:
        """The attempt before it has ended in its child, and gives it the slot."""
        if attempt not in self._ahead:
            return  # it has ended before
        del self._ahead[attempt]
        for other in self._ahead:
            other.overtaken += other.place < attempt.place
        self._slots.running += 1
        if self._events.routine:
            self._tell_start(attempt)

    def _leave_slot(self, attempt: Attempt) -> None:
        if attempt in self._ahead:
            del self._ahead[attempt]
        else:
            self._slots.running -= 1

    def _put_back(self, attempt: Attempt) -> None:
        """Its order was taken back, so it waits for a slot as before."""
        self._leave_slot(attempt)
        attempt.ahead, attempt.runner, attempt.begun, attempt.entered = None, None, False, False
        if attempt.settled:
            self._slots.give_back()
        elif attempt.interruption is not None:
            self.running.pop(attempt, None)
            self._settler.put(attempt, self._interrupted(attempt))
        elif self._stop_asked.is_set():
            self.interrupt(attempt, Interruption.SHUTDOWN)
        else:
            behind = (i for i, other in enumerate(self._waiting) if other.place > attempt.place)
            self._waiting.insert(next(behind, len(self._waiting)), attempt)
            self._slots.waiting += 1
        self._start_waiting()

    def _begin(self, attempt: Attempt, now: float) -> None:
        attempt.begin(now)
        if self._traces:
            begin_span(attempt)
        if attempt.deadline is not None:
            self._watch_deadline(attempt)
        self._slots.running += 1
        if self._events.routine:
            self._tell_start(attempt)
        if attempt.executor is _THREAD:
            self._threads.submit(partial(self._call_in_thread, attempt), partial(self._finish, attempt))
        else:
            # Not in the context of the attempt whose end gave it its slot: that one's variables are no business of it.
            task = eager_task(self._run(attempt), self._loop, self._fresh_context())
            if not task.done():
                attempt.runner = task

    def _tell_start(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        self._events.emit_routine(TaskStarted(claimed.id, claimed.name, claimed.attempt, attempt.trace_id))

    async def _run(self, attempt: Attempt) -> None:
        attempt.entered = True
        if attempt.span is not None:
            attempt.span.enter()
        outcome: Outcome | TakenBack
        try:
            if attempt.interruption and attempt.ahead is None:
                outcome = self._interrupted(attempt)
            else:
                outcome = await self._outcome(attempt)
                if self._store is not None and isinstance(outcome, Done) and is_long(self._config, outcome.result):
                    outcome = await asyncio.to_thread(put_result, attempt, outcome, self._store, self._config)
        except asyncio.CancelledError as e:
            outcome = self._interrupted(attempt) if attempt.interruption else failed(e, attempt.function, self._config)
        except (SystemExit, KeyboardInterrupt) as e:
            if is_from_a_signal_handler(e):
                attempt.interruption = attempt.interruption or Interruption.SHUTDOWN
                self._finish(attempt, self._interrupted(attempt))
                raise  # out of the loop: it is the program that ends
            outcome = failed(e, attempt.function, self._config)
        except BaseException as e:
            if isinstance(e, GeneratorExit) and not self._loop.is_running():
                raise  # the loop has ended, and Python closes what is left of its coroutines
            outcome = failed(e, attempt.function, self._config)  # whatever it is, the attempt has ended
        if isinstance(outcome, TakenBack):
            self._put_back(attempt)
        else:
            self._finish(attempt, outcome)

    async def _outcome(self, attempt: Attempt) -> Outcome | TakenBack:
        if attempt.ahead is not None:
            if attempt.interruption and (task := asyncio.current_task()) is not None:
                task.cancel()  # it could not be before its first step, and a child may have its order
            return await self._processes.run_ahead(attempt.ahead)
        if attempt.refusal is not None:
            if attempt.unread:
                await asyncio.to_thread(read_arguments, attempt, self._config)
            if attempt.refusal is not None:
                return attempt.refusal
        function, kwargs = attempt.function, attempt.claimed.kwargs
        if attempt.executor is _PROCESS:
            trace = attempt.span.carried if attempt.span is not None else None
            return await self._processes.run(
                function,
                kwargs,
                attempt.context(),
                trace,
                timeout_seconds=attempt.timeout_seconds,
                may_call=partial(self._may_call_in_child, attempt) if attempt.goes_on_record else None,
                begun=partial(self._called_in_child, attempt),
                took=attempt.took,
            )
        if function.takes_connection:
            return await call_in_transaction_async(
                function,
                kwargs,
                attempt.context,
                attempt.claimed,
                self._async_database,
                self._progress_of(attempt),
                attempt.seal,
            )
        if function.durable:
            return await call_durable_async(function, kwargs, attempt.context, self._journal_of(attempt), self._config)
        return await call_async(function, kwargs, attempt.context, self._config)

    async def _may_call_in_child(self, attempt: Attempt) -> bool:
        attempt.recorded = True
        return await self._begins.record(attempt)

    def _called_in_child(self, attempt: Attempt) -> None:
        attempt.called(time.monotonic())
        self._watch_deadline(attempt)
        if self._waiting and self._processes.can_hand_ahead:
            self._start_waiting()

    def _watch_deadline(self, attempt: Attempt) -> None:
        if attempt.deadline is not None and attempt.deadline < self._deadlines.next:
            self._deadlines.at(attempt.deadline)

    def _call_in_thread(self, attempt: Attempt) -> Outcome:
        if attempt.interruption:
            return self._interrupted(attempt)
        if attempt.refusal is not None:
            if attempt.unread:
                read_arguments(attempt, self._config)
            if attempt.refusal is not None:
                return attempt.refusal
        function, kwargs = attempt.function, attempt.claimed.kwargs
        if attempt.span is not None:
            attempt.span.enter()
        try:
            if function.takes_connection:
                return call_in_transaction(
                    function,
                    kwargs,
                    attempt.context,
                    attempt.claimed,
                    self._database,
                    self._progress_of(attempt),
                    attempt.seal,
                )
            if function.durable:
                outcome = call_durable(function, kwargs, attempt.context, self._journal_of(attempt), self._config)
            else:
                outcome = call(function, kwargs, attempt.context, self._config)
            if self._store is not None and isinstance(outcome, Done):
                outcome = put_result(attempt, outcome, self._store, self._config)
            return outcome
        except BaseException as e:
            return failed(e, function, self._config)  # whatever it is, the attempt has ended

    def _journal_of(self, attempt: Attempt) -> AttemptJournal:
        assert self._journals is not None, "a backend without steps serves no durable function"
        return self._journals.of(attempt)

    def _progress_of(self, attempt: Attempt) -> Callable[[], str | None]:
        return partial(self._settler.progress.newest, attempt)

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """The function has ended, in time or not."""
        if attempt.ahead is None:
            self._slots.running -= 1
        else:
            self._leave_slot(attempt)
        self.running.pop(attempt, None)
        attempt.runner = None  # it has the context, which has the attempt: that ring would be left to the collector
        self._ended += 1
        if not attempt.function.at_most_once:  # what is not known to be short is never claimed ahead
            self._slots.prefetch.ended(attempt.claimed.name, time.monotonic() - attempt.started_at)
        if attempt.settled:
            self._slots.give_back()  # settled without it long ago; only now is its slot free
        elif isinstance(outcome, Done) and attempt.interruption is None:
            self._settler.put(attempt, outcome)  # as most
        elif attempt.interruption is Interruption.LEASE_LOST:
            self._settler.put(attempt, Lost())
        elif isinstance(outcome, Released) and outcome.reason and attempt.interruption is None:
            self._give_back_not_begun(attempt, outcome.reason)
        elif attempt.interruption is Interruption.CANCELLED and isinstance(outcome, Failed):
            self._settler.put(attempt, Cancelled(outcome.error))
        else:
            self._settler.put(attempt, outcome)
        if self._waiting or self._ahead:
            self._start_waiting()

    def _give_back_not_begun(self, attempt: Attempt, reason: str) -> None:
        """The function could not be called. The task is held for a moment: another one would fare no better."""
        claimed = attempt.claimed
        self._events.emit(TaskNotBegun(claimed.id, claimed.name, reason, attempt.trace_id))
        if attempt.recorded and attempt.function.at_most_once:
            error = f"WorkerLost: {reason}. The task runs at most once, and its start was recorded already."
            self._settler.put(attempt, Failed(error, retriable=False))
            return
        attempt.begun, attempt.deadline = False, None
        self.running[attempt] = None
        self._loop.call_later(_NOT_BEGUN_SECONDS, self.interrupt, attempt, Interruption.NO_SLOT)

    def _give_back_late(self) -> float | None:
        """Release prefetched tasks that won't get a slot soon: other workers may have one."""
        now = time.monotonic()
        for attempt in [attempt for attempt in self._ahead if attempt.started_at <= now - PATIENCE_SECONDS]:
            self._take_back(attempt)
        ended, self._ended = self._ended, 0
        if len(self._waiting) > _LOOKS_AHEAD * ended:
            while self._waiting and self._waiting[0].started_at <= now - PATIENCE_SECONDS:
                self._slots.prefetch.was_too_much()
                self.interrupt(self._next_waiting(), Interruption.NO_SLOT)
        return now + PATIENCE_SECONDS if self._waiting or self._ahead else None

    def _interrupt_overdue(self) -> float | None:
        """Interrupt what has used up its time; when the next one will have."""
        now = time.monotonic()
        left = math.inf
        for attempt in list(self.running):
            if attempt.deadline is None or attempt.settled or attempt.is_ending:
                continue
            if attempt.deadline <= now:
                self.interrupt(attempt, Interruption.TIMEOUT)
            else:
                left = min(left, attempt.deadline)
        return None if left == math.inf else left

    def _settle_without_it(self, attempt: Attempt) -> None:
        """The attempt is over though its function goes on. It keeps its slot, which would otherwise be a lie."""
        if attempt.settled or attempt not in self.running:
            return
        self._slots.keep()
        self._events.emit(SlotStuck(attempt.claimed.id, attempt.claimed.name, attempt.trace_id))
        self._settler.put(attempt, self._interrupted(attempt))

    @staticmethod
    def _may_have_been_called(attempt: Attempt) -> bool:
        return attempt.recorded if attempt.executor is Executor.PROCESS else attempt.begun

    def _interrupted(self, attempt: Attempt) -> Outcome:
        match attempt.interruption:
            case Interruption.TIMEOUT:
                error = TaskTimeout(f"the attempt ran longer than its timeout of {attempt.timeout_seconds} s")
                text = f"{type(error).__name__}: {error}"
                retriable = not isinstance(error, attempt.function.non_retriable)
                return Failed(text, FailureKind.TIMEOUT, retriable=retriable, raised=type(error).__name__)
            case Interruption.LEASE_LOST:
                return Lost()
            case Interruption.SHUTDOWN if attempt.function.at_most_once and self._may_have_been_called(attempt):
                return Failed(
                    f"WorkerLost: worker {attempt.worker_id} was stopped while the task ran. The task runs at most "
                    "once, so it is not retried.",
                    retriable=False,
                )
            case Interruption.SHUTDOWN | Interruption.NO_SLOT:
                return Released()
            case Interruption.CANCELLED:
                return Cancelled("the task was cancelled while it ran")
            case None:
                raise AssertionError("this attempt was not interrupted")
            case _:
                assert_never(attempt.interruption)
