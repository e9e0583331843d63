from __future__ import annotations

import pytest

from tasklib.observe.formatting import count, duration, last_line, printable, short_id


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "<1 ms"),
        (0, "<1 ms"),
        (0.0124, "12 ms"),
        (0.0994, "99 ms"),
        (0.0999, "100 ms"),
        (0.516, "520 ms"),
        (0.9999, "1.0 s"),
        (5, "5.0 s"),
        (59.94, "59.9 s"),
        (59.99, "1 min"),
        (200, "3 min 20 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (86400 * 4 + 3700, "4 d 1 h"),
    ],
)
def test_duration_is_said_in_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_last_line_of_a_traceback_is_the_error_itself() -> None:
    assert last_line("Traceback (most recent call last):\n  File ...\nValueError: no\n") == "ValueError: no"
    assert last_line(None) == ""
    assert last_line("x" * 300, limit=10) == "xxxxxxxxx…"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert printable("red \x1b[31m\x07 é ✓") == r"red \x1b[31m\x07 é ✓"
    assert printable("two\n\tlines") == r"two\n\tlines"
    assert printable("two\n\tlines\r", lines=True) == "two\n\tlines\\r"


def test_counts_and_short_ids() -> None:
    assert (count(1, "task"), count(1234, "task"), count(2, "retry", "retries")) == (
        "1 task",
        "1,234 tasks",
        "2 retries",
    )
    assert short_id("01a1dd41-7329-7000-968c-a7dbc7546636") == "c7546636"
