"""The fields of a cron expression: read and checked, with an error that says what to write instead."""

from __future__ import annotations

import re
from datetime import datetime

from cronsim import CronSim, CronSimError

from tasklib.errors import InvalidOption

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY = range(6)
_NAMES = ("second", "minute", "hour", "day of month", "month", "day of week")
_VALUES = (
    "0 to 59",
    "0 to 59",
    "0 to 23",
    "1 to 31, L for the last day or LW for the last working day",
    "1 to 12 or JAN to DEC",
    "0 to 7 (0 and 7 are Sunday), SUN to SAT, MON#2 for the second Monday or 5L for the last Friday",
)
_SIZES = (60, 60, 24, 31, 12, 7)
_ALLOWED = re.compile(r"[A-Za-z0-9*/,#-]+")
_STEP = re.compile(r"/(\d+)")
_RANGE = re.compile(r"([A-Z]+|\d+)-([A-Z]+|\d+)")
_LONG_NAME = re.compile(r"[A-Z]{4,}")
_MAX_LENGTH = 500
_ANY_TIME = datetime(2000, 1, 1)


def read(text: str) -> CronSim:
    """What `cronsim` makes of an expression. The seconds are always there: 0 if they are not written."""
    if len(text) > _MAX_LENGTH:
        raise InvalidOption(f"a cron expression has at most {_MAX_LENGTH} characters, this one {len(text)}.")
    fields = _expand(text).split()
    if len(fields) not in (5, 6):
        raise InvalidOption(
            f"cron {text!r} has {len(fields)} fields. Write five (minute, hour, day of month, month, day of week), "
            "or six with the seconds in front."
        )
    padded = ["0", *fields] if len(fields) == 5 else fields
    for position, field in enumerate(padded):
        _check(text, position, field)
    try:
        return CronSim(" ".join(padded), _ANY_TIME)
    except CronSimError:
        raise never(text) from None  # each field alone is in order


def has_seconds(text: str) -> bool:
    """True if the expression has the leading sixth field."""
    return len(_expand(text).split()) == 6


def never(text: str) -> InvalidOption:
    """The error for an expression whose day and month fields no date satisfies."""
    return InvalidOption(
        f"cron {text!r} never matches: no date satisfies its day and month fields. "
        "Change one of them, for example to L, the last day of the month."
    )


def _expand(text: str) -> str:
    if not text.startswith("@"):
        return text
    alias = text.lower()
    if alias == "@reboot":
        raise InvalidOption("cron '@reboot' has no instant. Submit the task from the program that starts instead.")
    if alias not in ALIASES:
        raise InvalidOption(f"cron {text!r} is not known. Write {', '.join(ALIASES)}, or five fields.")
    return ALIASES[alias]


def _check(text: str, position: int, field: str) -> None:
    if hint := _mistake(position, field):
        raise InvalidOption(f"cron {text!r}: the {_NAMES[position]} {field!r} can't be used. {hint}")
    alone = ["*"] * 6
    alone[position] = field
    try:
        CronSim(" ".join(alone), _ANY_TIME)
    except (CronSimError, ValueError):
        raise InvalidOption(
            f"cron {text!r}: the {_NAMES[position]} {field!r} can't be used. Write {_VALUES[position]}; "
            "`*` for all, `,` between several, `-` for a range, `/` for a step."
        ) from None


def _mistake(position: int, field: str) -> str | None:
    """What to do about mistakes that people make, or bring along from other kinds of cron."""
    if "?" in field:
        return "Write * instead of ?."
    if not _ALLOWED.fullmatch(field):
        return "It may have ASCII letters, digits and * , - / # only."
    field = field.upper()
    if position == _DAY and "W" in field.replace("LW", ""):
        return "Of the working days only the last one has a sign: LW."
    if "L" in field and "/" in field and position == _DAY:
        return "A step can't follow L."
    if position in (_MONTH, _WEEKDAY) and (name := _LONG_NAME.search(field)):
        return f"Names have three letters: {name[0][:3]}."
    if (step := _STEP.search(field)) and len(step[1]) < 9 and int(step[1]) > _SIZES[position]:
        return (
            f"A step starts over with each {_whole(position)}, so this one would never be taken. "
            "For intervals of any length use every=timedelta(...)."
        )
    if (found := _RANGE.search(field)) and _backwards(position, found[1], found[2]):
        return f"A range goes upwards. Write two ranges, or a list: {found[1]},...,{found[2]}."
    return None


def _whole(position: int) -> str:
    return ("minute", "hour", "day", "month", "year", "week")[position]


def _backwards(position: int, first: str, last: str) -> bool:
    order = {
        _MONTH: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
        _WEEKDAY: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    }.get(position, [])

    def place(value: str) -> int | None:
        if value.isdigit():
            return int(value[:9])
        return order.index(value) + (position == _MONTH) if value in order else None

    start, end = place(first), place(last)
    return start is not None and end is not None and end < start
