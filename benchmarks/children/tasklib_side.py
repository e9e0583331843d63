"""TaskLib's side: `tasklib_side.py submit 500` puts tasks into the queue, `tasklib_side.py starts 50` times starts."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from typing import Any

from body import nap_and_mark

import tasklib
from tasklib import Client, Config, TaskContext, task
from tasklib.executors.processes import ProcessExecutor


@task(name="nap", executor="process")
def nap() -> None:
    nap_and_mark()


@task(name="nothing", executor="process")
def nothing() -> None: ...


async def starts(count: int) -> dict[str, Any]:
    """Milliseconds of the first attempt, and of others that each need a new child: started, called, answered."""
    executor = ProcessExecutor(Config("postgresql://", process_max_tasks=1), ["tasklib_side"])
    times = []
    for _ in range(count + 1):
        context = TaskContext(uuid.uuid4(), "nothing", 1, 1, 1, "default", "bench")
        before = time.monotonic()
        outcome = await executor.run(nothing, "{}", context)
        times.append((time.monotonic() - before) * 1000)
        assert hasattr(outcome, "result"), outcome
        await asyncio.sleep(0.05)  # the one before has left by now, and takes no processor from the next
    await executor.close()
    return {"first": times[0], "others": times[1:], "tasklib": tasklib.__file__}


if __name__ == "__main__":
    import tasklib_side  # by its name, as a worker imports it

    what, number = sys.argv[1], int(sys.argv[2])
    if what == "submit":
        with Client() as client:
            client.submit_many(tasklib_side.nap, [{}] * number)
    else:
        print(json.dumps(asyncio.run(tasklib_side.starts(number))))
