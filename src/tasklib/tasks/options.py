"""The options of a submission: checked one by one, each error naming the option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypedDict
from uuid import UUID

from tasklib.config import PRIORITY_MAX, PRIORITY_MIN, Config, Level
from tasklib.errors import InvalidOption

MAX_INT = 2**31 - 1
# The largest wait PostgreSQL's make_interval and timestamptz hold without surprises: a thousand years.
MAX_DELAY_SECONDS = 1000 * 365 * 86400
# The table's own limits (tasks_times_in_range): a little within what a datetime can be, in any time zone.
_FIRST_MOMENT, _END_OF_TIME = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
MAX_NAME_BYTES = 500
MAX_VERSION = 32_767
"""Of the arguments of a function."""
LaneKey: TypeAlias = str | int | UUID
"""By what tasks belong together: a text, or an id."""
UNIQUE_WHILE = ("pending", "unfinished")
ON_DUPLICATE = ("return", "replace", "raise")


class SubmitOptions(TypedDict, total=False):
    """The same as keywords: a type checker knows their names and types. None means: not said."""

    delay_seconds: float | None
    scheduled_at: datetime | None
    max_retries: int | None
    timeout_seconds: int | None
    priority: int | str | None
    tags: Mapping[str, Any] | None
    queue: str | None
    required_capabilities: Iterable[str] | None
    idempotency_key: str | None
    trace_context: Mapping[str, str] | None
    unique: Literal["pending", "unfinished"] | None
    debounce: float | None
    throttle: float | None
    merge_key: str | Iterable[str] | None
    on_duplicate: Literal["return", "replace", "raise"] | None
    max_wait: float | None
    share: LaneKey | None
    serial_key: LaneKey | None
    payload_version: int | None


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may say about a task besides its arguments. None means: not said."""

    delay_seconds: float | None = None
    scheduled_at: datetime | None = None
    max_retries: int | None = None
    timeout_seconds: int | None = None
    priority: int | str | None = None
    tags: Mapping[str, Any] | None = None
    queue: str | None = None
    required_capabilities: Iterable[str] | None = None
    idempotency_key: str | None = None
    trace_context: Mapping[str, str] | None = None
    unique: str | None = None
    debounce: float | None = None
    throttle: float | None = None
    merge_key: str | Iterable[str] | None = None
    on_duplicate: str | None = None
    max_wait: float | None = None
    share: LaneKey | None = None
    serial_key: LaneKey | None = None
    payload_version: int | None = None

    def __post_init__(self) -> None:
        _check_when(self.delay_seconds, self.scheduled_at)
        if not isinstance(self.priority, str | None):
            _check_priority(self.priority)
        _check_count("max_retries", self.max_retries, least=0)
        _check_count("timeout_seconds", self.timeout_seconds, least=1)
        _check_version(self.payload_version)
        _check_name("queue", self.queue)
        _check_name("idempotency_key", self.idempotency_key)
        for name in ("share", "serial_key"):
            _check_lane_key(name, getattr(self, name))
        _check_choice("unique", self.unique, UNIQUE_WHILE)
        _check_choice("on_duplicate", self.on_duplicate, ON_DUPLICATE)
        for name in ("debounce", "throttle", "max_wait"):
            _check_seconds(name, getattr(self, name))
        if self.merge_key is not None:
            object.__setattr__(self, "merge_key", _checked_merge_key(self.merge_key))
        if self.required_capabilities is not None:
            object.__setattr__(self, "required_capabilities", _checked_capabilities(self.required_capabilities))
        for name in ("tags", "trace_context"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise InvalidOption(f"{name} must be a mapping such as {{'batch': 'daily'}}, not {value!r}.")

    def given(self) -> dict[str, Any]:
        """Only the options that were given."""
        return {name: v for name, v in zip(_NAMES, _values(self), strict=True) if v is not None}

    def over(self, defaults: Options) -> Options:
        """These options where they say something, else the defaults."""
        mine, theirs = self.given(), defaults.given()
        if not mine or not theirs:
            return self if mine else defaults
        if "delay_seconds" in mine or "scheduled_at" in mine:
            theirs.pop("delay_seconds", None)
            theirs.pop("scheduled_at", None)
        if any(name in mine for name in _MERGES):  # which of them, and how, is one decision
            for name in (*_MERGES, "on_duplicate", "max_wait"):
                theirs.pop(name, None)
        return Options(**{**theirs, **mine})


_MERGES = ("unique", "debounce", "throttle")
_NAMES = tuple(f.name for f in fields(Options))
_values = attrgetter(*_NAMES)
OPTION_NAMES = frozenset(_NAMES)
RESERVED_NAMES = OPTION_NAMES | {"connection", "kwargs", "registered_elsewhere"}
"""The keywords that submit_task takes for itself."""


def options_of(given: Mapping[str, Any]) -> Options:
    """Options from keywords; an unknown one is named."""
    for name in given:
        if name not in OPTION_NAMES:
            known = ", ".join(sorted(OPTION_NAMES))
            raise InvalidOption(f"there is no option {name!r}.{did_you_mean(name)} The options are {known}.")
    return Options(**given) if given else NOTHING_SAID


def did_you_mean(name: str, known: Iterable[str] = OPTION_NAMES) -> str:
    """A question such as "Did you mean 'priority'?" about a misspelt name; nothing if no name is near."""
    from difflib import get_close_matches  # only mistakes need it

    near = get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    return f" Did you mean {near[0]!r}?" if near else ""


def priority_of(value: int | str | None, config: Config) -> tuple[int, Level | None]:
    """The number behind a priority, and the level's policy if a level was named."""
    if value is None:
        return 0, None
    if isinstance(value, int):
        return value, None
    level = config.levels.get(value)
    if level is None:
        raise InvalidOption(f"priority must be -10 to 100 or one of {', '.join(config.levels)}, not {value!r}.")
    return level.priority, level


def _check_priority(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise InvalidOption(f"priority must be from -10 to 100, or a level such as 'high', not {value!r}.")


def _check_when(delay: float | None, at: datetime | None) -> None:
    if delay is not None and (
        isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= MAX_DELAY_SECONDS
    ):
        raise InvalidOption(
            f"delay_seconds must be a number of seconds from 0 to {MAX_DELAY_SECONDS:,} (a thousand years), "
            f"not {delay!r}."
        )
    if at is not None:
        require_aware("scheduled_at", at)
        if delay is not None:
            raise InvalidOption("give either delay_seconds or scheduled_at, not both.")


def require_aware(name: str, moment: datetime) -> None:
    """Refuse a datetime that doesn't say which moment it means, or means none that can be stored."""
    if not isinstance(moment, datetime):
        raise InvalidOption(f"{name} must be a datetime, not {moment!r}.")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidOption(
            f"{name} is a naive datetime ({moment.isoformat()}), so its moment is unknown. "
            "Give it a time zone, e.g. datetime.now(timezone.utc)."
        )
    try:
        in_range = _FIRST_MOMENT <= moment.astimezone(UTC) < _END_OF_TIME
    except OverflowError:
        in_range = False
    if not in_range:
        raise InvalidOption(f"{name} must lie between 0001-01-03 and 9999-12-29 in UTC, not at {moment.isoformat()}.")


def _check_count(name: str, value: int | None, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INT:
        raise InvalidOption(f"{name} must be a whole number from {least} to {MAX_INT:,}, not {value!r}.")


def _check_version(value: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_VERSION:
        raise InvalidOption(f"payload_version must be a whole number from 1 to {MAX_VERSION:,}, not {value!r}.")


def _check_seconds(name: str, value: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_DELAY_SECONDS:
        raise InvalidOption(
            f"{name} must be a number of seconds above 0, at most {MAX_DELAY_SECONDS:,}, not {value!r}."
        )


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise InvalidOption(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def _checked_merge_key(value: str | Iterable[str]) -> str | tuple[str, ...]:
    """A key, or the names of the arguments that make it up."""
    if isinstance(value, str):
        _check_name("merge_key", value)
        return value
    names = tuple(value) if isinstance(value, Iterable) else ()
    if not names or not all(is_name(name) for name in names):
        raise InvalidOption(f"merge_key must be a string, or a list of names of arguments, not {value!r}.")
    return names


def _check_name(option: str, value: str | None) -> None:
    if value is not None and not is_name(value):
        raise InvalidOption(f"{option} must be a string of 1 to {MAX_NAME_BYTES} bytes, not {value!r}.")


def _check_lane_key(option: str, value: object) -> None:
    is_key = isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)) or is_name(value)
    if value is not None and not is_key:
        raise InvalidOption(f"{option} must be a string of 1 to {MAX_NAME_BYTES} bytes, or a number, not {value!r}.")


def is_name(value: object) -> bool:
    """True for a string that can name a task, a queue or a key: stored as it is, and short enough for an index."""
    return isinstance(value, str) and is_storable(value) and 1 <= len(value.encode()) <= MAX_NAME_BYTES


def is_storable(text: str) -> bool:
    """True for what PostgreSQL takes as text: no NUL, no half of a surrogate pair."""
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False


def _checked_capabilities(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidOption(f"required_capabilities must be a list such as ['gpu'], not {value!r}.")
    items = tuple(value)
    for item in items:
        if not is_name(item):
            raise InvalidOption(
                f"required_capabilities must be strings of 1 to {MAX_NAME_BYTES} bytes each, not {item!r}."
            )
    if sum(len(item.encode()) for item in items) > 2 * MAX_NAME_BYTES:
        raise InvalidOption(f"required_capabilities take more than {2 * MAX_NAME_BYTES} bytes together.")
    # One set, one spelling: equal requirements share a lane.
    return tuple(sorted(set(items)))


NOTHING_SAID = Options()
"""One for all calls without options."""
