"""What operators ask of the fleet, without a colour like every call."""

from __future__ import annotations

from tasklib.config import Config


class OperatorCalls:
    """Workers, pauses, settings, mass cancel and dead letters, for one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
