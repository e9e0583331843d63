"""`Schedule`: when a task function runs, and what becomes of slots that can't run in time. A value, without a clock.

    Schedule("0 3 * * *", timezone="Europe/Berlin", overlap="skip")
    Schedule(["0 9 * * MON-FRI", "0 11 * * SAT,SUN"], exclude=["2026-12-25", "* * 1 1 *"])
    Schedule(every=timedelta(minutes=90), jitter=30, args={"full": False})

Whatever can't be meant is refused here, where the schedule is written. What is stored is `to_json()`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, Literal, get_args

from tasklib.errors import InvalidOption
from tasklib.schedules import zones
from tasklib.schedules.cron import Cron

CatchUp = Literal["latest", "all", "none"]
Overlap = Literal["allow", "skip", "wait_one", "cancel_running"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_EXPRESSIONS = 10
_MAX_EXCLUSIONS, _MAX_EXCLUDING_EXPRESSIONS = 1000, 50
_FIRST_YEAR, _LAST_YEAR = 1970, 2999
_MAX_INTERVAL = timedelta(days=3660)
_OPTIONS: dict[str, Any] = {
    "queue": str,
    "priority": int | str,
    "max_retries": int,
    "timeout_seconds": int,
    "tags": Mapping,
    "required_capabilities": Iterable,
    "payload_version": int,
}
OF_TASKS = ("args", *_OPTIONS)
"""Fields that say what tasks are submitted with, not when."""
_TIMES = ("anchor", "starts_at", "ends_at")
_DURATIONS = ("every", "catch_up_window", "jitter")


@dataclass(frozen=True)
class Schedule:
    """When a task function runs by itself. Give `cron` or `every`; everything else has a default."""

    cron: str | Iterable[str] | None = None
    """One cron expression, or up to ten of which any one is enough. Kept as a tuple."""
    every: timedelta | None = field(default=None, kw_only=True)
    """The time between two slots. It follows elapsed time."""
    anchor: datetime = field(default=EPOCH, kw_only=True)
    """With `every`: an instant that is a slot. All others are counted from it, so that restarts never shift them."""
    timezone: str = field(default="UTC", kw_only=True)
    """The zone whose clock `cron` and `exclude` speak of."""
    exclude: Iterable[str | date] = field(default=(), kw_only=True)
    """Slots to leave out: cron expressions that match the time of the slot, and days of the zone."""
    starts_at: datetime | None = field(default=None, kw_only=True)
    """No slot is earlier than this."""
    ends_at: datetime | None = field(default=None, kw_only=True)
    """No slot is later than this."""
    catch_up: CatchUp = field(default="latest", kw_only=True)
    """What is done for slots that passed while no leader was there: the newest one, all of them, or nothing."""
    catch_up_limit: int = field(default=100, kw_only=True)
    """With `catch_up="all"`: at most so many, the newest ones, oldest first."""
    catch_up_window: timedelta = field(default=timedelta(hours=24), kw_only=True)
    """Slots older than this are never caught up."""
    overlap: Overlap = field(default="allow", kw_only=True)
    """What is done if an earlier run of this schedule is not finished."""
    jitter: timedelta | float = field(default=timedelta(0), kw_only=True)
    """Each run starts up to this much after its slot, by a hash of schedule and slot; a number means seconds."""
    pause_after: int | None = field(default=None, kw_only=True)
    """Pause the schedule after so many dead letters in a row."""
    name: str | None = field(default=None, kw_only=True)
    """The schedule's name; without one, that of its task function."""
    args: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    """The arguments of each run."""
    queue: str | None = field(default=None, kw_only=True)
    """As for a submission; without one, as the task function says. So are the fields below."""
    priority: int | str | None = field(default=None, kw_only=True)
    max_retries: int | None = field(default=None, kw_only=True)
    timeout_seconds: int | None = field(default=None, kw_only=True)
    tags: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)
    required_capabilities: Iterable[str] | None = field(default=None, kw_only=True)
    payload_version: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._set("cron", _expressions(self.cron))
        self._set("timezone", zones.check(self.timezone))
        self._set("exclude", _exclusions(self.exclude))
        for name in _TIMES:
            self._set(name, _instant(name, getattr(self, name)))
        self._set("jitter", _seconds(self.jitter))
        for name in _DURATIONS:
            _check_duration(name, getattr(self, name))
        self._set("args", _json("args", self.args))
        for name, kinds in _OPTIONS.items():
            self._set(name, _option(name, getattr(self, name), kinds))
        self._check_rule()
        self._check_policies()

    @classmethod
    def of(cls, value: Schedule | str) -> Schedule:
        """A schedule as it is, or one made of a cron expression."""
        if isinstance(value, Schedule):
            return value
        if isinstance(value, str):
            return cls(value)
        raise InvalidOption(f"schedule must be a cron expression or a Schedule, not {value!r}.")

    @cached_property
    def expressions(self) -> tuple[Cron, ...]:
        """The cron expressions; none if the schedule has an interval."""
        return tuple(Cron(text) for text in self.cron or ())

    @cached_property
    def excluded_days(self) -> frozenset[date]:
        return frozenset(day for day in self.exclude if isinstance(day, date))

    @cached_property
    def excluding_expressions(self) -> tuple[Cron, ...]:
        return tuple(Cron(text) for text in self.exclude if isinstance(text, str))

    @property
    def max_jitter(self) -> timedelta:
        """`jitter` as a duration."""
        return self.jitter if isinstance(self.jitter, timedelta) else timedelta(seconds=self.jitter)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a submission that are given."""
        return {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}

    def to_json(self) -> dict[str, Any]:
        """What is stored: every field that is set, defaults included, so that a later default changes no schedule."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.every is None:
            del given["anchor"]
        return {name: _plain(value) for name, value in given.items() if value not in (None, (), {})}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Schedule:
        """A schedule from what `to_json` made of it."""
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(stored) - known):
            raise InvalidOption(
                f"a schedule has no {', '.join(unknown)[:200]}. If a newer TaskLib stored it, update this program."
            )
        given = dict(stored)
        for name in _TIMES:
            if isinstance(given.get(name), str):
                given[name] = _parsed(name, given[name])
        for name in _DURATIONS:
            if name in given:
                given[name] = _seconds(given[name])
        return cls(**given)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_rule(self) -> None:
        if (not self.cron) == (self.every is None):
            raise InvalidOption(
                "a schedule needs cron or every, and not both: "
                "Schedule('0 3 * * *') or Schedule(every=timedelta(hours=1))."
            )
        if self.every is not None and not timedelta(seconds=1) <= self.every <= _MAX_INTERVAL:
            raise InvalidOption(f"every must be between one second and ten years, not {self.every}.")
        if self.every is None and self.anchor != EPOCH:
            raise InvalidOption("anchor goes with every; cron expressions name their times. Leave it out.")
        if self.starts_at and self.ends_at and self.starts_at > self.ends_at:
            raise InvalidOption(f"starts_at ({self.starts_at}) is later than ends_at ({self.ends_at}). Exchange them.")

    def _check_policies(self) -> None:
        _one_of("catch_up", self.catch_up, get_args(CatchUp))
        _one_of("overlap", self.overlap, get_args(Overlap))
        _whole_number("catch_up_limit", self.catch_up_limit, 1, 10_000)
        if self.pause_after is not None:
            _whole_number("pause_after", self.pause_after, 1, 1_000_000)
        if not timedelta(seconds=10) <= self.catch_up_window <= timedelta(days=366):
            raise InvalidOption(
                f"catch_up_window must be between 10 seconds and 366 days, not {self.catch_up_window}. "
                "To catch up nothing write catch_up='none'."
            )
        if not timedelta(0) <= self.max_jitter <= timedelta(days=1):
            raise InvalidOption(f"jitter must be between 0 and one day, not {self.jitter}.")
        if self.name is not None and (not isinstance(self.name, str) or not 0 < len(self.name) <= 200):
            raise InvalidOption("name must be a string of 1 to 200 characters.")


def _expressions(cron: object) -> tuple[str, ...] | None:
    if cron is None:
        return None
    several = [cron] if isinstance(cron, str) or not isinstance(cron, Iterable) else list(cron)
    if not 1 <= len(several) <= MAX_EXPRESSIONS:
        raise InvalidOption(f"cron takes 1 to {MAX_EXPRESSIONS} expressions, not {len(several)}.")
    return tuple(dict.fromkeys(Cron.parse(text).text for text in several))


def _exclusions(given: object) -> tuple[str | date, ...]:
    several = [given] if isinstance(given, str | date) or not isinstance(given, Iterable) else list(given)
    if len(several) > _MAX_EXCLUSIONS:
        raise InvalidOption(f"exclude takes at most {_MAX_EXCLUSIONS} expressions and days, not {len(several)}.")
    found = tuple(dict.fromkeys(_exclusion(each) for each in several))
    if (number := sum(isinstance(each, str) for each in found)) > _MAX_EXCLUDING_EXPRESSIONS:
        raise InvalidOption(
            f"exclude takes at most {_MAX_EXCLUDING_EXPRESSIONS} cron expressions, not {number}. Days are quicker: "
            "'2026-12-25'."
        )
    return found


def _exclusion(given: object) -> str | date:
    if isinstance(given, datetime):
        raise InvalidOption(f"exclude takes days and cron expressions, not {given!r}. For the day write .date().")
    if isinstance(given, date):
        return given
    if isinstance(given, str) and (day := _day(given)):
        return day
    return Cron.parse(given).text


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        return None


def _instant(name: str, value: object) -> datetime | None:
    if value is None:
        return EPOCH if name == "anchor" else None
    if not isinstance(value, datetime):
        raise InvalidOption(f"{name} must be a datetime, not {value!r}.")
    if value.tzinfo is None:
        raise InvalidOption(f"{name} has no time zone. Write datetime(..., tzinfo=ZoneInfo('Europe/Berlin')) or UTC.")
    check_year(name, value)
    return value.astimezone(UTC)


def check_year(name: str, moment: datetime) -> None:
    """Refuse an instant in years that have no slots."""
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise InvalidOption(f"{name} must be in the years {_FIRST_YEAR} to {_LAST_YEAR}, not {moment}.")


def _parsed(name: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"{name} must be a time such as '2026-03-29T03:00:00+02:00', not {text[:100]!r}.") from None


def _seconds(value: Any) -> Any:
    """A number of seconds as a timedelta; anything else as it is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return timedelta(seconds=value)
        except (OverflowError, ValueError):
            return value
    return value


def _check_duration(name: str, value: object) -> None:
    if not isinstance(value, timedelta) and not (value is None and name == "every"):
        raise InvalidOption(f"{name} must be a timedelta, such as timedelta(minutes=15), not {value!r}.")


def _option(name: str, value: Any, kinds: Any) -> Any:
    """An option of a submission, of a type that can be stored. Ranges are checked with the task function."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise InvalidOption(f"{name} can't be {value!r}. Write it as for a submission.")
    if isinstance(value, Mapping):
        return _json(name, value)
    return _words(name, value) if kinds is Iterable else value


def _words(name: str, value: Iterable[Any]) -> tuple[str, ...]:
    words = () if isinstance(value, str) else tuple(value)
    if isinstance(value, str) or not all(isinstance(word, str) for word in words):
        raise InvalidOption(f"{name} must be a list of strings, not {value!r}.")
    return words


def _json(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidOption(f"{name} must be a dict such as {{'full': True}}, not {value!r}.")
    return dict(value)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidOption(f"{name} must be {', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}, not {value!r}.")


def _whole_number(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidOption(f"{name} must be a whole number from {low} to {high:,}, not {value!r}.")


def _plain(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            seconds = value.total_seconds()
            return int(seconds) if seconds.is_integer() else seconds
        case tuple():
            return [_plain(each) for each in value]
        case dict():
            return _through_json(value)
    return value


def _through_json(value: dict[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as e:
        raise InvalidOption(f"args and tags of a schedule must be JSON: {e}.") from e
