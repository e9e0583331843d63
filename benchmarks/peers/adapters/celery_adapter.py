"""Celery on Redis; its tasks are synchronous. Options: `pool` (prefork or threads), `concurrency`, `prefetch`."""

from __future__ import annotations

from adapter import OPTIONS, REDIS_URL, SyncAdapter, become, hit, main, nap_sync, started
from celery import Celery

app = Celery("celery_adapter", broker=REDIS_URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=OPTIONS.get("prefetch", 64),
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop() -> None:
    hit()


@app.task(name="ping")
def ping(number: int) -> None:
    started(number)


@app.task(name="nap")
def nap() -> None:
    nap_sync()


TASKS = {"noop": noop, "sync_noop": noop, "ping": ping, "nap": nap}


class CeleryAdapter(SyncAdapter):
    def submit(self, kind: str, number: int) -> None:
        TASKS[kind].apply_async((number,) if kind == "ping" else ())

    def submit_many(self, kind: str, count: int) -> None:
        """There is no call for many; one connection for all is the documented advice."""
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                TASKS[kind].apply_async(producer=producer)

    def work(self) -> None:
        alone = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        how = ["--pool", OPTIONS["pool"], "--concurrency", str(OPTIONS["concurrency"]), "--loglevel", "CRITICAL"]
        become("celery", "--app", "celery_adapter", "worker", *how, *alone)


if __name__ == "__main__":
    main(CeleryAdapter())
