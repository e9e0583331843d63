"""One worker of the fleet, in a process of its own. What is out of the ordinary goes into its log."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from importlib import import_module

from proof.chaos import flow_tasks, tasks
from proof.chaos.scene import SETTINGS, scene
from proof.history.actors import ActorLog
from tasklib import Config, Worker
from tasklib.events import Event, LeaseLost, ResultRefused


async def main(name: str, way: str) -> None:
    here = scene()
    log = ActorLog(here.log_directory, f"{name}-{os.getpid()}")
    over_shards = way.endswith(".toml")
    config = Config(shards_file=way, **SETTINGS) if over_shards else here.config(proxied=way == "proxied")
    config = config.with_changes(worker_id=name)
    server = f"http://127.0.0.1:{here.http_port}" if way == "http" else None
    modules = [tasks.__name__, flow_tasks.__name__]
    if way != "http":  # a worker over HTTP refuses durable functions
        modules.append(import_module("proof.chaos.database_tasks").__name__)
    if here.limits:  # which would declare them in other runs, too
        modules.append(import_module("proof.chaos.limited_tasks").__name__)
    worker = Worker(config, server=server, concurrency=tasks.SLOTS, modules=modules)

    def note(event: Event) -> None:
        match event:
            case ResultRefused(id_, _, token):
                log.write(op="refused", task=id_, token=token)
            case LeaseLost(id_, _, token):
                log.write(op="lease lost", task=id_, token=token)
            case _:
                log.write(op="event", event=repr(event)[:300])

    worker.events.subscribe(note, routine=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
