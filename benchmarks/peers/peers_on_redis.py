"""The peers on Redis. They keep no finished task, and their broker keeps nothing over a crash."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.peers.systems import WORKLOADS, System

# Neither tables to fill nor snapshots to hold.
_ALL = frozenset(WORKLOADS) - {"W7", "W8"}

_CELERY = System(
    name="celery-threads",
    environment="celery",
    distribution="celery",
    adapter="celery_adapter.py",
    broker="redis",
    workloads=_ALL,
    options={"pool": "threads", "concurrency": 10, "prefetch": 64},
    sizes={"W1": 5000, "W2": 5000, "drain": 6000, "W10": 4000},
    slots=10,
    unfinished_keys=("llen celery", "hlen unacked"),
)

_DRAMATIQ = System(
    name="dramatiq",
    environment="dramatiq",
    distribution="dramatiq",
    adapter="dramatiq_adapter.py",
    broker="redis",
    workloads=_ALL,
    options={"processes": 1, "threads": 8},
    sizes={"W1": 5000, "W2": 10_000, "drain": 10_000, "W10": 8000},
    slots=8,
    unfinished_keys=("llen dramatiq:default", "hlen dramatiq:default.msgs"),
)

_RQ = System(
    name="rq",
    environment="rq",
    distribution="rq",
    adapter="rq_adapter.py",
    broker="redis",
    workloads=_ALL,
    options={"batch": 1000},
    sizes={"W1": 3000, "W2": 10_000, "drain": 2000, "W10": 4000},
    slots=1,
    unfinished_keys=("llen rq:queue:default", "zcard rq:wip:default"),
)

_TASKIQ = System(
    name="taskiq",
    environment="taskiq",
    distribution="taskiq",
    adapter="taskiq_adapter.py",
    broker="redis",
    workloads=_ALL,
    options={"concurrency": 100, "prefetch": 100, "pool": 50, "batch": 50},
    sizes={"W1": 5000, "W2": 15_000, "drain": 15_000, "W10": 8000},
    slots=100,
    unfinished_keys=("llen taskiq",),
)

_ARQ = System(
    name="arq",
    environment="arq",
    distribution="arq",
    adapter="arq_adapter.py",
    broker="redis",
    workloads=_ALL - {"W6"},  # its functions are coroutines only
    options={"concurrency": 100, "poll_seconds": 0.01, "read_limit": 200, "batch": 50},
    sizes={"W1": 5000, "W2": 5000, "drain": 5000, "W10": 5000},
    slots=100,
    unfinished_keys=("zcard arq:queue",),
)

ON_REDIS = (
    _CELERY,
    replace(_CELERY, name="celery-prefork", options={"pool": "prefork", "concurrency": 2, "prefetch": 64}, slots=2),
    _DRAMATIQ,
    _RQ,
    _TASKIQ,
    _ARQ,
)
