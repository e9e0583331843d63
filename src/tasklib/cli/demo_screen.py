"""The output of the demo: a live table in a terminal, plain lines otherwise."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tasklib.states import TaskState

STYLES = {
    TaskState.PENDING: "dim",
    TaskState.RUNNING: "bold cyan",
    TaskState.COMPLETED: "green",
    TaskState.FAILED: "yellow",
    TaskState.CANCELLED: "magenta",
    TaskState.DEAD_LETTER: "bold red",
}
WIDEST = 120
NO_MORE_PAUSES = 30
PRIORITIES = {100: "high", 0: "medium", -10: "low"}


@dataclass(frozen=True)
class Row:
    """One task as it stands. Times are seconds from now, by the database's clock."""

    id: str
    name: str
    kwargs: dict[str, Any]
    state: str
    priority: int
    attempt: int
    max_attempts: int
    token: int
    worker_id: str | None
    result: dict[str, Any] | None
    error: str | None
    progress: dict[str, Any] | None
    history: list[dict[str, Any]]
    due_in: float
    lease_left: float | None
    started_at: datetime | None
    late: float | None
    """How long after it was due and known it started."""

    @property
    def label(self) -> str:
        values = " ".join(str(v) for v in self.kwargs.values())
        return f"{self.name} {values if len(values) < 20 else values[:8] + '...'}".strip()

    @property
    def is_over(self) -> bool:
        return TaskState(self.state).is_terminal

    @property
    def worker(self) -> str | None:
        """The readable part of the worker's id."""
        return self.worker_id.rpartition("-")[0] if self.worker_id else None

    def ended_with(self, outcome: str) -> bool:
        """True if one of its attempts ended so: "error", "timeout", "crash" or "lost"."""
        return any(attempt["outcome"] == outcome for attempt in self.history)


def last_line(error: str | None) -> str:
    """Of a traceback, the line that says what went wrong."""
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else ""


def _what_happened_first(row: Row) -> bool:
    """Of two tasks that changed since the last look, one that ended made room for one that started."""
    return row.state == TaskState.RUNNING


class DemoScreen:
    """The only part of the demo that knows whether there is a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        # FORCE_COLOR makes Rich believe in a terminal; only a real one can redraw lines.
        self.is_live = sys.stdout.isatty() and not self.console.is_dumb_terminal and not os.environ.get("CI")
        self.dead_workers: set[str] = set()
        self._block = "━" if self.console.encoding.startswith("utf") else "#"
        self._start = time.monotonic()
        self._live: Live | None = None
        self._workers_seen: dict[tuple[str, int], str] = {}
        self._told: dict[str, tuple[object, ...]] = {}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def act(self, title: str, *sentences: str, code: str = "") -> None:
        """Open an act: what it is about, in plain words, and how it is written in Python."""
        self.settle()
        self.console.print()
        if self.is_live:
            self.console.rule(f"[bold]{title}[/]", align="left", style="dim")
        else:
            self.console.print(f"== {title} ==")
        for sentence in sentences:
            self.say(sentence)
        if code:
            self.say(f"[cyan]    {escape(code)}[/]")
        self.beat(0.7)

    def say(self, markup: str) -> None:
        """Print a sentence; above the table if there is one."""
        self.console.print(markup, soft_wrap=not self.is_live)

    def beat(self, seconds: float) -> None:
        """Give a person time to read, as long as the machine is quick enough."""
        if self.is_live and self.seconds < NO_MORE_PAUSES:
            time.sleep(seconds)

    def show(self, rows: Sequence[Row]) -> None:
        """Show how the tasks of this act stand."""
        for row in rows:
            if row.worker:
                self._workers_seen[row.id, row.token] = row.worker
        if self.is_live:
            self._draw(Padding(self._table(rows), (1, 0)))
        else:
            for row in sorted(rows, key=_what_happened_first):
                self._tell(row)

    def show_count(self, done: int, total: int) -> None:
        """Show how far a crowd of tasks is."""
        if self.is_live:
            bar = Table.grid(padding=(0, 2))
            bar.add_row(f"{done:,} of {total:,}", ProgressBar(total, done, width=40, complete_style="cyan"))
            self._draw(Padding(bar, (1, 0)))

    def settle(self) -> None:
        """Leave the table as it is and go on below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._told.clear()

    def _draw(self, renderable: RenderableType) -> None:
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        self._live.update(renderable, refresh=True)

    def _table(self, rows: Sequence[Row]) -> Table:
        width = min(self.console.width, WIDEST)
        table = Table(
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", width=width
        )
        table.add_column("task", no_wrap=True, min_width=22)
        table.add_column("state", no_wrap=True, min_width=11)
        table.add_column("try", no_wrap=True, min_width=3)
        table.add_column("worker", no_wrap=True, min_width=6)
        table.add_column("what is happening", no_wrap=True, ratio=1)
        for row in rows:
            style = STYLES[TaskState(row.state)]
            table.add_row(
                row.label,
                Text(row.state, style),
                f"{row.attempt}/{row.max_attempts}" if row.token else "",
                self._worker_of(row) or "",
                Text(self._happening(row), self._mood(row)),
            )
        return table

    def _worker_of(self, row: Row) -> str | None:
        """Who runs it or, as far as we saw, ran it last."""
        told_by_history = row.history[-1]["worker"].rpartition("-")[0] if row.history else None
        return row.worker or self._workers_seen.get((row.id, row.token)) or told_by_history

    def _happening(self, row: Row) -> str:
        match TaskState(row.state):
            case TaskState.PENDING if row.due_in > 0:
                return f"due in {row.due_in:.1f} s"
            case TaskState.PENDING:
                return f"waits, priority {PRIORITIES.get(row.priority, row.priority)}"
            case TaskState.RUNNING if row.worker in self.dead_workers:
                return f"{row.worker} is dead; lease: {max(0.0, row.lease_left or 0):.1f} s"
            case TaskState.RUNNING if row.progress:
                done, of = row.progress["done"], row.progress["of"]
                return f"{self._block * round(15 * done / of):<15} {done} of {of}"
            case TaskState.RUNNING:
                return "at work" if row.attempt == 1 else "at work again"
            case TaskState.FAILED:
                return f"retry {f'in {row.due_in:.1f} s' if row.due_in > 0 else 'now'}: {self._error(row)}"
            case TaskState.COMPLETED:
                return str((row.result or {}).get("value"))
            case TaskState.DEAD_LETTER:
                return f"gave up: {self._error(row)}"
            case TaskState.CANCELLED:
                return "cancelled"

    def _mood(self, row: Row) -> str:
        if row.worker in self.dead_workers:
            return "red"
        return "dim" if row.state == TaskState.PENDING else ""

    def _error(self, row: Row) -> str:
        line = last_line(row.error)
        return line if self.console.width > 100 or not self.is_live else line.partition(": ")[2] or line

    def _tell(self, row: Row) -> None:
        """One line for everything that is new about a task."""
        quarter = 4 * row.progress["done"] // row.progress["of"] if row.progress and not row.is_over else 0
        news = (row.state, row.token, quarter, row.worker in self.dead_workers)
        if self._told.get(row.id) == news:
            return
        self._told[row.id] = news
        attempt = f"attempt {row.attempt} on {self._worker_of(row) or '?'}" if row.token else ""
        line = f"{self.seconds:5.1f} s  {row.label:<26} {row.state:<11}  {attempt:<18}  {self._happening(row)}"
        self.console.print(line, markup=False, soft_wrap=True)
