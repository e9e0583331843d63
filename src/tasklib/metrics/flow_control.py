"""Metrics of limits and circuit breakers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tasklib.store.breakers import BreakerInfo
from tasklib.store.limits import LimitInfo

MOST = 200
"""Limits and breakers beyond these, by name, have no series: `tasklib limit list` shows them all."""
_STATES = {"closed": 0, "probing": 1, "open": 2}


def of_limits(limits: Sequence[LimitInfo]) -> Iterator[Metric]:
    """Places of limits, and which of them are held."""
    most = GaugeMetricFamily("limit_max_running", "How many tasks a limit lets run at a time.", labels=["limit"])
    running = GaugeMetricFamily("limit_running", "Tasks that hold a place in a limit.", labels=["limit"])
    blocked = GaugeMetricFamily("limit_blocked", "1 while a limit is held by `Throttled`.", labels=["limit"])
    for limit in limits[:MOST]:
        if limit.max_running is not None:
            most.add_metric([limit.name], limit.max_running)
        if limit.max_running is not None or limit.serial is not None:
            running.add_metric([limit.name], limit.running)
        blocked.add_metric([limit.name], limit.blocked_until is not None)
    yield from (most, running, blocked)


def of_breakers(breakers: Sequence[BreakerInfo]) -> Iterator[Metric]:
    """The states of circuit breakers, and how often each has opened."""
    state = GaugeMetricFamily("breaker_state", "0: closed. 1: probing. 2: open, tasks wait.", labels=["task"])
    opened = CounterMetricFamily("breaker_opened", "How often a circuit breaker has opened.", labels=["task"])
    for breaker in breakers[:MOST]:
        state.add_metric([breaker.name], _STATES[breaker.state])
        opened.add_metric([breaker.name], breaker.opened)
    yield from (state, opened)
