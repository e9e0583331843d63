"""Tasks are submitted and run while the primary changes: what was acknowledged, what is lost, how long it took."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from proof.failover.cluster import Cluster, Node
from tasklib import Client, Config, Worker, task
from tasklib.errors import TaskLibError
from tasklib.migrations import migrate

SETTINGS: dict[str, Any] = {
    "heartbeat_interval_seconds": 1.0,
    "heartbeat_timeout_seconds": 5.0,
    "lock_timeout_seconds": 10.0,
    "leader_lease_seconds": 5.0,
    "sweep_interval_seconds": 1.0,
    "statement_timeout_seconds": 5.0,
    "connect_timeout_seconds": 3.0,
    "max_retries": 10,
}
FAULTS: dict[str, Callable[[Cluster], Node]] = {
    "switchover": Cluster.switch_over,
    "primary killed": Cluster.kill_primary,
    "primary cut off": Cluster.cut_off_primary,
    "primary frozen": Cluster.freeze_primary,
}


@task(name="failover.work")
async def work(number: int) -> int:
    return number


@dataclass
class Trial:
    """One fault."""

    fault: str
    to_the_next_submission: float
    """Seconds from the fault to the first submission acknowledged after it: the RTO."""
    to_the_next_completion: float
    acknowledged: int = 0
    lost: int = 0


@dataclass
class Result:
    """A run in one mode."""

    synchronous: bool
    trials: list[Trial] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    lost: int = 0
    unfinished: int = 0
    doubled: int = 0

    def figures(self) -> dict[str, Any]:
        return asdict(self)


class Producer(threading.Thread):
    """Submits one task after the other and remembers what was acknowledged, and when."""

    def __init__(self, config: Config) -> None:
        super().__init__(daemon=True)
        self._config = config
        self._ended = threading.Event()
        self.acknowledged: list[tuple[float, UUID]] = []
        self.unknown = 0

    def run(self) -> None:
        number = 0
        with Client(self._config) as client:
            while not self._ended.wait(0.005):
                number += 1
                try:
                    task_id = client.submit_task("failover.work", number=number, registered_elsewhere=True)
                except (TaskLibError, psycopg.Error):
                    self.unknown += 1
                else:
                    self.acknowledged.append((time.monotonic(), task_id))

    def stop(self) -> None:
        self._ended.set()
        self.join(60)


class BenchWorkers(threading.Thread):
    """A worker in a loop of its own, started again should it ever end with an error."""

    def __init__(self, config: Config) -> None:
        super().__init__(daemon=True)
        self._config = config
        self._ended = threading.Event()
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                asyncio.run(self._work())
            except (TaskLibError, psycopg.Error):
                time.sleep(0.5)

    async def _work(self) -> None:
        self._loop, self._worker = asyncio.get_running_loop(), Worker(self._config, names=["failover.work"])
        await self._worker.run()

    def stop(self) -> None:
        self._ended.set()
        if self._loop is not None and self._worker is not None:
            self._loop.call_soon_threadsafe(self._worker.stop)
        self.join(60)


def run(*, synchronous: bool, rounds: int = 1, say: Callable[[str], None] = print) -> Result:
    """Every fault so many times, one after the other, on one cluster."""
    result = Result(synchronous)
    with Cluster(synchronous) as cluster:
        cluster.wait_until_whole()
        config = Config(cluster.url, **SETTINGS)
        _wait_for(lambda: _migrated(config))
        producer, crews = (
            Producer(config),
            [BenchWorkers(config), BenchWorkers(Config(cluster.url_of_both, **SETTINGS))],
        )
        for thread in (producer, *crews):
            thread.start()
        for _ in range(rounds):
            for name, fault in FAULTS.items():
                trial = _trial(cluster, producer, name, fault)
                result.trials.append(trial)
                say(
                    f"{name}: a submission after {trial.to_the_next_submission:.1f} s, a completion after "
                    f"{trial.to_the_next_completion:.1f} s; {trial.lost} of {trial.acknowledged} lost"
                )
        producer.stop()
        _finish(cluster, result, producer)
        for workers_running in crews:
            workers_running.stop()
    return result


def _migrated(config: Config) -> float | None:
    """HAProxy may still be looking at its servers."""
    try:
        migrate(config)
    except (TaskLibError, psycopg.Error):
        return None
    return time.monotonic()


def _trial(cluster: Cluster, producer: Producer, name: str, fault: Callable[[Cluster], Node]) -> Trial:
    time.sleep(5.0)
    before = len(producer.acknowledged)
    began = time.monotonic()
    victim = fault(cluster)
    cluster.wait_for_primary(but=victim)
    submitted = _wait_for(lambda: next((at for at, _ in producer.acknowledged[before:] if at > began + 1.0), None))
    completed = _wait_for(lambda: _completed_since(cluster, producer, submitted))
    time.sleep(3.0)
    cluster.heal(victim)
    cluster.wait_until_whole()
    lost, acknowledged = _lost(cluster, producer), len(producer.acknowledged)
    return Trial(name, _gap(producer, began), completed - began, acknowledged, lost)


def _gap(producer: Producer, began: float) -> float:
    """From the fault to the first acknowledgement after the silence that it brought."""
    times = [began, *(at for at, _ in producer.acknowledged if at > began)]
    longest = max(range(1, len(times)), key=lambda i: times[i] - times[i - 1])
    return times[longest] - began


def _wait_for(condition: Callable[[], float | None], seconds: float = 180) -> float:
    deadline = time.monotonic() + seconds
    while (found := condition()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster doesn't take tasks again")
        time.sleep(0.05)
    return found


def _completed_since(cluster: Cluster, producer: Producer, since: float) -> float | None:
    # The latest: the first ones may be on a primary that no replica follows any more.
    ids = [str(id_) for at, id_ in producer.acknowledged if at >= since][-20:]
    try:
        with psycopg.connect(cluster.url, connect_timeout=3) as db:
            query = "SELECT 1 FROM tasks WHERE id = ANY(%s::uuid[]) AND state = 'completed'"
            row = db.execute(query, (ids,)).fetchone()
    except psycopg.Error:
        return None
    return time.monotonic() if row else None


def _lost(cluster: Cluster, producer: Producer) -> int:
    """How many acknowledged tasks are not there."""
    ids = [str(id_) for _, id_ in list(producer.acknowledged)]
    for _ in range(60):
        try:
            with psycopg.connect(cluster.url, connect_timeout=3) as db:
                row = db.execute("SELECT count(*) FROM tasks WHERE id = ANY(%s::uuid[])", (ids,)).fetchone()
            assert row is not None
            return len(ids) - int(row[0])
        except psycopg.Error:
            time.sleep(1.0)
    raise TimeoutError("the cluster doesn't answer")


def _finish(cluster: Cluster, result: Result, producer: Producer) -> None:
    """Let all that is there end, and count."""
    result.acknowledged, result.unknown = len(producer.acknowledged), producer.unknown
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with psycopg.connect(cluster.url, connect_timeout=3) as db:
            row = db.execute("SELECT count(*) FROM tasks WHERE completed_at IS NULL").fetchone()
        assert row is not None
        result.unfinished = row[0]
        if not result.unfinished:
            break
        time.sleep(0.5)
    result.lost = _lost(cluster, producer)
    with psycopg.connect(cluster.url, connect_timeout=3) as db:
        row = db.execute("SELECT count(*) - count(DISTINCT kwargs) FROM tasks").fetchone()
        assert row is not None
        result.doubled = row[0]
