"""Dramatiq on Redis; its actors are synchronous. Options: `processes`, `threads` of each."""

from __future__ import annotations

import dramatiq
from adapter import OPTIONS, REDIS_URL, SyncAdapter, become, hit, main, nap_sync, started
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=REDIS_URL))


@dramatiq.actor
def noop() -> None:
    hit()


@dramatiq.actor
def ping(number: int) -> None:
    started(number)


@dramatiq.actor
def nap() -> None:
    nap_sync()


ACTORS = {"noop": noop, "sync_noop": noop, "ping": ping, "nap": nap}


class DramatiqAdapter(SyncAdapter):
    """There is no call for many: they are sent one by one."""

    def submit(self, kind: str, number: int) -> None:
        ACTORS[kind].send(*([number] if kind == "ping" else []))

    def work(self) -> None:
        how = ["--processes", str(OPTIONS["processes"]), "--threads", str(OPTIONS["threads"])]
        become("dramatiq", "dramatiq_adapter", *how)


if __name__ == "__main__":
    main(DramatiqAdapter())
