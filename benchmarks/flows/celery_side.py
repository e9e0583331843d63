"""Celery's chain of three, on Redis: `celery_side.py 500` submits chains."""

from __future__ import annotations

import os
import sys

from celery import Celery, chain
from marks import mark

app = Celery("celery_side", broker=os.environ["FLOWS_REDIS"], backend=os.environ["FLOWS_REDIS"])
app.conf.update(
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="first")
def first(n: int) -> int:
    mark("begin")
    return n + 1


@app.task(name="second")
def second(n: int) -> int:
    return n + 1


@app.task(name="third")
def third(n: int) -> int:
    mark("end")
    return n + 1


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        chain(first.s(number), second.s(), third.s()).apply_async()
