"""The app: settings, discovery and schedules."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib.celery import Celery, current_app, shared_task
from tasklib.celery.exceptions import ImproperlyConfigured, NotOnTaskLib, NotRegistered
from tasklib.celery.schedules import ParseException, crontab, schedule
from tasklib.client.default import default_client
from tasklib.tasks import registry
from tasklib.testing import drain_sync

# ---- settings ----


def test_settings_are_attributes_and_items_and_read_from_objects(app: Celery) -> None:
    app.conf.update(task_default_queue="jobs", timezone="Europe/Berlin")
    assert (app.conf.task_default_queue, app.conf["timezone"], app.conf.task_serializer) == (
        "jobs", "Europe/Berlin", "json",
    )  # fmt: skip

    class Settings:
        CELERY_TASK_ALWAYS_EAGER = True
        CELERY_BROKER_URL = "redis://localhost"
        DEBUG = True

    app.config_from_object(Settings, namespace="CELERY")
    assert (app.conf.task_always_eager, app.conf.broker_url) == (True, "redis://localhost")
    app.config_from_object({"CELERYBEAT_SCHEDULE": {}, "CELERY_ALWAYS_EAGER": False, "other": 1})
    assert app.conf.task_always_eager is False


@pytest.mark.parametrize("name", ["task_serializer", "result_serializer"])
def test_pickle_is_refused(app: Celery, name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="stores JSON only"):
        app.conf[name] = "pickle"


def test_a_setting_that_means_nothing_is_accepted_and_one_that_is_missed_warns(app: Celery) -> None:
    app.conf.broker_pool_limit = 5
    with pytest.warns(UserWarning, match="TASKLIB_RETENTION"):
        app.conf.result_expires = 3600
    with pytest.warns(UserWarning, match=r"Did you mean 'task_routes'\?"):
        app.conf.task_rotes = {}


def test_a_broker_url_of_postgresql_is_the_database(proj: Any, database_url: str) -> None:
    tasklib.close()
    Celery("other", broker=database_url).close()
    try:
        result = proj.add.delay(1, 2)
        assert result.state == "PENDING"
    finally:
        from tasklib.tasks.default_client import provide_default_client

        provide_default_client(None)


def test_routes_choose_queues(proj: Any, db: psycopg.Connection) -> None:
    proj.app.conf.task_routes = ({"*.add": "sums"}, [("*.mul", {"queue": "products", "priority": 3})])
    proj.add.delay(1, 1)
    proj.mul.delay(1, 1)
    proj.add.apply_async((1, 1), queue="own")
    rows = db.execute("SELECT queue, priority FROM tasks ORDER BY queue").fetchall()
    assert rows == [("own", 0), ("products", 3), ("sums", 0)]
    proj.app.conf.task_routes = {"*": {"exchange": "media"}}
    with pytest.raises(NotOnTaskLib, match="exchange"):
        proj.add.delay(1, 1)


def test_shared_tasks_belong_to_the_current_app(app: Celery) -> None:
    @shared_task(name="shared")
    def double(x: int) -> int:
        return 2 * x

    assert current_app.tasks["shared"] is double
    result = double.delay(4)
    drain_sync()
    assert result.get(timeout=120) == 8
    with pytest.raises(NotRegistered):
        app.tasks["none"]


# ---- schedules ----


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute=0, hour="*/3"), "0 0,3,6,9,12,15,18,21 * * *"),
        (crontab(minute="*/20", day_of_week="sunday"), "0,20,40 * * * 0"),
        (crontab(minute=0, hour="8-10,22-1", month_of_year="jan"), "0 0,1,8,9,10,22,23 * 1 *"),
        (crontab(0, 0, day_of_month="1-7,15-21"), "0 0 1,2,3,4,5,6,7,15,16,17,18,19,20,21 * *"),
        (crontab(0, 0, day_of_week={1, 7}), "0 0 * * 0,1"),
    ],
)
def test_crontabs_are_cron_expressions(given: crontab, expression: str) -> None:
    assert (given.expression, given.other_days) == (expression, None)


def test_a_day_of_the_week_and_of_the_month_have_to_match_both(app: Celery, proj: Any) -> None:
    both = crontab(0, 0, day_of_week="fri", day_of_month=13)
    assert (both.expression, both.other_days) == ("0 0 13 * *", "* * * * 0,1,2,3,4,6")
    app.conf.beat_schedule = {"unlucky": {"task": "tests.celery.conftest.add", "schedule": both, "args": (1, 2)}}
    app.finalize()
    client = default_client()
    client.sync_schedules()
    slots = client.preview_schedule("unlucky", count=4).slots
    assert all((slot.utc.day, slot.utc.weekday()) == (13, 4) for slot in slots)


@pytest.mark.parametrize("wrong", [{"minute": 60}, {"hour": "x"}, {"day_of_month": 0}, {"minute": "*/0"}])
def test_a_crontab_that_can_not_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParseException):
        crontab(**wrong)


def test_beat_entries_become_schedules_of_their_names(app: Celery, proj: Any) -> None:
    app.conf.timezone = "Europe/Berlin"
    app.conf.beat_schedule = {
        "nightly": {
            "task": "tests.celery.conftest.add",
            "schedule": crontab(hour=3, minute=30),
            "args": (1,),
            "kwargs": {"y": 2},
            "options": {"queue": "night", "expires": 60},
        },
        "often": {"task": "tests.celery.conftest.xsum", "schedule": timedelta(seconds=30), "args": ([1],)},
    }

    @app.on_after_configure.connect
    def more(sender: Any, **_: Any) -> None:
        sender.add_periodic_task(10.0, proj.mul.s(2, 3), name="multiply")
        sender.add_periodic_task(schedule(20), proj.mul.s(2, 4))

    app.finalize()
    app.finalize()
    found = {s.name: s for function in registry.functions.values() for s in function.schedules}
    assert set(found) == {"nightly", "often", "multiply", "tests.celery.conftest.mul(2, 4)"}
    assert (found["nightly"].cron, found["nightly"].timezone) == (("30 3 * * *",), "Europe/Berlin")
    assert found["nightly"].args == {"x": 1, "y": 2, "_celery": {"expires_after": 60.0}}
    assert (found["nightly"].queue, found["often"].every) == ("night", timedelta(seconds=30))


def test_a_scheduled_task_runs_with_its_arguments(app: Celery, proj: Any) -> None:
    app.conf.beat_schedule = {"sum": {"task": "tests.celery.conftest.add", "schedule": 3600, "args": (20, 22)}}
    app.finalize()
    client = default_client()
    client.sync_schedules()
    task_id = client.run_schedule("sum")
    drain_sync()
    assert app.AsyncResult(task_id).get(timeout=120) == 42


def test_a_schedule_of_an_unknown_task_is_named(app: Celery) -> None:
    app.conf.beat_schedule = {"nightly": {"task": "nowhere.work", "schedule": 5.0}}
    with pytest.raises(NotRegistered, match=r"beat_schedule\['nightly'\] names the task 'nowhere.work'"):
        app.finalize()


def test_discovery_skips_packages_without_tasks_and_names_a_package_that_is_missing(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("found_app", "plain_app"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("class Config: ...\n")
    (tmp_path / "found_app" / "jobs.py").write_text(
        "from tasklib.celery import shared_task\n\n@shared_task\ndef ring():\n    return 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    app.autodiscover_tasks(["found_app.Config", "plain_app"], "jobs", force=True)
    assert "found_app.jobs.ring" in app.tasks
    with pytest.raises(ModuleNotFoundError, match="no_such_app"):
        app.autodiscover_tasks(["no_such_app.inner"], "jobs", force=True)
