"""The threads and child processes in which a worker's functions run."""

from __future__ import annotations

from tasklib.config import Config
from tasklib.events import Events
from tasklib.executors.processes import ProcessExecutor
from tasklib.executors.threads import ThreadExecutor


class Executors:
    """Those of one worker, over however many shards."""

    def __init__(self, config: Config, size: int, modules: tuple[str, ...], events: Events) -> None:
        self.threads = ThreadExecutor(size)
        self.processes = ProcessExecutor(config, modules, events)

    async def close(self) -> None:
        """End threads and children; the attempts are over by now."""
        self.threads.close()
        await self.processes.close()
