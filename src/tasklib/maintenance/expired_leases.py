"""Duty: attempts whose lease ran out lost their worker; they are retried elsewhere or, as poison, given up."""

from __future__ import annotations

from tasklib.config import Config
from tasklib.db.link import Link
from tasklib.store import settle

_BATCH = 500


async def rescue_expired(link: Link, config: Config) -> list[tuple[str, str, str]]:
    """End all expired attempts, in small batches; returns (id, name, new state) of each. Needs no task's code."""
    rescued: list[tuple[str, str, str]] = []
    while True:
        batch = await link.run(settle.rescue(config.crash_limit, _BATCH))
        rescued += batch
        if len(batch) < _BATCH:
            return rescued
