"""Limits as code declares them: `@task(limits=[...])` and `queue(...)`. Workers store them when they start.

@task(limits=[Limit("stripe", max_running=5), Limit("stripe_account", rate=100, per=60, key="account")])
def charge(account: str, cents: int) -> None: ...

queue("ledger", serial=True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from tasklib.errors import InvalidOption, InvalidTaskFunction
from tasklib.tasks.options import MAX_DELAY_SECONDS, MAX_INT, Options, is_name

if TYPE_CHECKING:
    from tasklib.tasks.function import TaskFunction

PART = "\x01"
"""The lane of a task behind limits begins with it, and so does each of its parts: tasklib_lane in the schema."""
_CONTROL = re.compile("[\x01-\x1f]")
_MAX_KEY_BYTES = 200
_MAX_RATE = 10**9
_OWN_KINDS = ("queue", "name", "share", "serial")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a limit allows. None: no bound of that kind."""

    max_running: int | None = None
    """How many tasks run at a time."""
    rate: float | None = None
    """How many begin in `per` seconds, evenly; at once as many as `burst`."""
    per: float | None = None
    burst: int | None = None
    serial: Literal["hold", "aside"] | None = None
    """One at a time, in order. One that failed holds the others until it is finished, or steps aside."""
    weight: int | None = None
    """Of a share: how many tasks it gets in its turn."""
    may_burst: bool | None = None
    """Of a share: whether it may run more than `max_running` in slots that no other share wants."""

    def __post_init__(self) -> None:
        _check_count("max_running", self.max_running, 0)
        _check_count("weight", self.weight, 1, 1_000_000)
        _check_count("burst", self.burst, 1)
        _check_number("rate", self.rate, _MAX_RATE)
        _check_number("per", self.per, MAX_DELAY_SECONDS)
        if self.serial is not None and self.serial not in ("hold", "aside"):
            raise InvalidOption(f"serial must be 'hold' or 'aside', not {self.serial!r}.")
        if self.rate is None and (self.per is not None or self.burst is not None):
            raise InvalidOption("per and burst belong to a rate: rate=100, per=60, burst=20.")
        if self.rate is not None:  # one by one, a second apart, unless said otherwise
            object.__setattr__(self, "per", 1.0 if self.per is None else self.per)
            object.__setattr__(self, "burst", self.burst or 1)
        if self.serial is not None and (self.max_running is not None):
            raise InvalidOption("a serial queue runs one task at a time: omit max_running.")

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return any(value is not None for value in asdict(self).values())

    def stored(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class Limit:
    """A limit on the tasks of a function, or on all that name it.

    `max_running`: so many run at a time, over the whole fleet. `rate`, `per`, `burst`: in any `w` seconds at most
    `burst + rate * w / per` begin. `key`: an argument of the function; each of its values has a limit of its own.
    `cost`: how much of a rate one task uses. Without a name, it is the limit of this one function.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        max_running: int | None = None,
        rate: float | None = None,
        per: float | None = None,
        burst: int | None = None,
        key: str | None = None,
        cost: int = 1,
    ) -> None:
        if name is not None:
            check_limit_name(name)
            if name.partition(":")[0] in _OWN_KINDS:
                raise InvalidOption(f"a limit's own name can't begin with {name.partition(':')[0]!r}.")
        if key is not None and not is_name(key):
            raise InvalidOption(f"key must be the name of an argument, not {key!r}.")
        check_cost(cost)
        self.name = name
        self.rule = Rule(max_running, rate, per, burst)
        self.key = key
        self.cost = cost
        if name is None and not self.rule:
            raise InvalidOption("Limit() bounds nothing: give max_running or rate, or the name of another limit.")

    def __repr__(self) -> str:
        said = {**self.rule.stored(), "key": self.key, "cost": None if self.cost == 1 else self.cost}
        given = [repr(self.name)] if self.name else []
        return f"Limit({', '.join([*given, *(f'{k}={v!r}' for k, v in said.items() if v is not None)])})"


queues: dict[str, Rule] = {}
"""Declared by `queue(...)`."""


def queue(
    name: str,
    *,
    serial: bool | Literal["hold", "aside"] = False,
    max_running: int | None = None,
    rate: float | None = None,
    per: float | None = None,
    burst: int | None = None,
) -> str:
    """Declare how a queue runs its tasks, and return its name. Workers that import this store it when they start.

    `serial=True`: one task at a time over the whole fleet, in the order of submission. A task that failed holds the
    queue until it is finished; with `serial="aside"` it lets the others pass until its retry is due.

    LEDGER = queue("ledger", serial=True)

    @task(queue=LEDGER)
    def book(entry: int) -> None: ...
    """
    Options(queue=name)  # checks it
    order: Any = "hold" if serial is True else serial or None
    rule = Rule(max_running, rate, per, burst, order)
    if not rule:
        raise InvalidOption(f"queue({name!r}) declares nothing: give serial, max_running or rate.")
    queues[name] = rule
    return name


@contextmanager
def isolated() -> Iterator[None]:
    """No declared queues inside the block, the former ones after it; for tests."""
    before = dict(queues)
    queues.clear()
    try:
        yield
    finally:
        queues.clear()
        queues.update(before)


@dataclass(frozen=True, slots=True)
class DeclaredLimits:
    """What the code says of limits: the rows by their names, and which limits the tasks of each name have."""

    rules: Mapping[str, Rule]
    uses: Mapping[str, list[dict[str, Any]]]


def declared(functions: Iterable[TaskFunction[Any, Any]]) -> DeclaredLimits:
    """What these functions, and all queues, are declared with."""
    rules = {f"queue:{name}": rule for name, rule in queues.items()}
    uses: dict[str, list[dict[str, Any]]] = {}
    for function in functions:
        for limit in function.limits:
            name = limit.name or f"name:{function.name}"
            if limit.rule and rules.setdefault(name, limit.rule) != limit.rule:
                raise InvalidTaskFunction(f"{function.name}: the limit {name!r} is declared in two different ways.")
        if found := [*_uses_of(function)]:
            uses[function.name] = found
    return DeclaredLimits(rules, uses)


def any_declared(functions: Iterable[TaskFunction[Any, Any]]) -> bool:
    """Whether the code says anything of limits."""
    return bool(queues) or any(f.limits or f.serial_key or f.share for f in list(functions))


def _uses_of(function: TaskFunction[Any, Any]) -> Iterator[dict[str, Any]]:
    for limit in function.limits:
        yield {"limit": limit.name or f"name:{function.name}", "key": limit.key, "cost": limit.cost}
    if function.serial_key is not None:
        yield {"serial": function.serial_key}
    if function.share is not None:
        yield {"share": function.share}


def checked_limits(limits: object, function: TaskFunction[Any, Any]) -> tuple[Limit, ...]:
    """The limits of a function, each of whose keys is one of its arguments."""
    found: list[Limit] = []
    for limit in limits if isinstance(limits, Iterable) and not isinstance(limits, Limit) else (limits,):
        if not isinstance(limit, Limit):
            raise InvalidTaskFunction(f"{function.name}: limits takes Limit(...), not {limit!r}.")
        _check_argument(function, "key", limit.key)
        found.append(limit)
    _check_argument(function, "serial_key", function.serial_key)
    _check_argument(function, "share", function.share)
    named = [limit.name for limit in found]
    if len(set(named)) < len(named):
        raise InvalidTaskFunction(f"{function.name}: one limit is given twice.")
    return tuple(found)


def _check_argument(function: TaskFunction[Any, Any], what: str, name: str | None) -> None:
    """Refuse a name that is no argument of the function."""
    if name is not None and name not in function.arguments.parameters:
        known = ", ".join(function.arguments.parameters) or "none"
        raise InvalidTaskFunction(f"{function.name}: {what} must be one of its arguments ({known}), not {name!r}.")


def check_limit_name(name: object) -> None:
    if not is_name(name) or _CONTROL.search(str(name)):
        raise InvalidOption(f"a limit's name is a string of 1 to 500 bytes without control characters, not {name!r}.")


def check_cost(cost: object) -> None:
    _check_count("cost", cost, 1)


def lane_of(options: Options) -> str:
    """The lane of a task with these options; empty without a share and a serial key."""
    parts = (("k", options.serial_key), ("s", options.share))
    return "".join(f"{PART}{kind}{lane_key(str(value))}" for kind, value in parts if value is not None)


def lane_key(value: str) -> str:
    """A key as a lane holds it; the same as tasklib_lane_key."""
    if len(value.encode()) <= _MAX_KEY_BYTES and not _CONTROL.search(value):
        return value
    import hashlib  # rarely needed, and no part of what a module that only defines tasks loads

    return f"md5-{hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()}"


def _check_count(name: str, value: object, least: int, most: int = MAX_INT) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
        raise InvalidOption(f"{name} must be a whole number from {least} to {most:,}, not {value!r}.")


def _check_number(name: str, value: object, most: float) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most):
        raise InvalidOption(f"{name} must be a number above 0, at most {most:,}, not {value!r}.")
