"""The calls about limits, for sync and async callers."""

from __future__ import annotations

from typing import Literal

from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.errors import InvalidOption
from tasklib.formatting import count, duration
from tasklib.store import limits
from tasklib.store.limits import LimitInfo
from tasklib.tasks import registry
from tasklib.tasks.limits import Rule, check_limit_name, declared

_NEEDS_ONE = ("queue", "name", "serial")


class LimitCalls(OnBehalf):
    """Limits, for operators."""

    def limits(self) -> Call[list[LimitInfo]]:
        """All limits, by name, with how many tasks hold places in them."""
        found: list[LimitInfo] = yield limits.limits()
        return found

    def set_limit(
        self,
        name: str,
        *,
        max_running: int | None = None,
        rate: float | None = None,
        per: float | None = None,
        burst: int | None = None,
        serial: bool | Literal["hold", "aside"] | None = None,
        weight: int | None = None,
        may_burst: bool | None = None,
    ) -> Call[bool]:
        """Set a limit, in place of what it was: of a queue (`queue:mail`), a task name (`name:send_email`), a share
        (`share:acme`; `share` is for each of them), the serial keys of a queue (`serial:ledger`), or a limit that
        functions name (`stripe`; `stripe:acme` for one of its keys).

        Takes effect with the next claim; what runs goes on. Returns False if that changed nothing.
        """
        order = "hold" if serial is True else serial or None
        rule = Rule(max_running, rate, per, burst, order, weight, may_burst)
        check(name, rule)
        return (yield from self._store_limit(name, rule))

    def remove_limit(self, name: str) -> Call[bool]:
        """Remove a limit; one that the code declares stays off until `reset_limit`. False if there was none."""
        check_limit_name(name)
        changed: bool = yield limits.remove_limit(name, by=self.identity.actor)
        return changed

    def reset_limit(self, name: str) -> Call[bool]:
        """Let a limit be as the code declares it, from now on. False if it is, or if the code doesn't declare it."""
        check_limit_name(name)
        changed: bool = yield limits.reset_limit(name, by=self.identity.actor)
        return changed

    def sync_limits(self) -> Call[int]:
        """Store the limits that the code of this program declares; workers do it when they start.

        What an operator changed stays. Returns how many limits, and names of tasks with limits, were new or changed.
        """
        functions = registry.distinct()
        found = declared(functions)
        rules = {name: rule.stored() for name, rule in found.rules.items()}
        changed: int = yield limits.sync(rules, found.uses, [function.name for function in functions])
        return changed

    def _store_limit(self, name: str, rule: Rule) -> Call[bool]:
        changed: bool = yield limits.set_limit(name, rule.stored(), by=self.identity.actor)
        return changed


def check(name: str, rule: Rule) -> None:
    """Refuse what means nothing for a limit of this name."""
    check_limit_name(name)
    subject, _, thing = name.partition(":")
    if subject in _NEEDS_ONE and not thing:
        raise InvalidOption(f"a limit of a {subject} names it: {subject}:default, not {name!r}.")
    if subject != "share" and (rule.weight is not None or rule.may_burst is not None):
        raise InvalidOption(f"weight and may_burst are for shares, such as share:acme, not for {name!r}.")
    if rule.serial is not None and subject not in ("queue", "serial"):
        raise InvalidOption(f"serial is for queues, such as queue:ledger, and serial keys, not for {name!r}.")
    if subject == "serial" and (rule.serial is None or len(rule.stored()) > 1):
        raise InvalidOption(f"for {name!r}, give serial='hold' or serial='aside', and nothing else.")
    if not rule:
        raise InvalidOption(f"the limit {name!r} bounds nothing: give max_running, rate, serial or weight.")


def said(info: LimitInfo) -> str:
    """What a limit allows, in words."""
    parts = []
    if info.max_running is not None:
        parts.append(f"{count(info.max_running, 'task')} at a time")
    if info.rate is not None and info.per is not None:
        parts.append(f"{info.rate:g} in {duration(info.per)}, {info.burst} at once")
    if info.serial is not None:
        parts.append("one by one" + (", failed ones step aside" if info.serial == "aside" else ""))
    if info.weight is not None:
        parts.append(f"weight {info.weight}")
    if info.may_burst:
        parts.append("more in idle slots")
    return "; ".join(parts)
