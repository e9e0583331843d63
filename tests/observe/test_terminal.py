from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from tasklib.events import (
    ChildrenSpawned,
    DatabaseBack,
    DatabaseLost,
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
from tasklib.observe.terminal import ERRORS_PER_SECOND, LINES_PER_SECOND, LastingConsole, TerminalView

ID = "01a1dd41-7329-7000-968c-a7dbc7546636"
STARTED = WorkerStarted("host-1-abcd", ("send_email", "noop"), None, 10)
DONE = TaskEnded(ID, "noop", 1, "completed", 0.012, max_retries=3)
DEAD = TaskEnded(ID, "noop", 4, "dead_letter", 0.012, "Traceback\nValueError: no", max_retries=3)


class Screen:
    """A view on a screen of text, with time in the test's hands."""

    def __init__(self, *, colours: bool = False, **options: Any) -> None:
        self.file = io.StringIO()
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.console = Console(
            file=self.file,
            width=200,
            highlight=False,
            force_terminal=colours,
            color_system="standard" if colours else None,
        )
        self.view = TerminalView(self.console, clock=lambda: self.now, call_later=self._call_later, **options)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, callback))

    def show(self, *events: Event) -> list[str]:
        """What these events add to the screen, without the times."""
        return self._new([partial(self.view, e) for e in events])

    def after(self, seconds: float) -> list[str]:
        """What the passing of time adds to the screen."""
        self.now += seconds
        due, self.due = [d for d in self.due if d[0] <= self.now], [d for d in self.due if d[0] > self.now]
        return self._new([callback for _, callback in due])

    def _new(self, actions: list[Callable[[], None]]) -> list[str]:
        self.file.seek(0)
        self.file.truncate()
        for action in actions:
            action()
        return [line[9:] for line in self.file.getvalue().splitlines()]


def test_start_line_names_the_worker_and_what_it_serves() -> None:
    assert Screen().show(STARTED) == ["worker host-1-abcd  2 task functions, all queues, 10 at a time"]
    some = WorkerStarted("w", ("a",), ("mail", "sms"), 1)
    assert Screen().show(some) == ["worker w  1 task function, queue mail, sms, 1 at a time"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (DONE, "✓ noop       …c7546636    12 ms"),
        (
            TaskEnded(ID, "noop", 1, "failed", 1.2, "T\nOSError: gone", 5.0, 3),
            "↻ noop       …c7546636    1.2 s  retry 1/3 in 5.0 s  OSError: gone",
        ),
        (DEAD, "✗ noop       …c7546636    12 ms  dead letter after 4 attempts  ValueError: no"),
        (TaskEnded(ID, "noop", 1, "pending", 2), "↩ noop       …c7546636    2.0 s  released, to run again"),
        (TaskEnded(ID, "noop", 2, "failed", 2), "↩ noop       …c7546636    2.0 s  released, to run again"),
        (TaskEnded(ID, "noop", 1, "cancelled", 2, "stop"), "⊘ noop       …c7546636    2.0 s  stop"),
        (
            ResultRefused(ID, "noop", 7),
            "! noop       …c7546636  result refused: another attempt holds the lease",
        ),
        (
            LeaseLost(ID, "noop", 7),
            "! noop       …c7546636  lease lost: the attempt is stopped, another worker may have the task",
        ),
        (
            SlotStuck(ID, "noop"),
            "! noop       …c7546636  was requested to stop but is still running; its slot stays occupied until it ends",
        ),
        (TaskNotBegun(ID, "noop", "no process"), "! noop       …c7546636  not started, and released: no process"),
        (ChildrenSpawned("threads"), "! child processes start as new interpreters: threads"),
        (LeasesRescued(((ID, "noop", "failed"),)), "! noop …c7546636  its worker was lost; it will run again"),
        (
            LeasesRescued(((ID, "noop", "dead_letter"),)),
            "! noop …c7546636  its worker was lost; given up as a dead letter",
        ),
        (NotificationsMissing("silence", 2.0), "polling every 2 s: silence. See tasklib doctor."),
        (DatabaseLost("tasks", "server closed\n\tThis probably means"), "database lost, trying again: server closed"),
        (
            WorkerDraining("w", 2, False),
            "stopping: 2 running tasks may finish, no new ones. Press Ctrl-C again to stop at once.",
        ),
        (WorkerDraining("w", 1, True), "stopping at once: 1 running task released, to run again"),
        (WorkerStopped("w"), "stopped"),
    ],
)
def test_each_event_is_one_line(event: Event, line: str) -> None:
    screen = Screen()
    screen.show(STARTED)
    assert screen.show(event) == [line]


def test_database_that_comes_back_is_told() -> None:
    screen = Screen()
    screen.show(DatabaseLost("tasks", "gone"), DatabaseLost("listen", "gone"))
    assert screen.show(DatabaseBack("tasks"), DatabaseBack("listen")) == ["database back"]


def test_dead_letters_are_red() -> None:
    screen = Screen(colours=True)
    screen.view(DEAD)
    assert "\x1b[1;31m✗" in screen.file.getvalue()


def test_hostile_text_does_not_reach_the_terminal() -> None:
    [line] = Screen().show(TaskEnded(ID, "[red]x\x1b[2J", 1, "dead_letter", 0, "\x1b]0;owned\x07 [bold]"))
    assert "\x1b" not in line
    assert r"[red]x\x1b[2J" in line
    assert "[bold]" in line


def test_many_ends_in_a_second_become_one_summary_a_second() -> None:
    screen = Screen()
    lines = screen.show(*[DONE] * 1000)
    assert len(lines) == LINES_PER_SECOND
    assert screen.after(1) == [f"{1000 - LINES_PER_SECOND} done /s"]
    retried = TaskEnded(ID, "noop", 1, "failed", 0.1, "OSError: gone", 5.0, 3)
    lines = screen.show(*[DONE] * 1234, *[retried] * 30)
    assert len(lines) == ERRORS_PER_SECOND
    assert all("OSError: gone" in line for line in lines)
    assert screen.after(1) == ["1,234 done, 30 to be retried /s"]


def test_lines_come_back_when_it_is_calm() -> None:
    screen = Screen()
    screen.show(*[DONE] * 100)
    screen.after(1)
    assert screen.show(*[DONE] * 3) == []
    assert screen.after(1) == ["3 done /s"]
    assert screen.due == []
    assert len(screen.show(DONE)) == 1


def test_twenty_ends_in_every_second_are_twenty_lines() -> None:
    screen = Screen()
    for _ in range(3):
        assert len(screen.show(*[DONE] * LINES_PER_SECOND)) == LINES_PER_SECOND
        assert screen.after(1) == []


def test_summary_that_is_due_comes_before_the_end() -> None:
    screen = Screen()
    screen.show(*[DONE] * 50)
    assert screen.show(WorkerStopped("w")) == ["30 done /s", "stopped"]


def test_quiet_shows_only_what_went_wrong() -> None:
    screen = Screen(quiet=True)
    assert screen.show(STARTED, *[DONE] * 100, WorkerDraining("w", 1, False), WorkerStopped("w")) == []
    assert len(screen.show(DEAD, DatabaseLost("tasks", "gone"), DatabaseBack("tasks"))) == 3


def test_verbose_also_shows_what_begins() -> None:
    screen = Screen(verbose=True)
    assert screen.show(STARTED)[1:] == ["serves send_email, noop"]
    assert screen.show(TasksClaimed(10, 2)) == ["claimed 2 tasks, 10 slots free"]
    assert screen.show(TaskStarted(ID, "noop", 2)) == ["▸ noop       …c7546636  attempt 2"]


def test_terminal_that_went_away_does_not_stop_the_worker() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    TerminalView(LastingConsole(file=Gone()))(STARTED)
