"""Slots of many expressions in many zones equal those of the slow reference, exactly."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tasklib.schedules import Cron, zones

from . import reference

ZONES = [
    "Australia/Lord_Howe",  # changes by half an hour
    "Africa/Cairo",  # at midnight
    "America/Santiago",  # at midnight of a Saturday, in the south
    "Africa/Casablanca",  # backwards for Ramadan
    "Pacific/Apia",
    "Europe/Berlin",
    "America/New_York",
    "Pacific/Chatham",  # 12:45 ahead, changes at 02:45
    "Antarctica/Troll",  # changes by two hours
    "America/Havana",  # midnight is skipped, and repeated
]
FREQUENT = ["* 1-2 * * *", "*/15 * * * *", "7-59/10 * * * *", "*/5 0-4 * * *", "*/20 1,2,3 * * *"]
EXPRESSIONS = [
    "0 * * * *",
    "30 * * * *",
    "45 */2 * * *",
    "0 */3 * * *",
    "*/30 2 * * *",
    "59 23 * * *",
    "0 0 * * *",
    "15 0 * * *",
    "30 0 * * *",
    "0 1 * * *",
    "30 1 * * *",
    "0 2 * * *",
    "15 2 * * *",
    "30 2 * * *",
    "59 2 * * *",
    "0 3 * * *",
    "0,30 2,3 * * *",
    "10,50 1-3 * * *",
    "0-59/20 0-3 * * *",
    "5/25 2/1 * * *",
    "0 12 * * MON-FRI",
    "30 2 * * SUN",
    "30 0 * * 5,6,7",
    "0 0 1 * *",
    "45 1 L * *",
    "0 9 LW * *",
    "0 2 * * SUN#1",
    "30 2 * * SUN#2",
    "15 2 * * 0L",
    "0 0 * 3,10 *",
    "0 6 13 * FRI",
    "0 6 */2 * MON",
    "0 0 29 2 *",
    "20 4 1,15,L MAR-NOV *",
    "0 22 * 4-10 2-6/2",
]
FIRST, LAST = datetime(2024, 1, 1), datetime(2030, 12, 31, 23, 59)


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES)
def test_slots_of_2024_to_2030_equal_those_of_the_reference(zone: str) -> None:
    assert len(FREQUENT) + len(EXPRESSIONS) == 40
    for expression in FREQUENT + EXPRESSIONS:
        assert _minutes(expression, zone, FIRST, LAST) == reference.minutes(expression, zone, FIRST, LAST), expression


@pytest.mark.parametrize("zone", ZONES)
def test_slots_around_each_change_of_the_clocks_equal_those_of_the_reference(zone: str) -> None:
    for change in _changes(zone, 2026):
        first, last = change - timedelta(days=1), change + timedelta(days=1)
        for expression in ["* * * * *", *FREQUENT, *EXPRESSIONS]:
            assert _minutes(expression, zone, first, last) == reference.minutes(expression, zone, first, last), (
                expression,
                change,
            )


@pytest.mark.parametrize("zone", ZONES)
def test_slots_from_any_instant_near_a_change_are_those_of_the_whole(zone: str) -> None:
    for change in _changes(zone, 2027):
        last = change + timedelta(days=2)
        for expression in ("30 2 * * *", "0,30 0-3 * * *", "*/10 * * * *", "*/30 0-3 * * *"):
            whole = _instants(expression, zone, change - timedelta(days=1), last)
            for quarter in range(-12, 13):
                start = change + quarter * timedelta(minutes=15) + timedelta(seconds=quarter)
                expected = [instant for instant in whole if instant > start]
                assert _instants(expression, zone, start, last) == expected, (expression, start)


@pytest.mark.parametrize("zone", [*ZONES, "UTC", "Asia/Kathmandu"])
def test_counting_slots_agrees_with_visiting_them(zone: str) -> None:
    for expression in (*EXPRESSIONS, "*/15 * * * *"):
        for start in (datetime(2026, 1, 1), datetime(2026, 3, 28, 17, 30, 1), datetime(2026, 4, 4, 15, 15)):
            for days in (0.1, 1, 40):
                end = start + timedelta(days=days)
                expected = len(_instants(expression, zone, start, end))
                assert Cron.parse(expression).count(zone, start, end) == expected, (expression, start, end)


def _minutes(expression: str, zone: str, first: datetime, last: datetime) -> list[int]:
    minute = timedelta(minutes=1)
    instants = Cron.parse(expression).instants(zone, first - minute, last)
    return [(instant - reference.EPOCH) // minute for instant in instants]


def _instants(expression: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    return list(Cron.parse(expression).instants(zone, after, until))


def _changes(zone: str, year: int) -> list[datetime]:
    """The instants at which the clock of a zone changes; an ordinary one where it never does."""
    pieces = list(zones.pieces(zone, datetime(year, 1, 1), datetime(year, 12, 31)))
    changes = [after.start for before, after in pairwise(pieces) if before.offset != after.offset]
    return changes or [datetime(year, 6, 1)]
