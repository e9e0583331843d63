"""Cron expressions: what is accepted, what is refused with which words, and what they match."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasklib.errors import InvalidOption
from tasklib.schedules import Cron

START = datetime(2026, 1, 1)
YEARS = timedelta(days=366 * 9)


def _first(expression: str, after: datetime = START, count: int = 1, zone: str = "UTC") -> list[str]:
    instants = Cron.parse(expression).instants(zone, after, after + YEARS)
    return [instant.isoformat(" ") for instant in islice(instants, count)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@hourly", "2026-01-01 01:00:00"),
        ("@daily", "2026-01-02 00:00:00"),
        ("@midnight", "2026-01-02 00:00:00"),
        ("@weekly", "2026-01-04 00:00:00"),
        ("@monthly", "2026-02-01 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00"),
        ("@Annually", "2027-01-01 00:00:00"),
        ("0 0 L * *", "2026-01-31 00:00:00"),
        ("0 0 LW * *", "2026-01-30 00:00:00"),
        ("0 9 * * mon#2", "2026-01-12 09:00:00"),
        ("0 9 * * 5L", "2026-01-30 09:00:00"),
        ("0 0 * FEB SUN", "2026-02-01 00:00:00"),
        ("0 0 * * 7", "2026-01-04 00:00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00:00"),
        ("*/24 */24 * */12 *", "2026-01-01 00:24:00"),
        ("10 0 0 * * *", "2026-01-01 00:00:10"),
        ("*/20 30 2 * * *", "2026-01-01 02:30:00"),
    ],
)
def test_an_expression_is_due_first_at(expression: str, expected: str) -> None:
    assert _first(expression) == [expected]


def test_one_of_two_restricted_day_fields_is_enough_but_a_star_makes_it_both() -> None:
    assert _first("0 0 13 * FRI", count=3) == ["2026-01-02 00:00:00", "2026-01-09 00:00:00", "2026-01-13 00:00:00"]
    assert _first("0 0 */12 * FRI", count=2) == ["2026-02-13 00:00:00", "2026-03-13 00:00:00"]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 31 2 *", "never matches"),
        ("0 0 30,31 FEB */1", "never matches"),
        ("0 0 */31 * MON#5", "never matches"),
        ("@reboot", "Submit the task from the program that starts"),
        ("@fortnightly", "not known"),
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("", "0 fields"),
        ("60 * * * *", "the minute '60'"),
        ("* 24 * * *", "the hour '24'"),
        ("* * 0 * *", "the day of month '0'"),
        ("* * * 13 *", "the month '13'"),
        ("* * * * 8", "the day of week '8'"),
        ("60 * * * * *", "the second '60'"),
        ("*/0 * * * *", "the minute"),
        ("*/90 * * * *", r"use every=timedelta\(...\)"),
        ("0 22-6 * * *", "A range goes upwards"),
        ("0 0 * * FRI-MON", "A range goes upwards"),
        ("0 0 * * MONDAY", "three letters: MON"),
        ("0 0 ? * MON", r"Write \* instead of \?"),
        ("0 0 15W * *", "LW"),
        ("0 0 L/2 * *", "A step can't follow L"),
        ("0 0 * * MON#6", "the day of week"),
        ("0 0 * * \u017fun", "ASCII"),
        ("9" * 400 + " * * * *", "the minute"),
        ("* " * 300, "at most 500 characters"),
        (None, "must be a string"),
        (b"* * * * *", "must be a string"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_the_reason(expression: object, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        Cron.parse(expression)


def test_a_time_in_a_gap_is_due_once_at_its_end() -> None:
    # In Berlin the clock went from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC.
    for expression in ("30 2 * * *", "0,30 2 * * *", "0,30 2,3 29 3 *", "0 30 2 * * *", "*/10 30 2 * * *"):
        assert _first(expression, datetime(2026, 3, 28, 12), zone="Europe/Berlin") == ["2026-03-29 01:00:00"]
    assert _first("0 2,3 * * *", datetime(2026, 3, 28, 12), 2, "Europe/Berlin") == [
        "2026-03-29 01:00:00",
        "2026-03-30 00:00:00",
    ]


def test_a_time_in_a_repeated_hour_is_due_once_in_the_first_pass() -> None:
    # On 25 October 2026 the hour from 02:00 to 03:00 came twice, at 00:00 and at 01:00 UTC.
    for expression in ("30 2 * * *", "0 30 2 * * *"):
        assert _first(expression, datetime(2026, 10, 24, 12), 2, "Europe/Berlin") == [
            "2026-10-25 00:30:00",
            "2026-10-26 01:30:00",
        ]


def test_from_the_second_pass_of_a_repeated_hour_time_goes_forward() -> None:
    assert _first("30 2 * * *", datetime(2026, 10, 25, 1, 15), zone="Europe/Berlin") == ["2026-10-26 01:30:00"]


def test_an_expression_with_a_star_in_minute_or_hour_follows_elapsed_time() -> None:
    assert _first("*/30 * * * *", datetime(2026, 10, 25, 0, 15), 3, "Europe/Berlin") == [
        "2026-10-25 00:30:00",
        "2026-10-25 01:00:00",
        "2026-10-25 01:30:00",
    ]
    assert _first("*/30 * * * *", datetime(2026, 3, 29, 0, 15), 2, "Europe/Berlin") == [
        "2026-03-29 00:30:00",
        "2026-03-29 01:00:00",
    ]


def test_a_whole_day_that_a_zone_skipped_is_a_gap_like_any_other() -> None:
    # Apia went from 29 to 31 December 2011.
    assert _first("0 12 30 12 *", datetime(2011, 12, 1), zone="Pacific/Apia") == ["2011-12-30 10:00:00"]


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # croniter takes a range of one, such as JAN-JAN, for all.
    span = st.sets(number, min_size=2, max_size=2).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, high)
    term = st.one_of(
        number.map(str),
        span,
        st.builds("*/{}".format, step),
        st.builds("{}/{}".format, span, step),
    )
    return st.one_of(st.just("*"), term, st.lists(term, min_size=2, max_size=3).map(",".join))


def _expressions() -> st.SearchStrategy[str]:
    return st.builds("{} {} {} {} {}".format, _field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 6))


@settings(max_examples=200)
@given(_expressions(), st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1)))
def test_in_utc_the_next_times_are_those_of_croniter_and_cronsim(expression: str, start: datetime) -> None:
    # Only a leading star counts as a star in Debian's cron; croniter counts one later in a list as well.
    assume(not any(",*" in field for field in expression.split()[2::2]))
    theirs = croniter(expression, start.replace(tzinfo=UTC), implement_cron_bug=True)
    simulated = CronSim(expression, start)
    instants = Cron.parse(expression).instants("UTC", start, start + timedelta(days=50 * 365))
    for instant in islice(instants, 5):
        assert instant.replace(tzinfo=UTC) == theirs.get_next(datetime)
        assert instant == next(simulated)


@settings(max_examples=100)
@given(_field(0, 59), _expressions(), st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1)))
def test_in_utc_expressions_with_seconds_are_those_of_cronsim(second: str, rest: str, start: datetime) -> None:
    simulated = CronSim(f"{second} {rest}", start)
    instants = Cron.parse(f"{second} {rest}").instants("UTC", start, start + timedelta(days=50 * 365))
    for instant in islice(instants, 5):
        assert instant == next(simulated)


@settings(max_examples=300)
@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from(["0", "1", "59", "*", "/", "-", ",", "L", "W", "#", "MON", " "]), max_size=12).map(
        "".join
    )
)
def test_any_text_is_either_an_expression_or_refused_with_words(text: str) -> None:
    try:
        cron = Cron.parse(text)
    except InvalidOption:
        return
    assert next(cron.instants("Europe/Berlin", START, START + timedelta(days=50 * 365)), None) is not None
    assert cron.description
