"""RQ on Redis, with the worker that doesn't fork for each job. Option: `batch` of enqueue_many."""

from __future__ import annotations

from adapter import OPTIONS, REDIS_URL, SyncAdapter, chunks, hit, main, nap_sync, started
from redis import Redis
from rq import Queue, SimpleWorker

connection = Redis.from_url(REDIS_URL)
queue = Queue("default", connection=connection)


def noop() -> None:
    hit()


def ping(number: int) -> None:
    started(number)


def nap() -> None:
    nap_sync()


# By path: the worker imports them.
PATHS = {kind: f"rq_adapter.{name}" for kind, name in [("noop", "noop"), ("sync_noop", "noop"), ("ping", "ping")]}
PATHS["nap"] = "rq_adapter.nap"


class Rq(SyncAdapter):
    def submit(self, kind: str, number: int) -> None:
        queue.enqueue(PATHS[kind], *([number] if kind == "ping" else []), result_ttl=0)

    def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["batch"]):
            queue.enqueue_many([Queue.prepare_data(PATHS[kind], result_ttl=0) for _ in range(size)])

    def work(self) -> None:
        SimpleWorker([queue], connection=connection).work(logging_level="ERROR")


if __name__ == "__main__":
    main(Rq())
