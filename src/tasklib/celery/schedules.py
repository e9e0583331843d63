"""What programs import from `celery.schedules`: `crontab` and `schedule`, which become schedules of TaskLib."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.errors import InvalidOption

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day_of_week": (0, 6),
    "day_of_month": (1, 31),
    "month_of_year": (1, 12),
}


class ParseException(InvalidOption):
    """A field of a `crontab` that can't be."""


class crontab:
    """A time by Celery's rules: `crontab(hour=7, minute=30, day_of_week="mon-fri")`. All fields have to match."""

    def __init__(
        self,
        minute: Any = "*",
        hour: Any = "*",
        day_of_week: Any = "*",
        day_of_month: Any = "*",
        month_of_year: Any = "*",
        nowfun: Any = None,
        app: Any = None,
        **others: Any,
    ) -> None:
        if nowfun is not None or others:
            unknown = "nowfun" if nowfun is not None else next(iter(others))
            raise NotOnTaskLib(f"crontab({unknown}=...) can't be followed: the leader uses the database's clock.")
        self._given = {
            "minute": minute,
            "hour": hour,
            "day_of_week": day_of_week,
            "day_of_month": day_of_month,
            "month_of_year": month_of_year,
        }
        for name, value in self._given.items():
            setattr(self, name, _expanded(name, value))

    minute: frozenset[int]
    hour: frozenset[int]
    day_of_week: frozenset[int]
    day_of_month: frozenset[int]
    month_of_year: frozenset[int]

    @property
    def expression(self) -> str:
        """As a cron expression, without the day of the week if there is also a day of the month."""
        week = "*" if self.other_days else _field("day_of_week", self.day_of_week)
        fields = [_field(name, getattr(self, name)) for name in ("minute", "hour", "day_of_month", "month_of_year")]
        return " ".join([*fields, week])

    @property
    def other_days(self) -> str | None:
        """Cron takes either of two restricted days, Celery only what is both: the days of the week to leave out."""
        if _is_all("day_of_week", self.day_of_week) or _is_all("day_of_month", self.day_of_month):
            return None
        return f"* * * * {','.join(map(str, sorted(set(range(7)) - self.day_of_week)))}"

    def __repr__(self) -> str:
        order = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        return f"<crontab: {' '.join(str(self._given[name]) for name in order)} (m/h/dM/MY/d)>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, crontab) and (self.expression, self.other_days) == (other.expression, other.other_days)

    def __hash__(self) -> int:
        return hash((self.expression, self.other_days))


class schedule:
    """An interval: `schedule(run_every=30)`, or of a timedelta."""

    def __init__(
        self,
        run_every: float | timedelta | None = None,
        relative: bool = False,
        nowfun: Any = None,
        app: Any = None,
    ) -> None:
        if nowfun is not None:
            raise NotOnTaskLib("schedule(nowfun=...) can't be followed: the leader uses the database's clock.")
        if run_every is None:
            raise ParseException("a schedule needs run_every, in seconds or as a timedelta.")
        self.run_every = run_every if isinstance(run_every, timedelta) else timedelta(seconds=run_every)
        self.relative = relative

    @property
    def seconds(self) -> float:
        """The interval in seconds."""
        return max(self.run_every.total_seconds(), 0)

    def __repr__(self) -> str:
        return f"<freq: {self.run_every}>"


def maybe_schedule(s: Any, relative: bool = False, app: Any = None) -> Any:
    """Seconds and a timedelta as a `schedule`; anything else as it is."""
    return schedule(s, relative) if isinstance(s, int | float | timedelta) and not isinstance(s, bool) else s


def _expanded(name: str, value: Any) -> frozenset[int]:
    low, high = _FIELDS[name]
    if isinstance(value, bool):
        raise ParseException(f"{name} of a crontab can't be {value!r}.")
    if isinstance(value, int):
        found = {value}
    elif isinstance(value, str):
        found = {number for part in value.split(",") for number in _range(name, part.strip().lower(), low, high)}
    elif isinstance(value, Iterable):
        found = {number for part in value for number in _expanded(name, part)}
    else:
        raise ParseException(f"{name} of a crontab is a number, a string such as '*/15', or a set; not {value!r}.")
    if name == "day_of_week":
        found = {number % 7 if number == 7 else number for number in found}
    if not found or min(found) < low or max(found) > high:
        raise ParseException(f"{name} of a crontab goes from {low} to {high}, and was given as {value!r}.")
    return frozenset(found)


def _range(name: str, part: str, low: int, high: int) -> list[int]:
    span, _, step = part.partition("/")
    every = _number(name, step) if step else 1
    if every < 1:
        raise ParseException(f"{name} of a crontab: the step of {part!r} must be 1 or more.")
    if span == "*":
        return list(range(low, high + 1, every))
    first, _, last = span.partition("-")
    start = _number(name, first)
    end = _number(name, last) if last else (high if step else start)
    numbers = list(range(start, end + 1)) if start <= end else [*range(start, high + 1), *range(low, end + 1)]
    return numbers[::every]


def _number(name: str, text: str) -> int:
    names = {"day_of_week": (_DAYS, 0), "month_of_year": (_MONTHS, 1)}.get(name)
    if names and text[:3] in names[0]:
        return names[0].index(text[:3]) + names[1]
    try:
        return int(text)
    except ValueError:
        raise ParseException(f"{name} of a crontab has {text!r}, which is no number.") from None


def _is_all(name: str, numbers: frozenset[int]) -> bool:
    low, high = _FIELDS[name]
    return len(numbers) == high - low + 1


def _field(name: str, numbers: frozenset[int]) -> str:
    return "*" if _is_all(name, numbers) else ",".join(map(str, sorted(numbers)))


_REFUSED = {
    "solar": "TaskLib has no schedules by the sun. Compute the next time in a task and submit it with eta",
    "crontab_parser": "crontab(...) checks its fields itself",
    "BaseSchedule": "a schedule is a cron expression or an interval",
}


def __getattr__(name: str) -> Any:
    if reason := _REFUSED.get(name):
        raise NotOnTaskLib(f"celery.schedules.{name}: {reason}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
