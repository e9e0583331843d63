"""Which slots a schedule has, and which of them are fired or skipped when the leader looks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklib.schedules import (
    Due,
    Schedule,
    Skipped,
    count_between,
    due,
    next_slot,
    run_at,
    slots,
    slots_between,
)

MIDNIGHT = datetime(2026, 11, 16, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def _at(hours: float) -> datetime:
    return MIDNIGHT + hours * HOUR


def _hours(schedule: Schedule, count: int, after: datetime = MIDNIGHT) -> list[float]:
    return [(slot - MIDNIGHT) / HOUR for slot in islice(slots(schedule, after), count)]


def test_slots_are_strictly_after_the_instant() -> None:
    assert _hours(Schedule("@hourly"), 2) == [1, 2]
    assert _hours(Schedule("@hourly"), 1, after=MIDNIGHT - timedelta(microseconds=1)) == [0]


def test_any_of_several_expressions_is_enough_and_a_common_slot_is_one() -> None:
    assert _hours(Schedule(["0 */2 * * *", "0 */3 * * *", "30 4 * * *"]), 6) == [2, 3, 4, 4.5, 6, 8]


def test_intervals_are_counted_from_the_anchor_and_never_shift() -> None:
    every = Schedule(every=timedelta(minutes=90), anchor=_at(0.25))
    assert _hours(every, 3) == [0.25, 1.75, 3.25]
    assert _hours(every, 2, after=_at(0.3)) == [1.75, 3.25]
    assert _hours(every, 1, after=_at(-100)) == [-98.75]  # an anchor is a phase, not a beginning
    assert next(slots(Schedule(every=timedelta(days=7)), MIDNIGHT)) == datetime(2026, 11, 19, tzinfo=UTC)


def test_an_interval_does_not_notice_that_clocks_change() -> None:
    every = Schedule(every=timedelta(hours=1), timezone="Europe/Berlin")
    found = list(slots_between(every, datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 25, 4, tzinfo=UTC)))
    assert {after - before for before, after in pairwise(found)} == {HOUR}


def test_no_slot_is_before_the_start_or_after_the_end() -> None:
    limited = Schedule("@hourly", starts_at=_at(3), ends_at=_at(5))
    assert _hours(limited, 9) == [3, 4, 5]
    assert next_slot(limited, _at(5)) is None
    assert count_between(limited, MIDNIGHT, _at(9)) == 3
    assert count_between(Schedule(every=HOUR, starts_at=_at(3)), MIDNIGHT, _at(2)) == 0
    assert _hours(Schedule("@hourly", starts_at=MIDNIGHT + timedelta(days=70 * 366)), 1) != []


def test_excluded_days_and_times_are_left_out_by_the_clock_of_the_zone() -> None:
    working = Schedule(
        "0 9 * * *", timezone="Asia/Tokyo", exclude=["* * * * SAT,SUN", date(2026, 11, 18), "2026-11-19"]
    )
    assert _hours(working, 3) == [0 + 24, 24 * 4, 24 * 7]  # 09:00 in Tokyo is midnight in UTC; the 16th is a Monday


def test_an_exclusion_without_seconds_covers_the_whole_minute() -> None:
    assert _hours(Schedule("*/30 * * * * *", exclude="1-59 * * * *"), 3) == [30 / 3600, 1, 1 + 30 / 3600]


def test_a_schedule_that_excludes_all_its_slots_has_none_and_that_is_found_out_soon() -> None:
    assert next_slot(Schedule("* * * * * *", exclude="* * * * *"), MIDNIGHT) is None


def test_a_slot_that_is_not_due_stays() -> None:
    assert due(Schedule("@hourly"), _at(1), _at(0.99)) == Due((), (), _at(1))


def test_a_slot_in_time_is_fired_whatever_is_caught_up() -> None:
    for catch_up in ("latest", "all", "none"):
        hourly = Schedule("@hourly", catch_up=catch_up)  # type: ignore[arg-type]
        assert due(hourly, _at(1), _at(1)) == Due((_at(1),), (), _at(2))
        assert due(hourly, _at(1), _at(1) + MINUTE) == Due((_at(1),), (), _at(2))


def test_of_missed_slots_the_newest_is_run_and_the_others_are_told() -> None:
    assert due(Schedule("@hourly"), _at(1), _at(4.5)) == Due(
        (_at(4),), (Skipped("superseded", 3, _at(1), _at(3)),), _at(5)
    )


def test_all_missed_slots_are_run_oldest_first_up_to_the_limit() -> None:
    hourly = Schedule("@hourly", catch_up="all", catch_up_limit=3)
    assert due(hourly, _at(1), _at(2.5)) == Due((_at(1), _at(2)), (), _at(3))
    assert due(hourly, _at(1), _at(5.5)) == Due(
        (_at(3), _at(4), _at(5)), (Skipped("over_limit", 2, _at(1), _at(2)),), _at(6)
    )


def test_nothing_is_caught_up_if_so_asked() -> None:
    hourly = Schedule("@hourly", catch_up="none")
    assert due(hourly, _at(1), _at(3.5)) == Due((), (Skipped("missed", 3, _at(1), _at(3)),), _at(4))
    assert due(hourly, _at(1), _at(3)) == Due((_at(3),), (Skipped("missed", 2, _at(1), _at(2)),), _at(4))


def test_slots_older_than_the_window_are_never_run() -> None:
    hourly = Schedule("@hourly", catch_up="all", catch_up_window=timedelta(hours=2))
    assert due(hourly, _at(1), _at(5.5)) == Due((_at(4), _at(5)), (Skipped("too_old", 3, _at(1), _at(3)),), _at(6))
    daily = Schedule("@daily", catch_up_window=timedelta(hours=2))
    assert due(daily, _at(0), _at(3)) == Due((), (Skipped("too_old", 1, _at(0), _at(0)),), _at(24))


def test_both_reasons_may_apply_to_one_look() -> None:
    hourly = Schedule("@hourly", catch_up_window=timedelta(hours=3))
    assert due(hourly, _at(1), _at(9)) == Due(
        (_at(9),),
        (Skipped("too_old", 5, _at(1), _at(5)), Skipped("superseded", 3, _at(6), _at(8))),
        _at(10),
    )


def test_a_stored_slot_is_run_even_if_newer_rules_of_its_zone_have_moved_it() -> None:
    assert due(Schedule("@hourly"), _at(1.5), _at(1.6)) == Due((_at(1.5),), (), _at(2))


def test_a_schedule_that_has_ended_has_no_next_slot() -> None:
    assert due(Schedule("@hourly", ends_at=_at(2)), _at(2), _at(2)) == Due((_at(2),), (), None)


def test_a_year_without_a_leader_is_decided_without_visiting_each_second() -> None:
    every_second = Schedule("* * * * * *")
    year = timedelta(days=365)
    decided = due(every_second, MIDNIGHT - year, MIDNIGHT)
    assert decided.fire == (MIDNIGHT,)
    assert sum(each.count for each in decided.skipped) == 365 * 86400


def test_a_new_changed_or_resumed_schedule_is_due_later_than_now_and_than_its_last_slot() -> None:
    assert next_slot(Schedule("@hourly"), _at(1)) == _at(2)
    assert next_slot(Schedule("@hourly"), _at(1), last_slot=_at(3)) == _at(4)


def test_jitter_is_stable_and_within_its_bounds_and_does_not_move_the_slot() -> None:
    hourly = Schedule("@hourly", jitter=30)
    runs = [run_at(hourly, "nightly", _at(n)) - _at(n) for n in range(200)]
    assert runs == [run_at(hourly, "nightly", _at(n)) - _at(n) for n in range(200)]
    assert runs != [run_at(hourly, "other", _at(n)) - _at(n) for n in range(200)]
    assert timedelta(0) <= min(runs) < timedelta(seconds=3) < timedelta(seconds=27) < max(runs) <= timedelta(seconds=30)
    assert run_at(Schedule("@hourly"), "nightly", _at(1)) == _at(1)


@st.composite
def _looks(draw: st.DrawFn) -> tuple[Schedule, datetime, datetime]:
    options: dict[str, Any] = {
        "catch_up": draw(st.sampled_from(["latest", "all", "none"])),
        "catch_up_limit": draw(st.integers(1, 5)),
        "catch_up_window": timedelta(minutes=draw(st.integers(1, 600))),
        "exclude": draw(st.sampled_from([(), ("* 2 * * *",)])),
    }
    rule = draw(st.sampled_from(["*/7 * * * *", "0 */3 * * *", ("5 * * * *", "*/20 1-4 * * *"), None]))
    schedule = (
        Schedule(rule, timezone="Europe/Berlin", **options)
        if rule
        else Schedule(every=timedelta(minutes=11), **options)
    )
    start = datetime(2026, 10, 24, 20, tzinfo=UTC) + draw(st.integers(0, 600)) * MINUTE
    stored = next(slots(schedule, start))
    return schedule, stored, stored + draw(st.integers(0, 3000)) * timedelta(seconds=7)


@settings(max_examples=300)
@given(_looks())
def test_every_slot_is_fired_or_on_record_as_skipped_and_none_is_both(
    look: tuple[Schedule, datetime, datetime],
) -> None:
    schedule, stored, now = look
    decided = due(schedule, stored, now)
    passed = [stored, *slots_between(schedule, stored, now)]
    told = list(decided.fire)
    for each in decided.skipped:
        group = [slot for slot in passed if each.first <= slot <= each.last]
        assert (group[0], group[-1], len(group)) == (each.first, each.last, each.count)
        told += group
    assert sorted(told) == passed
    assert decided.next_slot == next(slots(schedule, passed[-1]))
    assert list(decided.fire) == sorted(decided.fire)


@pytest.mark.parametrize("rule", [{"cron": "*/7 * * * *"}, {"every": timedelta(minutes=7)}])
def test_looking_often_or_seldom_ends_at_the_same_next_slot(rule: dict[str, Any]) -> None:
    schedule = Schedule(**rule, catch_up="all", catch_up_limit=1000)
    first = next(slots(schedule, MIDNIGHT))
    fired: list[datetime] = []
    stored: datetime | None = first
    for minute in range(600):
        assert stored is not None
        decided = due(schedule, stored, MIDNIGHT + minute * MINUTE)
        fired += decided.fire
        stored = decided.next_slot
    at_once = due(schedule, first, MIDNIGHT + 599 * MINUTE)
    assert (tuple(fired), stored) == (at_once.fire, at_once.next_slot)
