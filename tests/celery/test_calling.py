"""Calling tasks as Celery's users do: arguments, options, results, states."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasklib
from tasklib.celery import Celery, signature, states, uuid
from tasklib.celery.exceptions import (
    MaxRetriesExceededError,
    NotOnTaskLib,
    OperationalError,
    Reject,
    TaskRevokedError,
    TimeoutError,
)
from tasklib.celery.result import AsyncResult
from tasklib.client.default import default_client
from tasklib.errors import DatabaseUnavailable
from tasklib.testing import drain_sync


def test_positional_arguments_are_stored_by_name_and_the_result_comes_back(proj: Any) -> None:
    result = proj.add.delay(4, y=4)
    task = tasklib.sync.get_task(result.id)
    assert task is not None
    assert (task.name, task.kwargs, task.queue) == ("tests.celery.conftest.add", {"x": 4, "y": 4}, "default")
    assert (result.state, result.ready(), result.result) == ("PENDING", False, None)
    drain_sync()
    assert (result.get(timeout=120), result.state, result.successful()) == (8, "SUCCESS", True)


def test_arguments_that_do_not_fit_are_refused_where_the_task_is_called(proj: Any) -> None:
    with pytest.raises(TypeError, match=r"conftest.add: missing a required argument: 'y'"):
        proj.add.delay(4)


def test_functions_of_any_number_of_arguments_get_them_in_order(app: Celery) -> None:
    @app.task
    def join(first: Any, /, *rest: Any, end: str = ".") -> str:
        return "".join([first, *rest, end])

    result = join.delay("a", "b", "c", end="!")
    drain_sync()
    assert result.get(timeout=120) == "abc!"


def test_times_decimals_uuids_and_bytes_arrive_as_they_were_and_tuples_as_lists(app: Celery) -> None:
    @app.task
    def same(value: Any) -> Any:
        return value

    given = [datetime(2026, 1, 2, 3, tzinfo=UTC), date(2026, 1, 2), Decimal("1.10"), UUID(int=7), b"ok", b"\xff"]
    result = same.delay((given, {1: "one"}))
    drain_sync()
    assert result.get(timeout=120) == [given, {"1": "one"}]


def test_an_object_is_refused_because_nothing_is_pickled(proj: Any) -> None:
    with pytest.raises(TypeError, match="Object of type object is not JSON serializable"):
        proj.add.delay(object(), 1)


def test_the_options_of_apply_async_become_those_of_the_row(proj: Any, db: psycopg.Connection) -> None:
    eta = datetime(2031, 1, 2, 3, 4)
    proj.add.apply_async((1, 2), eta=eta, queue="lopri", priority=7, time_limit=30.5, retry=True)
    row = db.execute("SELECT queue, priority, timeout_seconds, scheduled_at, max_retries FROM tasks").fetchone()
    assert row == ("lopri", 7, 31, eta.replace(tzinfo=UTC), 3)


def test_a_countdown_delays_the_task(proj: Any) -> None:
    result = proj.add.apply_async((1, 2), countdown=3600)
    assert drain_sync().counts == {}
    drain_sync(with_delayed=True)
    assert result.get(timeout=120) == 3


def test_a_task_that_has_expired_is_revoked_without_being_called(proj: Any) -> None:
    result = proj.fail.apply_async(expires=datetime.now(UTC) - timedelta(seconds=1))
    in_time = proj.add.apply_async((1, 2), expires=3600)
    drain_sync()
    assert (result.state, in_time.get(timeout=120)) == (states.REVOKED, 3)
    with pytest.raises(TaskRevokedError, match="expired"):
        result.get(timeout=120)


@pytest.mark.parametrize("option", ["exchange", "routing_key", "soft_time_limit", "reply_to", "shadow"])
def test_an_option_that_can_not_be_followed_is_refused_by_name(proj: Any, option: str) -> None:
    with pytest.raises(NotOnTaskLib, match=option):
        proj.add.apply_async((1, 2), **{option: "x"})


def test_a_misspelt_option_is_named(proj: Any) -> None:
    with pytest.raises(TypeError, match=r"no option 'countdwon'. Did you mean 'countdown'\?"):
        proj.add.apply_async((1, 2), countdwon=5)


def test_a_failure_raises_the_exception_of_the_task_and_is_not_retried(proj: Any) -> None:
    result = proj.fail.delay()
    assert drain_sync(until_done=True).attempts == 1
    with pytest.raises(ValueError, match="no such order"):
        result.get(timeout=120)
    assert (result.state, result.failed()) == ("FAILURE", True)
    assert isinstance(result.get(timeout=120, propagate=False), ValueError)
    assert 'raise ValueError("no such order")' in result.traceback


def test_an_exception_comes_back_with_its_arguments(app: Celery) -> None:
    @app.task
    def fail(*args: Any) -> None:
        raise LookupError(*args)

    @app.task
    def miss(key: str) -> None:
        raise KeyError(key)

    failed = [fail.delay("no such order", 7), fail.delay("(not a tuple)"), fail.delay(), miss.delay("order")]
    drain_sync()
    errors = [result.get(timeout=120, propagate=False) for result in failed]
    assert [error.args for error in errors] == [("no such order", 7), ("(not a tuple)",), (), ("order",)]
    assert [type(error) for error in errors] == [LookupError, LookupError, LookupError, KeyError]


def test_a_rejected_task_raises_celerys_reject(app: Celery) -> None:
    @app.task
    def refuse() -> None:
        raise Reject("no such order", requeue=False)

    result = refuse.delay()
    drain_sync()
    with pytest.raises(Reject, match="no such order"):
        result.get(timeout=120)
    assert result.state == "FAILURE"


def test_waiting_too_long_raises_celerys_timeout_error(proj: Any) -> None:
    result = proj.add.delay(1, 2)
    with pytest.raises(TimeoutError):
        result.get(timeout=0.01)


def test_an_id_that_was_never_submitted_is_pending(app: Celery) -> None:
    assert app.AsyncResult("not-even-a-uuid").state == "PENDING"
    assert AsyncResult(uuid()).state == "PENDING"


def test_a_chosen_id_is_kept_and_submits_once(proj: Any) -> None:
    task_id = uuid()
    results = [proj.add.apply_async((1, 2), task_id=task_id) for _ in range(2)]
    assert [result.id for result in results] == [task_id, task_id]
    assert drain_sync().attempts == 1
    with pytest.raises(NotOnTaskLib, match="idempotency_key"):
        proj.add.apply_async((1, 2), task_id="order-7")


def test_revoking_cancels_the_task(proj: Any) -> None:
    result = proj.add.delay(1, 2)
    result.revoke()
    other = proj.add.delay(1, 2)
    proj.app.control.revoke([other.id])
    assert (result.state, other.state) == ("REVOKED", "REVOKED")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=120)


def test_a_task_is_called_by_name_with_arguments_in_order_even_if_only_another_program_has_it(proj: Any) -> None:
    known = proj.app.send_task("tests.celery.conftest.add", (2,), {"y": 3})
    unknown = proj.app.send_task("elsewhere.work", [1, 2], {"z": 3}, queue="other")
    row = tasklib.sync.get_task(unknown.id)
    assert row is not None
    assert row.kwargs == {"_args": [1, 2], "z": 3}
    drain_sync()
    assert known.get(timeout=120) == 5


def test_a_submission_belongs_to_the_transaction_of_the_given_connection(proj: Any, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        result = proj.add.apply_async((1, 2), connection=connection)
        connection.rollback()
    assert not result.exists()


# ---- while it runs ----


def test_a_bound_task_retries_itself_and_counts(app: Celery) -> None:
    @app.task(bind=True, max_retries=5, default_retry_delay=60)
    def fetch(self: Any, url: str) -> int:
        if self.request.retries < 2:
            raise self.retry(exc=ConnectionError("down"), countdown=30)
        return int(self.request.retries)

    result = fetch.delay("/")
    drain_sync()
    assert result.state == "RETRY"
    assert drain_sync(until_done=True).counts == {"completed": 1}
    assert result.get(timeout=120) == 2


def test_after_the_last_retry_the_task_fails_with_the_exception_that_was_given(app: Celery) -> None:
    @app.task(bind=True, max_retries=1)
    def fetch(self: Any) -> None:
        raise self.retry(exc=ConnectionError("down"))

    @app.task(bind=True)
    def give_up(self: Any) -> None:
        raise self.retry(max_retries=0)

    first, second = fetch.delay(), give_up.delay()
    drain_sync(until_done=True)
    with pytest.raises(ConnectionError, match="down"):
        first.get(timeout=120)
    with pytest.raises(MaxRetriesExceededError):
        second.get(timeout=120)


def test_autoretry_retries_the_named_exceptions_only(app: Celery) -> None:
    calls: list[str] = []

    @app.task(autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 2}, retry_backoff=True)
    def fetch(name: str) -> None:
        calls.append(name)
        raise ConnectionError if name == "net" else KeyError(name)

    fetch.delay("net")
    fetch.delay("other")
    drain_sync(until_done=True)
    assert sorted(calls) == ["net", "net", "net", "other"]


def test_the_request_knows_the_task(app: Celery) -> None:
    @app.task(bind=True)
    def look(self: Any, x: int) -> list[Any]:
        request, info = self.request, self.request.delivery_info
        return [request.id, request.args, request.kwargs, request.headers, info["routing_key"], info["priority"]]

    result = look.apply_async((7,), headers={"tenant": "a"}, queue="q", priority=3)
    drain_sync()
    assert result.get(timeout=120) == [result.id, [], {"x": 7}, {"tenant": "a"}, "q", 3]


def test_on_message_is_told_the_states_that_a_task_reports_and_its_end(app: Celery) -> None:
    seen, told = threading.Event(), []

    @app.task(bind=True)
    def work(self: Any) -> int:
        self.update_state(state="PROGRESS", meta={"done": 1})
        seen.wait(120)
        return 42

    def on_message(body: Any) -> None:
        told.append((body["status"], body["result"]))
        seen.set()

    result = work.delay()
    worker = threading.Thread(target=drain_sync)
    worker.start()
    assert result.get(on_message=on_message, timeout=120, interval=0.02) == 42
    worker.join()
    assert told == [("PROGRESS", {"done": 1}), ("SUCCESS", 42)]
    told.clear()

    @app.task
    def fail() -> None:
        raise ValueError("no such order")

    failed = fail.delay()
    drain_sync()
    error = failed.get(on_message=on_message, propagate=False, timeout=120)
    assert [(status, str(found)) for status, found in told] == [("FAILURE", "no such order")]
    assert str(error) == "no such order"


def test_a_rate_limit_is_a_limit_of_the_function(app: Celery) -> None:
    @app.task(rate_limit="10/m")
    def scrape(url: str) -> None: ...

    @app.task
    def fetch(url: str) -> None: ...

    app.conf.task_annotations = {fetch.name: {"rate_limit": 5}}
    app.finalize()
    client = default_client()
    client.sync_limits()
    found = {info.name: (info.rate, info.per) for info in client.limits()}
    assert found == {f"name:{scrape.name}": (10, 60), f"name:{fetch.name}": (5, 1)}
    app.control.rate_limit(scrape.name, "3/h")
    app.control.rate_limit(fetch.name, None)
    found = {info.name: (info.rate, info.per) for info in client.limits() if info.rate}
    assert found == {f"name:{scrape.name}": (3, 3600)}
    with pytest.raises(TypeError, match="should be like 10"):
        app.task(rate_limit="often")(lambda: None)


def test_a_state_of_ones_own_is_seen_while_the_task_runs(app: Celery) -> None:
    seen: list[Any] = []

    @app.task(bind=True)
    def work(self: Any) -> None:
        self.update_state(state="PROGRESS", meta={"current": 1, "total": 3})
        seen.append(app.AsyncResult(self.request.id))

    result = work.delay()
    drain_sync()
    assert (seen[0].id, result.state) == (result.id, "SUCCESS")
    row = tasklib.sync.get_task(result.id)
    assert row is not None
    assert row.progress == {"state": "PROGRESS", "meta": {"current": 1, "total": 3}}


def test_waiting_in_a_task_is_refused_unless_it_is_allowed(app: Celery) -> None:
    @app.task
    def wait(task_id: str) -> Any:
        return app.AsyncResult(task_id).get()

    @app.task
    def wait_all_the_same(task_id: str) -> Any:
        return app.AsyncResult(task_id).get(disable_sync_subtasks=False)

    @app.task
    def seven() -> int:
        return 7

    done = seven.delay()
    refused = wait.delay(done.id)
    allowed = wait_all_the_same.delay(done.id)
    drain_sync()
    with pytest.raises(RuntimeError, match="Never call result"):
        refused.get(timeout=120)
    assert allowed.get(timeout=120) == 7


def test_handlers_of_a_base_class_are_called(app: Celery) -> None:
    from tasklib.celery import Task

    heard: list[Any] = []

    class Reporting(Task):
        abstract = True

        def on_success(self, retval: Any, task_id: Any, args: Any, kwargs: Any) -> None:
            heard.append(("success", retval, kwargs))

        def on_failure(self, exc: Any, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
            heard.append(("failure", type(exc)))

        def after_return(self, status: Any, *args: Any) -> None:
            heard.append(status)

    @app.task(base=Reporting)
    def halve(x: int) -> float:
        return 1 / x

    halve.delay(2)
    halve.delay(0)
    drain_sync()
    assert heard == [("success", 0.5, {"x": 2}), "SUCCESS", ("failure", ZeroDivisionError), "FAILURE"]


def test_a_task_written_as_a_class_runs(app: Celery) -> None:
    from tasklib.celery import Task

    class Double(Task):
        name = "double"

        def run(self, x: int) -> int:
            return 2 * x

    double = app.register_task(Double())
    result = double.delay(21)
    drain_sync()
    assert result.get(timeout=120) == 42


def test_signals_around_tasks_and_submissions_are_sent(proj: Any) -> None:
    from tasklib.celery import signals

    heard: list[str] = []
    names = ["before_task_publish", "after_task_publish", "task_prerun", "task_success", "task_postrun", "task_failure"]
    receivers = {}
    for name in names:
        receivers[name] = lambda signal, **_: heard.append(signal.name)
        getattr(signals, name).connect(receivers[name])
    try:
        proj.add.delay(1, 2)
        drain_sync()
        proj.fail.delay()
        drain_sync()
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)
    publish = ["before_task_publish", "after_task_publish", "task_prerun"]
    assert heard == [*publish, "task_success", "task_postrun", *publish, "task_failure", "task_postrun"]


def test_a_task_that_replaces_itself_gives_the_result_of_what_takes_its_place(proj: Any) -> None:
    calls: list[int] = []

    @proj.app.task(bind=True)
    def add_later(self: Any, x: int) -> None:
        calls.append(x)
        raise self.replace(proj.add.s(x, 1) | proj.mul.s(10))

    result = add_later.delay(2)
    drain_sync(until_done=True)
    assert (result.get(timeout=120), calls) == (30, [2])


def test_a_task_that_runs_out_of_time_fails_without_a_retry(app: Celery) -> None:
    import asyncio

    @app.task(time_limit=1, max_retries=3)
    async def sleep_long() -> None:
        await asyncio.sleep(600)

    result = sleep_long.delay()
    assert drain_sync(until_done=True).attempts == 1
    assert result.state == "FAILURE"


def test_a_database_that_can_not_be_reached_is_the_operational_error_of_the_guide(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    def refused(*_: Any, **__: Any) -> None:
        raise DatabaseUnavailable("no server")

    monkeypatch.setattr(app, "submit", refused)
    with pytest.raises(add.OperationalError):
        add.delay(2, 2)
    with pytest.raises(OperationalError):
        add.delay(2, 2)


def test_calling_a_task_runs_it_here(proj: Any) -> None:
    assert proj.add(2, 2) == 4
    assert signature("tests.celery.conftest.add", args=(2, 2), app=proj.app)() == 4
    assert proj.add.apply((2, 2)).get() == 4


def test_eager_tasks_need_no_database(proj: Any) -> None:
    tasklib.close()
    proj.app.conf.task_always_eager = True
    assert proj.add.delay(2, 2).get() == 4
    assert (proj.add.s(2, 2) | proj.mul.s(3)).delay().get() == 12
    from tasklib.celery import chord, group

    assert chord([proj.add.s(i, i) for i in range(3)])(proj.xsum.s()).get() == 6
    assert group(proj.add.s(i, i) for i in range(3))().get() == [0, 2, 4]
    assert isinstance(proj.fail.delay().result, ValueError)
    proj.app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="no such order"):
        proj.fail.delay()
