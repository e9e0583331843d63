"""What all programs of a chaos run share: settings as one JSON value in the environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasklib import Config

# Everything happens faster than by default, so that a run of minutes sees what takes hours.
SETTINGS: dict[str, Any] = {
    "heartbeat_interval_seconds": 1.0,
    "heartbeat_timeout_seconds": 4.0,
    "lock_timeout_seconds": 8.0,
    "leader_lease_seconds": 3.0,
    "sweep_interval_seconds": 1.0,
    "upkeep_interval_seconds": 5.0,
    "overdue_grace_seconds": 3.0,
    "poll_interval_seconds": 0.5,
    "statement_timeout_seconds": 5.0,
    "connect_timeout_seconds": 3.0,
    "shutdown_grace_seconds": 5.0,
    "crash_limit": 6,
    "max_retries": 10,
    "max_prefetch": 100,
    "actor": "chaos",
}


@dataclass(frozen=True)
class Scene:
    """Where a run takes place."""

    direct_url: str
    proxied_url: str
    logs: str
    seed: int
    rate: float
    """Tasks a second that all submitters together aim at."""
    http_port: int
    deep: int = 20_000
    """Submitters pause while more than this wait."""
    schedules: int = 0
    """Schedules of one second."""
    flows: bool = False
    """Submit flows, and few other tasks."""
    limits: bool = False
    """Submit tasks behind limits, and few others."""

    def config(self, *, proxied: bool = False) -> Config:
        return Config(self.proxied_url if proxied else self.direct_url, **SETTINGS)

    def environment(self) -> dict[str, str]:
        return {"CHAOS_SCENE": json.dumps(asdict(self)), "CHAOS_LOGS": self.logs}

    @property
    def log_directory(self) -> Path:
        return Path(self.logs)


def scene() -> Scene:
    return Scene(**json.loads(os.environ["CHAOS_SCENE"]))
