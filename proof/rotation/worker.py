"""What runs and submits sealed tasks while their key is rotated: `work` until SIGTERM, or `produce`.

The keyring is in TASKLIB_KEYS: the worker's has the new key first, the producer's still the old one.
"""

from __future__ import annotations

import itertools
import signal
import sys

from tasklib import Client, Config, Worker, task


@task(name="rotation.pay", sealed=True, max_retries=0)
async def pay(n: int) -> int:
    return n


def produce(config: Config, begin: int) -> None:
    """Submit tasks with numbers from `begin` on, until SIGTERM; print how many."""
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    with Client(config) as client:
        for done in itertools.count():
            if stops:
                print(done, flush=True)
                return
            client.submit_task(pay, n=begin + done)


if __name__ == "__main__":
    found = Config.from_env()
    if sys.argv[1] == "work":
        Worker(found, concurrency=4).run_sync()
    else:
        produce(found, int(sys.argv[2]))
