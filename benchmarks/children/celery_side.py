"""Celery's side, on Redis: `celery_side.py 500` puts tasks into the queue."""

from __future__ import annotations

import os
import sys

from body import nap_and_mark
from celery import Celery

app = Celery("celery_side", broker=os.environ["CHILDREN_REDIS"])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="nap")
def nap() -> None:
    nap_and_mark()


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        nap.apply_async()
