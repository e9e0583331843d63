"""A task's life to scale: what waited, what ran, what is unknown; and what is related to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tasklib.errors import ConfigError
from tasklib.models import Task
from tasklib.server.dashboard.related import gathered, outside_links, related
from tasklib.server.dashboard.task_spans import life
from tasklib.server.settings import ServerSettings
from tasklib.steps import StepId, StepKind
from tasklib.store.durable import RecordedStep

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ID = UUID("0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def made(state: str, **columns: Any) -> Task:
    return Task(**{"id": ID, "name": "x", "state": state, "created_at": NOON, "scheduled_at": NOON, **columns})


def attempt(number: int, began: float | None, ended: float, outcome: str = "error") -> dict[str, Any]:
    started = None if began is None else at(began).isoformat()
    return {"attempt": number, "outcome": outcome, "started_at": started, "ended_at": at(ended).isoformat()}


def drawn(
    task: Task, steps: list[RecordedStep] | None = None, now: float = 100
) -> list[tuple[str, list[tuple[str, float]]]]:
    chart = life(task, steps or [], [], at(now))
    return [(line.title, [(span.kind, span.seconds) for span in line.spans]) for line in chart.lines]


def test_each_attempt_shows_how_long_it_waited_and_ran() -> None:
    task = made(
        "completed", scheduled_at=at(10), started_at=at(30), completed_at=at(34), history=[attempt(1, 12, 15)],
        retry_count=1,
    )  # fmt: skip
    assert drawn(task) == [
        ("Attempt 1", [("scheduled", 10.0), ("pending", 2.0), ("failed", 3.0)]),
        ("Attempt 2", [("pending", 15.0), ("completed", 4.0)]),
    ]


def test_a_running_and_a_waiting_task_last_until_now() -> None:
    running = made("running", started_at=at(40), worker_id="w", locked_until=at(500))
    assert drawn(running) == [("Attempt 1", [("pending", 40.0), ("running", 60.0)])]
    assert drawn(made("pending", scheduled_at=at(70))) == [("Waits", [("scheduled", 70.0), ("pending", 30.0)])]
    failed = made("failed", history=[attempt(1, 1, 2)], next_retry_at=at(90), retry_count=1)
    assert drawn(failed)[-1] == ("Waits", [("scheduled", 88.0), ("pending", 10.0)])


def test_an_attempt_whose_start_is_unknown_is_drawn_as_unknown() -> None:
    task = made("dead_letter", completed_at=at(9), history=[attempt(1, None, 9, "worker_lost")])
    assert drawn(task) == [("Attempt 1", [("unknown", 9.0)])]


def test_steps_are_drawn_from_one_record_to_the_next() -> None:
    task = made("completed", started_at=at(1), completed_at=at(20))
    steps = [
        RecordedStep(StepId(StepKind.STEP, name), "{}", at(second)) for name, second in (("charge", 6), ("mail", 20))
    ]
    assert drawn(task, steps)[1:] == [("step charge", [("step", 5.0)]), ("step mail", [("step", 14.0)])]


def test_bars_lie_within_the_chart_and_can_be_seen() -> None:
    task = made("completed", started_at=at(86_400), completed_at=at(86_400.001))
    chart = life(task, [], [], at(90_000))
    for span in chart.lines[0].spans:
        x, width = chart.place(span)
        assert width >= 2
        assert 0 <= x <= 1000 - width


def test_related_tasks_are_searches_that_find_them() -> None:
    flow = UUID("0196f2a0-0000-7000-8000-000000000001")
    task = made(
        "pending", flow=flow, node="parse", schedule="nightly", merge_key="order 7", tags={"edited_from": str(ID)}
    )
    found = {one.title: one.href for one in related(task, ID, "welcome-42")}
    assert found["The task that waits for its flow"] == f"/tasks/{ID}"
    assert found["Tasks of the same flow"] == f"/tasks?q=flow%3A{flow}"
    assert found["Runs of the same schedule"] == "/tasks?q=schedule%3Anightly"
    assert found["Tasks with the same merge key"] == "/tasks?q=key%3A%22order+7%22"
    assert found["Tasks with the same key"] == "/tasks?q=key%3Awelcome-42"
    assert found["Tasks of the same trace"] == f"/tasks?q=trace%3A{ID.hex}"


def test_gathered_flows_are_those_on_record() -> None:
    record = RecordedStep(StepId(StepKind.CHILDREN, "g"), f'{{"value": {{"flow": "{ID}", "nodes": []}}}}', NOON)
    assert gathered([record, RecordedStep(StepId(StepKind.STEP, "s"), '{"value": 1}', NOON)]) == [ID]


def test_links_lead_elsewhere_with_the_values_of_the_task_escaped() -> None:
    task = made("completed", name="a&b c", started_at=NOON, completed_at=at(1))
    templates = ("Trace=https://tempo.example/{trace_id}", "Logs=http://logs.example/?q={name}&from={from_ms}")
    assert list(outside_links(templates, task)) == [
        ("Trace", f"https://tempo.example/{ID.hex}"),
        ("Logs", f"http://logs.example/?q=a%26b%20c&from={int(NOON.timestamp() * 1000)}"),
    ]


@pytest.mark.parametrize("link", ["Trace", "=https://x", "Trace=javascript:alert(1)", 'T=https://x/"onclick', "T=//x"])
def test_a_link_that_leads_nowhere_safe_is_refused(link: str) -> None:
    with pytest.raises(ConfigError, match="a link is such as"):
        ServerSettings(links=(link,))
