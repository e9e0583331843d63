"""Attempts whose lease has expired and that were not recovered."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, critical, ok
from tasklib.formatting import count, duration
from tasklib.store import doctor

_MOST = 1000


def look(config: Config) -> Call[list[Finding]]:
    grace = 2 * config.sweep_interval_seconds + config.leader_lease_seconds
    ended: tuple[int, float | None] = yield doctor.ended_leases(grace, _MOST)
    number, seconds = ended
    if not number:
        return [ok("ended_leases", "No lease has ended without being rescued.")]
    at_least = "at least " if number == _MOST else ""
    return [
        critical(
            "ended_leases",
            f"The leases of {at_least}{count(number, 'running task')} expired, the first {duration(seconds or 0)} "
            "ago, and the tasks were not recovered.",
            f"The leader recovers them every {duration(config.sweep_interval_seconds)}: there is none, or it fails.",
            "Start a worker (tasklib worker MODULE), or check the log of the leader, which tasklib workers names.",
            count=number,
            oldest_seconds=seconds,
        )
    ]
