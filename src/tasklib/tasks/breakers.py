"""Circuit breakers as code declares them: `@task(breaker=Breaker(...))`. Workers store them when they start.

@task(breaker=Breaker(failures=0.5, at_least=20, within=60, pause=60, probes=3))
def charge(account: str, cents: int) -> None: ...
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tasklib.errors import InvalidOption, InvalidTaskFunction

if TYPE_CHECKING:
    from tasklib.tasks.function import TaskFunction

MAX_WITHIN_SECONDS = 86_400
MAX_PAUSE_SECONDS = 31_536_000
MAX_PROBES = 1000
MAX_ATTEMPTS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Breaker:
    """When the tasks of a name stop to begin: after this share of `failures` among at least so many attempts.

    They wait for `pause` seconds and use no retry. Then `probes` of them run; if none fails, all go on.
    """

    failures: float = 0.5
    """From above 0 to 1: 0.5 is every second attempt."""
    at_least: int = 20
    """How many attempts must have ended, before the share of failures means anything."""
    within: float = 60.0
    """In how many seconds."""
    pause: float = 60.0
    """For how many seconds nothing begins."""
    probes: int = 3
    """How many tasks run before all others, and must not fail."""

    def __post_init__(self) -> None:
        _check_number("failures", self.failures, 1)
        _check_number("within", self.within, MAX_WITHIN_SECONDS)
        _check_number("pause", self.pause, MAX_PAUSE_SECONDS)
        _check_count("at_least", self.at_least, MAX_ATTEMPTS)
        _check_count("probes", self.probes, MAX_PROBES)

    def stored(self) -> dict[str, Any]:
        return asdict(self)


def checked_breaker(breaker: object, function: TaskFunction[Any, Any]) -> None:
    if not isinstance(breaker, Breaker):
        raise InvalidTaskFunction(f"{function.name}: breaker takes Breaker(...), not {breaker!r}.")


def declared_breakers(functions: Iterable[TaskFunction[Any, Any]]) -> dict[str, dict[str, Any]]:
    """The breakers that these functions are declared with, by name."""
    return {function.name: function.breaker.stored() for function in functions if function.breaker is not None}


def _check_number(name: str, value: object, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidOption(f"{name} must be a number above 0, at most {most:,}, not {value!r}.")


def _check_count(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidOption(f"{name} must be a whole number from 1 to {most:,}, not {value!r}.")
