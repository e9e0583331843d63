from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

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
from tasklib.observe.logs import LogLines, log_to
from tasklib.observe.task_logging import configure_task_logging

ID = "01a1dd41-7329-7000-968c-a7dbc7546636"
STARTED = WorkerStarted("host-1-abcd", ("noop",), None, 10)


@pytest.fixture(autouse=True)
def _structlog_as_before() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def logged(*events: Event, as_json: bool = True, level: int = logging.INFO) -> list[str]:
    stream = io.StringIO()
    lines = LogLines(log_to(stream, as_json=as_json, level=level))
    for event in events:
        lines(event)
    return stream.getvalue().splitlines()


def parsed(*events: Event, level: int = logging.INFO) -> list[dict[str, Any]]:
    """The lines without their times."""
    lines = [json.loads(line) for line in logged(*events, level=level)]
    assert all(line.pop("time") for line in lines)
    return lines


def test_each_transition_is_one_line_that_names_task_attempt_worker_and_duration() -> None:
    done = TaskEnded(ID, "noop", 1, "completed", 0.0123456789, max_retries=3)
    assert parsed(STARTED, done)[1] == {
        "level": "info",
        "event": "task completed",
        "task_id": ID,
        "task": "noop",
        "attempt": 1,
        "state": "completed",
        "worker": "host-1-abcd",
        "seconds": 0.012346,
    }


def test_the_trace_is_named_where_there_is_one() -> None:
    traced = [
        TaskEnded(ID, "noop", 1, "completed", 0.1, trace_id="f" * 32),
        ResultRefused(ID, "noop", 7, "f" * 32),
        LeaseLost(ID, "noop", 7, "f" * 32),
        SlotStuck(ID, "noop", "f" * 32),
    ]
    assert [line["trace_id"] for line in parsed(*traced)] == ["f" * 32] * 4


def test_failure_says_when_it_is_tried_again_and_why() -> None:
    failed = TaskEnded(ID, "noop", 1, "failed", 0.1, "Traceback\n  secret = 'argument'\nOSError: gone", 5.0, 3)
    [line] = parsed(failed)
    assert (line["level"], line["event"], line["state"]) == ("warning", "task failed", "failed")
    assert (line["retry_in_seconds"], line["max_retries"], line["error"]) == (5.0, 3, "OSError: gone")


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (TaskEnded(ID, "noop", 4, "dead_letter", 1, "ValueError"), "error", "task dead letter"),
        (TaskEnded(ID, "noop", 1, "pending", 1), "info", "task released"),
        (TaskEnded(ID, "noop", 2, "failed", 1), "info", "task released"),
        (TaskEnded(ID, "noop", 2, "cancelled", 1, "stop"), "info", "task cancelled"),
        (ResultRefused(ID, "noop", 7), "warning", "result refused"),
        (LeaseLost(ID, "noop", 7), "warning", "lease lost"),
        (SlotStuck(ID, "noop"), "warning", "slot stuck"),
        (TaskNotBegun(ID, "noop", "no process"), "error", "task not begun"),
        (ChildrenSpawned("threads"), "warning", "children spawned"),
        (LeasesRescued(((ID, "noop", "failed"),)), "warning", "task rescued"),
        (NotificationsMissing("silence", 2.0), "warning", "notifications do not arrive, polling instead"),
        (DatabaseLost("tasks", "gone"), "error", "database lost"),
        (DatabaseBack("tasks"), "warning", "database back"),
        (STARTED, "info", "worker started"),
        (WorkerDraining("w", 1, False), "info", "worker drains"),
        (WorkerDraining("w", 1, True), "info", "worker stops at once"),
        (WorkerStopped("w"), "info", "worker stopped"),
    ],
)
def test_level_and_words_of_each_event(event: Event, level: str, text: str) -> None:
    [line] = parsed(event)
    assert (line["level"], line["event"]) == (level, text)


def test_attempts_that_begin_and_claims_are_logged_when_verbose() -> None:
    events = (TaskStarted(ID, "noop", 1), TasksClaimed(10, 2))
    assert parsed(*events) == []
    assert [line["event"] for line in parsed(*events, level=logging.DEBUG)] == ["task started", "tasks claimed"]


def test_quiet_leaves_warnings_and_errors() -> None:
    done = TaskEnded(ID, "noop", 1, "completed", 0.01)
    dead = TaskEnded(ID, "noop", 1, "dead_letter", 0.01, "ValueError: no")
    assert [line["event"] for line in parsed(STARTED, done, dead, level=logging.WARNING)] == ["task dead letter"]


def test_key_value_lines_for_people_without_a_terminal() -> None:
    [line] = logged(TaskEnded(ID, "noop", 1, "failed", 0.1, "OSError: gone", 5.0, 3), as_json=False)
    _, _, rest = line.partition(" ")
    assert rest == (
        f'level=warning event="task failed" task_id={ID} task=noop attempt=1 state=failed worker= seconds=0.1 '
        'retry_in_seconds=5.0 max_retries=3 error="OSError: gone"'
    )


def test_reader_that_went_away_does_not_stop_the_worker() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    LogLines(log_to(Gone(), as_json=True))(STARTED)


def test_task_logger_writes_json_like_the_worker(capsys: pytest.CaptureFixture[str]) -> None:
    configure_task_logging(as_json=True)
    structlog.get_logger("tasklib.task").bind(task_id=ID, task="noop").info("half way", odd="\ud800", thing=object)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["task_id"]) == ("half way", "info", ID)


def test_task_logger_in_a_terminal_is_brief(capsys: pytest.CaptureFixture[str]) -> None:
    configure_task_logging(as_json=None)
    structlog.get_logger("tasklib.task").bind(task_id=ID, task="noop", worker="w").info("half way")
    line = capsys.readouterr().err
    assert "half way" in line
    assert "…c7546636" in line
    assert "worker" not in line


def test_program_that_configures_structlog_keeps_its_configuration() -> None:
    with structlog.testing.capture_logs() as lines:
        structlog.configure(processors=structlog.get_config()["processors"])
        configure_task_logging(as_json=True)
        structlog.get_logger().info("mine")
    assert lines == [{"event": "mine", "log_level": "info"}]
