"""How long a retry waits: grows, is spread, never overflows, and never exceeds its limit."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklib import Config, Reject, Retry, RetryPolicy
from tasklib.errors import InvalidOption
from tasklib.tasks.options import MAX_DELAY_SECONDS

STEADY = RetryPolicy(jitter=0)


def test_the_defaults_wait_5_10_20_seconds() -> None:
    assert [STEADY.delay(n) for n in range(4)] == [5, 10, 20, 40]


def test_a_policy_of_ones_own() -> None:
    assert [RetryPolicy(1, 3, jitter=0).delay(n) for n in range(4)] == [1, 3, 9, 27]
    assert [RetryPolicy(7, 1, jitter=0).delay(n) for n in (0, 1, 50)] == [7, 7, 7]


def test_the_configuration_makes_a_policy() -> None:
    config = Config(
        "postgresql://",
        base_retry_delay_seconds=1,
        retry_backoff_multiplier=4,
        max_retry_delay_seconds=50,
        retry_jitter=0,
    )
    assert [RetryPolicy.of(config).delay(n) for n in range(4)] == [1, 4, 16, 50]
    assert RetryPolicy.of(Config("postgresql://")) == RetryPolicy()


@pytest.mark.parametrize("retries", [10, 1000, 10_000, 2**31 - 1])
@pytest.mark.parametrize("multiplier", [2, 2.0, 1e300, 10**400], ids=["2", "2.0", "1e300", "10**400"])
def test_no_number_of_retries_overflows(retries: int, multiplier: Any) -> None:
    assert RetryPolicy(multiplier=multiplier, jitter=0).delay(retries) == 3600
    assert RetryPolicy(base_seconds=10**400, multiplier=multiplier, jitter=0).delay(retries) == 3600


def test_without_a_base_there_is_no_wait_however_often() -> None:
    assert [RetryPolicy(base_seconds=0).delay(n) for n in (0, 5, 10_000)] == [0, 0, 0]


def test_chance_spreads_the_wait_by_the_jitter_either_way() -> None:
    policy = RetryPolicy(jitter=0.1)
    assert [policy.delay(1, chance) for chance in (0, 0.5, 1)] == pytest.approx([9, 10, 11])
    drawn = {policy.delay(1) for _ in range(200)}
    assert len(drawn) > 100
    assert all(9 <= seconds <= 11 for seconds in drawn)


def test_jitter_never_goes_over_the_limit() -> None:
    assert RetryPolicy(max_seconds=100, jitter=1).delay(50, 1.0) == 100


finite: dict[str, Any] = {"allow_nan": False, "allow_infinity": False}


@given(
    base=st.floats(0, **finite),
    multiplier=st.floats(1, **finite),
    limit=st.floats(0, MAX_DELAY_SECONDS),
    jitter=st.floats(0, 1),
    retries=st.integers(0, 2**31 - 1),
    chance=st.floats(0, 1),
)
def test_every_wait_is_a_number_between_zero_and_the_limit(
    base: float, multiplier: float, limit: float, jitter: float, retries: int, chance: float
) -> None:
    assert 0 <= RetryPolicy(base, multiplier, limit, jitter).delay(retries, chance) <= limit


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_seconds": -1},
        {"base_seconds": math.nan},
        {"base_seconds": math.inf},
        {"multiplier": 0.5},
        {"multiplier": math.nan},
        {"multiplier": math.inf},
        {"max_seconds": -1},
        {"max_seconds": math.nan},
        {"max_seconds": math.inf},
        {"max_seconds": MAX_DELAY_SECONDS + 1},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(
        InvalidOption,
        match=re.escape(
            "RetryPolicy needs base_seconds of at least 0, a multiplier of at least 1, max_seconds from 0 to "
            "31,536,000,000 and a jitter from 0 to 1, not RetryPolicy("
        ),
    ):
        RetryPolicy(**wrong)


# ---- what a task says itself ----


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, None), (0, 0), (1.5, 1.5), (timedelta(minutes=2), 120), (1e300, MAX_DELAY_SECONDS)],
)
def test_a_task_says_when_to_try_again(given: Any, seconds: float | None) -> None:
    assert Retry(in_=given).seconds == seconds


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, timedelta(seconds=-1), "soon", True], ids=repr)
def test_a_time_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=re.escape(f"Retry(in_=...) must be 0 seconds or more, not {wrong!r}.")):
        Retry(in_=wrong)


def test_both_carry_a_reason() -> None:
    assert (str(Retry()), str(Retry(reason="busy"))) == ("the task asked for a retry", "busy")
    assert (str(Reject()), str(Reject("card was stolen"))) == ("the task was rejected", "card was stolen")
