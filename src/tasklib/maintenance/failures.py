"""Errors in what goes on beside the work: reported, counted, and survived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tasklib.errors import DatabaseUnavailable
from tasklib.events import DutyFailed, Events
from tasklib.stats import StatsCollector


class Failures:
    """Keeps one failed round of a duty from ending the process: the next round tries again."""

    def __init__(self, events: Events, collector: StatsCollector) -> None:
        self._events = events
        self._collector = collector

    @contextmanager
    def survived(self, duty: str) -> Iterator[None]:
        """Whatever goes wrong in the block is reported and counted, and the program goes on behind it."""
        try:
            yield
        except DatabaseUnavailable:
            pass  # the connection has reported it; the next round finds what this one could not
        except Exception as e:
            self._collector.count("duty_failed", reason=duty)
            self._events.emit(DutyFailed(duty, f"{type(e).__name__}: {' '.join(str(e).split())}"))
