"""The programs that are measured: `python -m tools.walk.programs client|worker`. Configured by TASKLIB_* variables.

Each says in JSON lines on its standard output what happened and when (nanoseconds, monotonic).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

import tasklib
from tools.walk import tasks


def say(what: str, **more: Any) -> None:
    print(json.dumps({"what": what, "at": time.monotonic_ns(), **more}), flush=True)


async def client() -> None:
    """Submit and get one task after another; only the first call has to connect."""
    tasklib.init(os.environ["TASKLIB_DATABASE_URL"])
    for number in range(int(sys.argv[2])):
        say("submit begins")
        task_id = await tasks.add_async.submit(number)
        say("submit ends")
        say("get begins")
        await tasklib.get_task(task_id)
        say("get ends")
    tasklib.close()


async def worker() -> None:
    """Work until SIGTERM, for a database or for the server in WALK_SERVER."""
    made = tasklib.Worker(
        server=os.environ.get("WALK_SERVER"), concurrency=int(sys.argv[2]), modules=["tools.walk.tasks"]
    )
    made.events.subscribe(lambda event: say(type(event).__name__, id=str(getattr(event, "id", ""))))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, made.stop)
    await made.run()


if __name__ == "__main__":
    asyncio.run({"client": client, "worker": worker}[sys.argv[1]]())
