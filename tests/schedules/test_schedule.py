"""The value `Schedule`: what it refuses, and that it survives being stored."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklib.errors import InvalidOption
from tasklib.schedules import Schedule

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule("0 3 * * *"),
        Schedule(["0 9 * * MON-FRI", "0 11 * * SAT,SUN"], timezone="Europe/Berlin"),
        Schedule(every=timedelta(seconds=90), anchor=NOON),
        Schedule(every=timedelta(milliseconds=1500)),
        Schedule(
            "@daily",
            name="nightly",
            exclude=["* * 25 12 *", date(2026, 12, 24), "2027-01-01"],
            starts_at=NOON,
            ends_at=datetime(2027, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")),
            catch_up="all",
            catch_up_limit=7,
            catch_up_window=timedelta(days=2),
            overlap="wait_one",
            jitter=30,
            pause_after=3,
            args={"region": "eu", "deep": {"list": [1, 2.5, None]}},
            queue="reports",
            priority="low",
            max_retries=2,
            timeout_seconds=60,
            tags={"team": "billing"},
            required_capabilities=["gpu"],
        ),
    ],
)
def test_a_stored_schedule_is_the_same_schedule(schedule: Schedule) -> None:
    stored = json.loads(json.dumps(schedule.to_json()))
    assert Schedule.from_json(stored) == schedule
    assert Schedule.from_json(stored).to_json() == stored


def test_defaults_are_stored_so_that_later_defaults_change_nothing() -> None:
    assert Schedule("0 3 * * *").to_json() == {
        "cron": ["0 3 * * *"],
        "timezone": "UTC",
        "catch_up": "latest",
        "catch_up_limit": 100,
        "catch_up_window": 86400,
        "overlap": "allow",
        "jitter": 0,
    }


def test_a_cron_expression_alone_is_a_schedule() -> None:
    assert Schedule.of("0  3 * * *") == Schedule("0 3 * * *")
    assert Schedule.of(Schedule("@daily")) == Schedule("@daily")
    with pytest.raises(InvalidOption, match="a cron expression or a Schedule"):
        Schedule.of(5)  # type: ignore[arg-type]


def test_times_are_kept_as_instants() -> None:
    berlin = Schedule("@daily", starts_at=datetime(2026, 3, 29, 14, tzinfo=ZoneInfo("Europe/Berlin")))
    assert berlin == Schedule("@daily", starts_at=NOON)


def test_a_changed_copy_is_checked_like_a_new_one() -> None:
    schedule = Schedule("@daily", jitter=5)
    assert replace(schedule, jitter=timedelta(seconds=9)).max_jitter == timedelta(seconds=9)
    with pytest.raises(InvalidOption, match="timezone"):
        replace(schedule, timezone="Mars/Olympus")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs cron or every"),
        ({"cron": "@daily", "every": timedelta(hours=1)}, "needs cron or every, and not both"),
        ({"cron": []}, "1 to 10 expressions"),
        ({"cron": ["@daily"] * 11}, "1 to 10 expressions, not 11"),
        ({"cron": ["@daily", "61 * * * *"]}, "the minute '61'"),
        ({"cron": 5}, "must be a string"),
        ({"every": timedelta(0)}, "between one second and ten years"),
        ({"every": timedelta(days=-1)}, "between one second and ten years"),
        ({"every": 90}, "every must be a timedelta"),
        ({"cron": "@daily", "anchor": NOON}, "anchor goes with every"),
        ({"cron": "@daily", "timezone": "Europe/Berln"}, "Did you mean 'Europe/Berlin'"),
        ({"cron": "@daily", "timezone": "europe/berlin"}, "Did you mean 'Europe/Berlin'"),
        ({"cron": "@daily", "timezone": "../../etc/passwd"}, "is not in tzdata"),
        ({"cron": "@daily", "timezone": ZoneInfo("UTC")}, "the name of a zone"),
        ({"cron": "@daily", "starts_at": datetime(2026, 1, 1)}, "starts_at has no time zone"),
        ({"cron": "@daily", "starts_at": date(2026, 1, 1)}, "starts_at must be a datetime"),
        ({"cron": "@daily", "ends_at": datetime(5000, 1, 1, tzinfo=UTC)}, "the years 1970 to 2999"),
        ({"cron": "@daily", "starts_at": NOON, "ends_at": NOON - timedelta(1)}, "later than ends_at"),
        ({"cron": "@daily", "exclude": NOON}, r"write .date\(\)"),
        ({"cron": "@daily", "exclude": ["Christmas"]}, "1 fields"),
        ({"cron": "@daily", "exclude": [5]}, "must be a string"),
        ({"cron": "@daily", "exclude": [f"{n} 3 * * *" for n in range(51)]}, "at most 50 cron expressions, not 51"),
        ({"cron": "@daily", "catch_up": "everything"}, "catch_up must be 'latest', 'all' or 'none'"),
        ({"cron": "@daily", "catch_up_limit": 0}, "catch_up_limit must be a whole number from 1"),
        ({"cron": "@daily", "catch_up_limit": True}, "catch_up_limit must be a whole number"),
        ({"cron": "@daily", "catch_up_window": timedelta(0)}, "write catch_up='none'"),
        ({"cron": "@daily", "overlap": "queue"}, "overlap must be 'allow', 'skip', 'wait_one' or 'cancel_running'"),
        ({"cron": "@daily", "jitter": -1}, "jitter must be between 0"),
        ({"cron": "@daily", "jitter": float("nan")}, "jitter must be a timedelta"),
        ({"cron": "@daily", "jitter": "30"}, "jitter must be a timedelta"),
        ({"cron": "@daily", "pause_after": 0}, "pause_after must be a whole number from 1"),
        ({"cron": "@daily", "name": ""}, "name must be"),
        ({"cron": "@daily", "args": ["x"]}, "args must be a dict"),
        ({"cron": "@daily", "args": {1: "x"}}, "args must be a dict"),
        ({"cron": "@daily", "tags": "urgent"}, "tags can't be 'urgent'"),
        ({"cron": "@daily", "queue": 5}, "queue can't be 5. Write it as for a submission"),
        ({"cron": "@daily", "priority": True}, "priority can't be True"),
        ({"cron": "@daily", "required_capabilities": "gpu"}, "required_capabilities must be a list of strings"),
        ({"cron": "@daily", "required_capabilities": [1]}, "required_capabilities must be a list of strings"),
    ],
)
def test_what_can_not_be_meant_is_refused_where_it_is_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        Schedule(**options)


def test_a_stored_schedule_with_fields_of_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"has no moon_phase. If a newer TaskLib stored it, update this program"):
        Schedule.from_json({"cron": ["@daily"], "moon_phase": "full"})


def test_arguments_that_are_not_json_can_not_be_stored() -> None:
    for value in (object(), float("nan")):
        with pytest.raises(InvalidOption, match="args and tags of a schedule must be JSON"):
            Schedule("@daily", args={"x": value}).to_json()


def test_a_stored_schedule_that_was_damaged_is_refused() -> None:
    with pytest.raises(InvalidOption, match="starts_at must be a time such as"):
        Schedule.from_json({"cron": ["@daily"], "starts_at": "soon"})


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from([*Schedule.__dataclass_fields__]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()) | st.datetimes(),
    )
)
def test_any_value_of_any_field_is_either_taken_or_refused_with_words(stored: dict[str, Any]) -> None:
    try:
        schedule = Schedule.from_json({"cron": ["0 3 * * *"], **stored})
    except InvalidOption:
        return
    assert Schedule.from_json(schedule.to_json()) == schedule
