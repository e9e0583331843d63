"""The text that Prometheus reads, and a small server of it for a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tasklib.metrics import families
from tasklib.stats import StatsCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return []  # asked for when it is registered; nothing is read for that


def text(metrics: Iterable[Metric]) -> bytes:
    """The metrics in Prometheus' text format."""
    return generate_latest(_registry(lambda: metrics))


class Watched(Protocol):
    """The metrics of one worker."""

    @property
    def collector(self) -> StatsCollector: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def taken(self) -> int: ...


@contextmanager
def exposed(worker: Watched, port: int, host: str) -> Iterator[int]:
    """Serve a worker's own metrics, from a thread, during the block. Gives the port."""

    def collect() -> Iterator[Metric]:
        yield from families.of_stats(worker.collector.totals())
        yield from families.of_slots(worker.concurrency, worker.taken)

    server, thread = start_http_server(port, addr=host, registry=_registry(collect))
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _registry(collect: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(collect))
    return registry
