"""What a person sees who runs a worker in a terminal: one line for each attempt that ends, and for what goes wrong.

A fast worker would flood the terminal and be slowed by it. When more than a few attempts end within a second, the
lines give way to one summary a second, until things are calm again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

from rich.console import Console
from rich.text import Text

from tasklib.events import (
    BreakerMoved,
    ChildrenSpawned,
    DatabaseAwaited,
    DatabaseBack,
    DatabaseLost,
    DutyFailed,
    Event,
    LeaseLost,
    LeasesRescued,
    NotificationsMissing,
    ResultRefused,
    SlotStuck,
    TaskEnded,
    TaskNotBegun,
    TasksClaimed,
    TaskStarted,
    WorkerDraining,
    WorkerStarted,
    WorkerStopped,
)
from tasklib.observe.formatting import count, duration, last_line, printable, short_id, was_given_back
from tasklib.observe.outages import Outages

LINES_PER_SECOND = 20
"""More attempts than this in a second, and a summary takes the place of their lines."""
ERRORS_PER_SECOND = 5
"""Beside a summary, this many failures still get a line of their own."""
_WIDEST_NAME = 32

# state: symbol, style, what the summary calls it
_LOOKS = {
    "completed": ("✓", "green", "done"),
    "failed": ("↻", "yellow", "to be retried"),
    "dead_letter": ("✗", "bold red", "dead"),
    "cancelled": ("⊘", "magenta", "cancelled"),
    "pending": ("↩", "cyan", "given back"),
}


_OfTask: TypeAlias = TaskEnded | TaskStarted | ResultRefused | LeaseLost | SlotStuck | TaskNotBegun


def _call_later(seconds: float, callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, callback)


class LastingConsole(Console):
    """A console that outlives its terminal: Rich's own ends the program when its output is closed."""

    def on_broken_pipe(self) -> None:
        raise  # the error that is being handled


class TerminalView:
    """A subscriber of `worker.events` that writes to a console.

    worker.events.subscribe(TerminalView(LastingConsole(stderr=True)))
    """

    def __init__(
        self,
        console: Console,
        *,
        verbose: bool = False,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], object] = _call_later,
    ) -> None:
        self._console = console
        self._verbose, self._quiet = verbose, quiet
        self._clock, self._call_later = clock, call_later
        self._name_width = 0
        self._second_began, self._lines = -1.0, 0
        self._summarising = False
        self._tally: Counter[str] = Counter()
        self._errors_left = 0
        self._outages: defaultdict[int | None, Outages] = defaultdict(Outages)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            TaskEnded: self._ended,
            ResultRefused: self._refused,
            LeaseLost: self._lease_lost,
            SlotStuck: self._stuck,
            TaskNotBegun: self._not_begun,
            ChildrenSpawned: self._children_spawned,
            LeasesRescued: self._rescued,
            BreakerMoved: self._breaker_moved,
            DutyFailed: self._duty_failed,
            DatabaseAwaited: self._database_awaited,
            NotificationsMissing: self._notifications_missing,
            DatabaseLost: self._database_lost,
            DatabaseBack: self._database_back,
        }
        if not quiet:
            self._handlers |= {
                WorkerStarted: self._worker_started,
                WorkerDraining: self._draining,
                WorkerStopped: self._worker_stopped,
            }
        if verbose:
            self._handlers |= {TaskStarted: self._started, TasksClaimed: self._claimed}

    def __call__(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    # ---- attempts ----

    def _ended(self, event: TaskEnded) -> None:
        # The way of a fast worker comes first and is short.
        if self._summarising:
            self._tally[event.state] += 1
            if event.state != "completed" and self._errors_left:
                self._errors_left -= 1
                self._write_ended(event)
            return
        if self._quiet and event.state not in ("failed", "dead_letter"):
            return
        now = self._clock()
        if now - self._second_began >= 1:
            self._second_began, self._lines = now, 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            self._summarising = True
            self._tally[event.state] += 1
            self._errors_left = ERRORS_PER_SECOND
            self._call_later(1, self._summarise)
        else:
            self._write_ended(event)

    def _write_ended(self, event: TaskEnded) -> None:
        given_back = was_given_back(event)
        symbol, style, _ = _LOOKS.get("pending" if given_back else event.state, ("?", "", event.state))
        line = self._about(symbol, style, event)
        line.append(f"  {duration(event.seconds):>7}", "cyan" if event.state == "completed" else "")
        match event.state:
            case _ if given_back:
                line.append("  released, to run again", "cyan")
            case "failed":
                of = f"/{event.max_retries}" if event.max_retries is not None else ""
                line.append(f"  retry {event.attempt}{of} in {duration(event.retry_in_seconds or 0)}", "yellow")
            case "dead_letter":
                line.append(f"  dead letter after {count(event.attempt, 'attempt')}", "bold red")
        if event.error:
            line.append(f"  {last_line(event.error)}", "red" if event.state == "dead_letter" else "")
        self._write(line)

    def _summarise(self) -> None:
        total = sum(self._tally.values())
        calm = total <= LINES_PER_SECOND
        if total and not self._quiet:
            line = self._stamp()
            for i, (state, (_, style, word)) in enumerate(s for s in _LOOKS.items() if self._tally[s[0]]):
                line.append(", " if i else "").append(f"{self._tally[state]:,} {word}", style)
            self._write(line.append(" /s", "dim"))
        self._tally.clear()
        self._errors_left = ERRORS_PER_SECOND
        if calm:
            self._summarising = False
        else:
            self._call_later(1, self._summarise)

    def _started(self, event: TaskStarted) -> None:
        if not self._summarising:
            line = self._about("▸", "dim", event)
            self._write(line.append(f"  attempt {event.attempt}", "dim") if event.attempt > 1 else line)

    def _claimed(self, event: TasksClaimed) -> None:
        if not self._summarising:
            text = f"claimed {count(event.count, 'task')}, {count(event.asked, 'slot')} free"
            self._write(self._stamp().append(text, "dim"))

    def _refused(self, event: ResultRefused) -> None:
        self._warn(event, "result refused: another attempt holds the lease")

    def _lease_lost(self, event: LeaseLost) -> None:
        self._warn(event, "lease lost: the attempt is stopped, another worker may have the task")

    def _not_begun(self, event: TaskNotBegun) -> None:
        self._warn(event, f"not started, and released: {event.reason}")

    def _stuck(self, event: SlotStuck) -> None:
        self._warn(event, "was requested to stop but is still running; its slot stays occupied until it ends")

    def _rescued(self, event: LeasesRescued) -> None:
        for task_id, name, state in event.tasks[:ERRORS_PER_SECOND]:
            end = "given up as a dead letter" if state == "dead_letter" else "it will run again"
            line = self._stamp().append("! ", "yellow").append(printable(name), "bold")
            self._write(line.append(f" …{short_id(task_id)}", "dim").append(f"  its worker was lost; {end}", "yellow"))
        if (more := len(event.tasks) - ERRORS_PER_SECOND) > 0:
            self._write(self._stamp().append(f"! {count(more, 'more task')} of lost workers", "yellow"))

    # ---- the worker ----

    def _children_spawned(self, event: ChildrenSpawned) -> None:
        line = self._stamp().append("! child processes start as new interpreters: ", "yellow")
        self._write(line.append(last_line(event.reason), "yellow"))

    def _worker_started(self, event: WorkerStarted) -> None:
        self._name_width = min(max(map(len, event.names), default=0), _WIDEST_NAME)
        queues = "all queues" if event.queues is None else f"queue {', '.join(map(printable, event.queues))}"
        line = self._stamp().append("worker ").append(printable(event.worker_id), "bold")
        line.append(f"  {count(len(event.names), 'task function')}, {queues}, {event.concurrency} at a time")
        self._write(line)
        if self._verbose:
            self._write(self._stamp().append(f"serves {', '.join(map(printable, event.names))}", "dim"))

    def _draining(self, event: WorkerDraining) -> None:
        running = count(event.running, "running task")
        if event.now:
            text = f"stopping at once: {running} released, to run again"
        else:
            text = f"stopping: {running} may finish, no new ones. Press Ctrl-C again to stop at once."
        self._write(self._stamp().append(text, "yellow"))

    def _worker_stopped(self, event: WorkerStopped) -> None:
        if self._summarising:
            self._summarise()
        self._write(self._stamp().append("stopped"))

    def _breaker_moved(self, event: BreakerMoved) -> None:
        style = "bold red" if event.state == "open" else "yellow" if event.state == "probing" else "green"
        line = self._stamp().append(f"breaker of {event.name} is {event.state}", style)
        if event.attempts:
            line.append(f": {event.failures} of {event.attempts} attempts failed", style)
        self._write(line)

    def _duty_failed(self, event: DutyFailed) -> None:
        line = self._stamp().append(f"{event.duty}{_of(event.shard)} failed, trying again: ", "bold red")
        self._write(line.append(last_line(event.reason), "red"))

    def _database_awaited(self, event: DatabaseAwaited) -> None:
        line = self._stamp().append(
            f"waiting for the database{_of(event.shard)}, for up to {event.seconds:g} s: ", "bold yellow"
        )
        self._write(line.append(last_line(event.reason), "yellow"))

    def _notifications_missing(self, event: NotificationsMissing) -> None:
        line = self._stamp().append(f"polling{_of(event.shard)} every {event.poll_seconds:g} s: ", "bold yellow")
        self._write(line.append(f"{event.reason}. See tasklib doctor.", "yellow"))

    def _database_lost(self, event: DatabaseLost) -> None:
        if self._outages[event.shard].begins_with(event.purpose):
            line = self._stamp().append(f"database{_of(event.shard)} lost, trying again: ", "bold red")
            self._write(line.append(last_line(event.reason.strip().partition("\n")[0]), "red"))

    def _database_back(self, event: DatabaseBack) -> None:
        if self._outages[event.shard].ends_with(event.purpose):
            self._write(self._stamp().append(f"database{_of(event.shard)} back", "bold green"))

    # ---- lines ----

    def _stamp(self) -> Text:
        return Text(no_wrap=True, overflow="ellipsis").append(time.strftime("%H:%M:%S "), "dim")

    def _about(self, symbol: str, style: str, event: _OfTask) -> Text:
        line = self._stamp().append(f"{symbol} ", style)
        line.append(f"{printable(event.name):<{self._name_width}}", "bold")
        return line.append(f" …{short_id(event.id)}", "dim")

    def _warn(self, event: ResultRefused | LeaseLost | SlotStuck | TaskNotBegun, text: str) -> None:
        self._write(self._about("!", "yellow", event).append(f"  {text}", "yellow"))

    def _write(self, line: Text) -> None:
        # A terminal that went away is no reason to stop working.
        with contextlib.suppress(OSError):
            self._console.print(line)


def _of(shard: int | None) -> str:
    return "" if shard is None else f" of shard {shard}"
