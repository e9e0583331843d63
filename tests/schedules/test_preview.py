"""What people are shown of a schedule."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest

from tasklib.schedules import Schedule, describe, preview, slots

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)
NEWEST = "of missed slots the newest is run, if it is not older than 1 day"


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        (Schedule("0 3 * * *"), f"At 03:00 every day, UTC; {NEWEST}."),
        (
            Schedule(["0 9 * * MON-FRI", "@weekly"], timezone="Europe/Berlin", catch_up="none"),
            "At 09:00 on Monday through Friday or at 00:00 on Sunday, Europe/Berlin; missed slots are not run.",
        ),
        (Schedule(every=timedelta(hours=1), catch_up="none"), "Every hour; missed slots are not run."),
        (
            Schedule("0 6 13 * FRI", catch_up="none"),
            "At 06:00 on the 13th day of month and on Friday (a day needs to match only one of the two), UTC; "
            "missed slots are not run.",
        ),
        (
            Schedule(every=timedelta(minutes=90), anchor=NOON, overlap="skip", jitter=30, catch_up="none"),
            "Every 90 minutes, counted from 2026-03-27 12:00:00 UTC; missed slots are not run; "
            "a slot is skipped while an earlier run is not finished; runs start up to 30 seconds later.",
        ),
        (
            Schedule(
                "@hourly",
                exclude=["* * 25 12 *", date(2026, 12, 24)],
                starts_at=NOON,
                ends_at=NOON,
                catch_up="all",
                catch_up_window=timedelta(hours=36),
                overlap="cancel_running",
                pause_after=3,
            ),
            "At the start of every hour, UTC; not every minute on December 25, on 2026-12-24; "
            "from 2026-03-27 12:00:00 UTC on; until 2026-03-27 12:00:00 UTC; "
            "missed slots are all run, up to 100 and not older than 36 hours; "
            "an earlier run that is not finished is cancelled; paused after 3 dead letters in a row.",
        ),
    ],
)
def test_a_schedule_is_one_line_of_plain_english(schedule: Schedule, line: str) -> None:
    assert describe(schedule) == line


def test_the_next_twenty_times_are_shown_in_the_zone_and_in_utc() -> None:
    shown = preview(Schedule("30 2 * * *", timezone="Europe/Berlin"), NOON)
    assert len(shown) == 20
    assert [f"{each.local:%d %H:%M %Z} {each.utc:%H:%M}" for each in shown[:3]] == [
        "28 02:30 CET 01:30",
        "29 03:00 CEST 01:00",
        "30 02:30 CEST 00:30",
    ]
    assert [each.note for each in shown[:3]] == [None, "moved to the end of the hour that the clocks skip", None]


def test_a_time_that_comes_twice_says_which_one_it_is() -> None:
    october = datetime(2026, 10, 24, 23, tzinfo=UTC)
    fixed = preview(Schedule("30 2 * * *", timezone="Europe/Berlin"), october, 2)
    assert [each.note for each in fixed] == ["the clocks show this time twice; this is the first", None]
    often = preview(Schedule("*/30 * * * *", timezone="Europe/Berlin"), october, 6)
    assert [(each.note or "").rpartition(" ")[2] for each in often] == ["", "first", "first", "second", "second", ""]


def test_a_schedule_that_ends_shows_what_is_left() -> None:
    assert len(preview(Schedule("@daily", ends_at=NOON + timedelta(days=3)), NOON)) == 3


def test_a_preview_ends_after_so_many_exclusions_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(sys.modules[slots.__module__]), "MOST_EXCLUDED", 50)  # the package has a function `slots`
    minutely_at_noon_and_midnight = Schedule("* * * * *", exclude=["1-59 * * * *", "* 1-11,13-23 * * *"])
    assert preview(minutely_at_noon_and_midnight, NOON) == []  # 719 in a row
    every_twenty_minutes = Schedule("* * * * *", exclude=["1-19,21-39,41-59 * * * *"])
    assert len(preview(every_twenty_minutes, NOON)) == 2  # 19 before each
    assert len(list(islice(slots(every_twenty_minutes, NOON), 20))) == 20, "the leader counts those in a row"
