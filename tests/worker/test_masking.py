"""Hidden and sealed arguments in what a worker stores, traces, logs and tells: each quotes them, none shows them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import structlog
from opentelemetry import trace

import tasklib
from tasklib import Config, Hidden, Sealed, TaskFailed, current_task, task
from tasklib.observe.logs import LogLines, log_to
from tasklib.observe.task_logging import configure_worker_logging
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.masking import MASK
from tests.tracing.conftest import Exported, spans  # noqa: F401  # a fixture
from tests.worker.watching import burst, working

SECRET, NUMBER = 'DE02 "very"\nsecret', 47110815
AnyTask = TaskFunction[..., Any, Any, ...]


@pytest.fixture
def sealed(config: Config) -> Config:
    sealed = config.with_changes(keys=(("a", bytes(32)),), max_retries=0)
    tasklib.init(sealed)
    return sealed


@pytest.fixture(params=["hidden", "fields", "sealed"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pay(kind: str) -> AnyTask:
    def fail(iban: str, pin: int) -> None:
        structlog.get_logger().warning("structured", iban=iban, both={"pin": pin, "all": [iban]}, row=Row(iban))
        try:
            raise LookupError(iban)
        except LookupError:
            logging.getLogger("shop").exception("no %s with %s", iban, pin)
        raise ValueError(f"no account {iban} with {pin} or {[iban]!r}")

    if kind == "hidden":

        @task(name="masked.pay")
        async def pay(iban: Hidden[str], pin: Hidden[int]) -> None:
            fail(iban, pin)

    elif kind == "fields":

        @task(name="masked.pay")
        async def pay(iban: Sealed[str], pin: Sealed[int]) -> None:
            fail(iban, pin)

    else:

        @task(name="masked.pay", sealed=True)
        async def pay(iban: str, pin: int) -> None:
            fail(iban, pin)

    return pay


class Row:
    """An object that a program logs."""

    def __init__(self, iban: str) -> None:
        self.iban = iban

    def __repr__(self) -> str:
        return f"Row({self.iban!r})"


@pytest.fixture
def own_logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def shown_in(text: str) -> list[str]:
    forms = (SECRET, json.dumps(SECRET)[1:-1], repr(SECRET)[1:-1], "very", str(NUMBER))
    return [form for form in forms if form in text]


async def test_what_a_failure_quotes_is_masked_in_events_and_in_spans(
    pay: AnyTask,
    kind: str,
    sealed: Config,
    spans: Exported,  # noqa: F811
    db: psycopg.Connection,
) -> None:
    log = io.StringIO()
    async with working(sealed) as watched:
        watched.worker.events.subscribe(LogLines(log_to(log, as_json=True)))
        id_ = await pay.submit(SECRET, NUMBER)
        ended = await watched.ended(id_)
    span = spans.one("process masked.pay")
    told = [str(ended), log.getvalue(), span.to_json()]
    assert [shown_in(text) for text in told] == [[], [], []]
    assert ended.error is not None
    assert "ValueError: " in ended.error
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ValueError"
    stored = db.execute("SELECT error FROM tasks").fetchall()[0][0]
    assert shown_in(stored) == []
    with pytest.raises(TaskFailed) as failed:
        await id_.result()
    if kind == "hidden":
        assert f"ValueError: no account {MASK} with {MASK} or ['{MASK}']" in str(failed.value)
    else:  # with the key
        assert SECRET in str(failed.value)


@pytest.mark.parametrize("as_json", [True, False, None])
@pytest.mark.usefixtures("own_logs")
async def test_the_programs_own_lines_mask_the_arguments_of_the_task(
    pay: AnyTask, sealed: Config, as_json: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger().handlers.clear()  # those of pytest
    configure_worker_logging(as_json=as_json)
    await pay.submit(SECRET, NUMBER)
    await burst(sealed)
    said = capsys.readouterr().err
    assert shown_in(said) == []
    assert "structured" in said
    assert f"no {MASK} with {MASK}" in said
    assert f"LookupError: {MASK}" in said


@pytest.mark.usefixtures("own_logs")
async def test_records_for_handlers_of_the_program_are_masked(pay: AnyTask, sealed: Config) -> None:
    stream = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(stream))
    configure_worker_logging(as_json=True)
    await pay.submit(SECRET, NUMBER)
    await burst(sealed)
    assert f"no {MASK} with {MASK}" in stream.getvalue()
    assert f"LookupError: {MASK}" in stream.getvalue()
    assert shown_in(stream.getvalue()) == []


async def test_lines_of_a_task_without_secrets_stay_as_they_are(config: Config, db: psycopg.Connection) -> None:
    tasklib.init(config)

    @task(name="masked.plain", max_retries=0)
    async def plain(iban: str) -> None:
        assert current_task()._arguments == '{"iban": "DE02"}'
        raise ValueError(iban)

    await plain.submit("DE02")
    await burst(config)
    assert db.execute("SELECT error LIKE '%ValueError: DE02' FROM tasks").fetchall() == [(True,)]
