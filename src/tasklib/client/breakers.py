"""The calls about circuit breakers, for sync and async callers."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.errors import InvalidOption
from tasklib.formatting import count, duration
from tasklib.store import breakers
from tasklib.store.breakers import BreakerInfo
from tasklib.tasks import registry
from tasklib.tasks.breakers import MAX_PAUSE_SECONDS, Breaker, declared_breakers
from tasklib.tasks.options import is_name


class BreakerCalls(OnBehalf):
    """Circuit breakers of task names, for operators."""

    def breakers(self) -> Call[list[BreakerInfo]]:
        """All breakers, by name, and how it is with each."""
        found: list[BreakerInfo] = yield breakers.breakers()
        return found

    def set_breaker(
        self,
        name: str,
        *,
        failures: float = 0.5,
        at_least: int = 20,
        within: float = 60.0,
        pause: float = 60.0,
        probes: int = 3,
    ) -> Call[bool]:
        """Set the breaker of a task name, in place of what it was: if this share of at least so many attempts failed
        within so many seconds, tasks of the name wait for `pause` seconds; then `probes` of them run before the others.

        Returns False if that changed nothing.
        """
        _check(name)
        return (yield from self._store_breaker(name, Breaker(failures, at_least, within, pause, probes)))

    def remove_breaker(self, name: str) -> Call[bool]:
        """Remove a breaker; one that the code declares stays off until `reset_breaker`. False if there was none."""
        _check(name)
        changed: bool = yield breakers.remove_breaker(name, by=self.identity.actor)
        return changed

    def reset_breaker(self, name: str) -> Call[bool]:
        """Let a breaker be as the code declares it. False if it is, or if the code doesn't declare it."""
        _check(name)
        changed: bool = yield breakers.reset_breaker(name, by=self.identity.actor)
        return changed

    def open_breaker(self, name: str, seconds: float | None = None) -> Call[bool]:
        """Open a breaker by hand: tasks of the name wait for so many seconds, or until it is closed.

        False if there is no such breaker.
        """
        _check(name)
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_PAUSE_SECONDS
        ):
            raise InvalidOption(f"seconds must be a number above 0, at most {MAX_PAUSE_SECONDS:,}, not {seconds!r}.")
        changed: bool = yield breakers.open_breaker(name, seconds, by=self.identity.actor)
        return changed

    def close_breaker(self, name: str) -> Call[bool]:
        """Close a breaker by hand: tasks of the name run, and earlier failures don't count. False if it was closed."""
        _check(name)
        changed: bool = yield breakers.close_breaker(name, by=self.identity.actor)
        return changed

    def sync_breakers(self) -> Call[int]:
        """Store the breakers that the code of this program declares; workers do it when they start.

        What an operator changed stays. Returns how many were new or changed.
        """
        functions = list(registry.functions.values())
        changed: int = yield breakers.sync(declared_breakers(functions), [function.name for function in functions])
        return changed

    def _store_breaker(self, name: str, breaker: Breaker) -> Call[bool]:
        changed: bool = yield breakers.set_breaker(name, breaker.stored(), by=self.identity.actor)
        return changed


def _check(name: object) -> None:
    if not is_name(name):
        raise InvalidOption(f"a breaker is that of a task name, a string of 1 to 500 bytes, not {name!r}.")


def terms_text(info: BreakerInfo) -> str:
    """When a breaker opens, in words."""
    if info.failures is None:
        return "off"
    return (
        f"{info.failures:.0%} of {count(info.at_least or 0, 'attempt')} in {duration(info.within or 0)}, "
        f"for {duration(info.pause or 0)}, then {count(info.probes or 0, 'probe')}"
    )


def state_text(info: BreakerInfo) -> str:
    """How it is with a breaker, in words."""
    match info.state:
        case "open" if info.until is not None:
            return f"open until {info.until:%Y-%m-%d %H:%M:%S %Z}"
        case "open":
            return "open until it is closed"
        case "probing":
            return f"probing: {info.passed} of {count(info.probes or 0, 'probe')}"
    return "closed"
