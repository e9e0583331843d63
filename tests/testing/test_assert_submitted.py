"""assert_submitted() and its kin, on a database and in inline mode, and what they say when they fail."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import ANY
from uuid import UUID

import pytest

import tasklib
from tasklib import Task, TaskFunction, task
from tasklib.errors import InvalidOption, TaskNotFound
from tasklib.testing import assert_not_submitted, assert_submitted, drain_sync, inline, submitted

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["database", "inline"], autouse=True)
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test here runs on a database and in inline mode."""
    if request.param == "database":
        request.getfixturevalue("app")
        yield "database"
    else:
        with inline():
            yield "inline"


@pytest.fixture
def send_email() -> TaskFunction[..., Any]:
    @task(name="send_email", queue="mail")
    def send(to: str, at: datetime | None = None, price: Decimal = Decimal(0), key: UUID | None = None) -> None: ...

    return send


def failure(check: Any, *args: Any, **expected: Any) -> str:
    with pytest.raises(AssertionError) as failed:
        check(*args, **expected)
    return str(failed.value)


def text(block: str) -> str:
    return textwrap.dedent(block).strip()


def test_submitted_lists_the_tasks_of_a_function_oldest_first(send_email: TaskFunction[..., Any]) -> None:
    @task
    def other() -> None: ...

    ids = [send_email.submit_sync(to="a"), send_email.submit_sync(to="b")]
    other.submit_sync()
    assert [t.id for t in submitted(send_email)] == ids
    assert [t.id for t in submitted("send_email", kwargs={"to": "b"})] == ids[1:]
    assert all(isinstance(t, Task) for t in submitted(send_email))
    assert submitted("nobody") == []


def test_plain_function_under_a_decorator_is_known_too(send_email: TaskFunction[..., Any]) -> None:
    send_email.submit_sync(to="a")
    assert len(submitted(send_email.function)) == 1


async def test_they_work_inside_a_running_loop(send_email: TaskFunction[..., Any]) -> None:
    await send_email.submit(to="a")
    assert [t.kwargs for t in assert_submitted(send_email)] == [{"to": "a"}]
    assert_not_submitted(send_email, kwargs={"to": "b"})


def test_assert_submitted_returns_what_it_found(send_email: TaskFunction[..., Any]) -> None:
    ids = [send_email.submit_sync(to="a"), send_email.submit_sync(to="b")]
    assert [t.id for t in assert_submitted(send_email)] == ids
    [found] = assert_submitted(send_email, kwargs={"to": "a"}, count=1)
    assert found.id == ids[0]
    assert assert_submitted(send_email, count=0, kwargs={"to": "c"}) == []


def test_arguments_are_compared_as_python_values(send_email: TaskFunction[..., Any]) -> None:
    send_email.submit_sync(to="a", at=NOON, price=Decimal("1.50"), key=UUID(int=7))
    assert_submitted(send_email, kwargs={"at": NOON, "price": Decimal("1.5"), "key": UUID(int=7)})
    assert_submitted(send_email, kwargs={"at": NOON.astimezone(), "key": str(UUID(int=7))})
    assert_submitted(send_email, kwargs={"to": ANY, "at": "2030-01-01T12:00:00Z"})
    assert_submitted("send_email", kwargs={"at": NOON})
    assert_not_submitted(send_email, kwargs={"at": NOON + timedelta(seconds=1)})


def test_arguments_of_a_name_of_another_program_are_compared_as_json() -> None:
    tasklib.sync.submit_task("billing.charge", registered_elsewhere=True, kwargs={"at": NOON, "n": 1})
    assert_submitted("billing.charge", kwargs={"at": NOON, "n": 1})
    assert_not_submitted("billing.charge", kwargs={"n": 2})


def test_every_option_can_be_expected(send_email: TaskFunction[..., Any]) -> None:
    send_email.options(
        scheduled_at=NOON,
        max_retries=7,
        timeout_seconds=9,
        priority="high",
        tags={"batch": "daily", "n": 1},
        required_capabilities=["smtp", "dkim"],
        idempotency_key="k",
        trace_context={"traceparent": "00-x"},
    ).submit_sync(to="a")
    assert_submitted(
        send_email,
        count=1,
        queue="mail",
        max_retries=7,
        timeout_seconds=9,
        priority="high",
        tags={"batch": "daily"},
        required_capabilities=["smtp", "dkim"],
        idempotency_key="k",
        trace_context={"traceparent": "00-x"},
        scheduled_at=NOON,
        scheduled_after=NOON,
        scheduled_before=NOON,
    )
    assert_submitted(send_email, priority=100)
    for wrong in (
        {"queue": "default"},
        {"max_retries": 8},
        {"timeout_seconds": None},
        {"priority": "low"},
        {"tags": {"batch": "weekly"}},
        {"tags": {"other": 1}},
        {"required_capabilities": ["smtp"]},
        {"idempotency_key": None},
        {"trace_context": {"traceparent": "01"}},
        {"scheduled_at": NOON + timedelta(seconds=1)},
        {"scheduled_after": NOON + timedelta(seconds=1)},
        {"scheduled_before": NOON - timedelta(seconds=1)},
        {"state": "cancelled"},
        {"delay_seconds": 0},
    ):
        assert_not_submitted(send_email, **wrong)


def test_delay_is_what_the_task_was_submitted_with(send_email: TaskFunction[..., Any]) -> None:
    send_email.options(delay_seconds=3600.5).submit_sync(to="a")
    send_email.submit_sync(to="b")
    assert [t.kwargs["to"] for t in assert_submitted(send_email, delay_seconds=3600.5)] == ["a"]
    assert [t.kwargs["to"] for t in assert_submitted(send_email, delay_seconds=0)] == ["b"]


def test_state_can_be_expected_after_the_task_has_run(send_email: TaskFunction[..., Any], place: str) -> None:
    send_email.submit_sync(to="a")
    if place == "database":
        assert_submitted(send_email, state="pending")
        drain_sync()
    assert_submitted(send_email, state="completed")


def test_failure_shows_what_was_submitted_and_how_it_differs_nearest_first(
    send_email: TaskFunction[..., Any], place: str
) -> None:
    send_email.options(priority=5, queue="bulk").submit_sync(to="a")
    send_email.submit_sync(to="b")
    state = "pending" if place == "database" else "completed"
    assert failure(assert_submitted, send_email, kwargs={"to": "c", "price": 1}, queue="mail") == text(
        f"""
        send_email was not submitted with kwargs={{'to': 'c', 'price': 1}}, queue='mail'.
        Submitted as send_email (2), the nearest first:
          kwargs={{'to': 'b'}}, queue='mail', state='{state}'
            kwargs['to'] is 'b', expected 'c'
            kwargs['price'] was not given, expected 1
          kwargs={{'to': 'a'}}, queue='bulk', priority=5, state='{state}'
            kwargs['to'] is 'a', expected 'c'
            kwargs['price'] was not given, expected 1
            queue is 'bulk', expected 'mail'
        """
    )


def test_failure_about_times_names_both_moments(send_email: TaskFunction[..., Any]) -> None:
    send_email.options(scheduled_at=NOON).submit_sync(to="a")
    said = failure(assert_submitted, send_email, scheduled_after=NOON + timedelta(days=1))
    assert "scheduled_at is 2030-01-01 12:00:00+00:00, expected not before 2030-01-02 12:00:00+00:00" in said
    assert "scheduled_at=2030-01-01 12:00:00+00:00, queue='mail'" in said


def test_failure_about_the_count_says_both_counts(send_email: TaskFunction[..., Any]) -> None:
    tasklib.sync.submit_many(send_email, [{"to": "a"}] * 7)
    said = failure(assert_submitted, send_email, count=2)
    assert said.startswith("send_email was submitted 7 times, expected twice.\nSubmitted as send_email (7)")
    assert said.endswith("  ... and 2 more")
    said = failure(assert_submitted, send_email, count=1, kwargs={"to": "b"})
    assert said.startswith("send_email was not submitted with kwargs={'to': 'b'}, expected once.")


def test_failure_without_any_such_task_names_the_others(send_email: TaskFunction[..., Any]) -> None:
    said = failure(assert_submitted, send_email)
    assert said == "send_email was not submitted.\nNo task was submitted at all."
    tasklib.sync.submit_many("send_emial", [{}] * 2, registered_elsewhere=True)
    assert failure(assert_submitted, send_email) == text(
        """
        send_email was not submitted.
        Submitted under other names: send_emial (2). Did you mean 'send_emial'?
        """
    )


def test_failure_of_the_opposite_shows_what_should_not_be_there(send_email: TaskFunction[..., Any], place: str) -> None:
    send_email.submit_sync(to="a")
    state = "pending" if place == "database" else "completed"
    assert failure(assert_not_submitted, send_email, kwargs={"to": "a"}) == text(
        f"""
        send_email was submitted once with kwargs={{'to': 'a'}}:
          kwargs={{'to': 'a'}}, queue='mail', state='{state}'
        """
    )


def test_long_values_are_cut(send_email: TaskFunction[..., Any]) -> None:
    send_email.submit_sync(to="x" * 100_000)
    said = failure(assert_submitted, send_email, kwargs={"to": "y" * 100_000})
    assert len(said) < 2000
    assert "characters)" in said


def test_mistaken_call_is_told_what_to_write(send_email: TaskFunction[..., Any]) -> None:
    with pytest.raises(InvalidOption, match=r"arguments go in kwargs=\{'to': \.\.\.\}"):
        assert_submitted(send_email, to="a")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="naive datetime"):
        assert_submitted(send_email, scheduled_after=datetime(2030, 1, 1))
    with pytest.raises(InvalidOption, match="one of high, medium, low"):
        assert_submitted(send_email, priority="urgent")
    with pytest.raises(TaskNotFound, match="Put @task above it"):
        assert_submitted(text)
