"""One run: a fleet under load, a schedule of faults drawn from a seed, then quiet, then the checker."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from proof.chaos import limited_tasks, schedules
from proof.chaos.database_tasks import LEDGER
from proof.chaos.faults import FAULTS, Stage, small_disk
from proof.chaos.fleet import Fleet, Member
from proof.chaos.monitor import Monitor
from proof.chaos.proxy import Proxy
from proof.chaos.scene import SETTINGS, Scene
from proof.history import recording
from proof.history.actors import ActorLog, read
from proof.history.checker import Checker, End, Verdict
from proof.history.flows import flow_history
from proof.history.limits import limit_history
from proof.history.slots import slot_history
from proof.ports import free_port
from tasklib import Client
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

_PLAIN = "sslmode=disable&gssencmode=disable"
_AT_ONCE = 3
_CAUSES = r"""
    SELECT concat(name, ': ', regexp_replace(left(split_part(rtrim(error), E'\n', -1), 100), '\d+', '#', 'g')), count(*)
    FROM tasks WHERE state = 'dead_letter' GROUP BY 1 ORDER BY 2 DESC LIMIT 30
"""
_BACKLOG_INDEX = "CREATE INDEX look_at_the_backlog ON tasks (id) WHERE state IN ('pending', 'failed')"
"""For submitters, which look how deep it is: without it they read the whole table, and submit less and less."""
_DOUBLED_MARKS = (
    # The tasks of a flow have one mark. Flows that a task gathers are compared with what it has on record instead: a
    # completed task that is replayed gathers again.
    "SELECT kwargs ->> 'mark' FROM tasks WHERE kwargs ? 'mark' "
    "AND NOT EXISTS (SELECT FROM flows WHERE flows.id = tasks.flow AND flows.parent IS NOT NULL) "
    "GROUP BY 1 HAVING count(DISTINCT COALESCE(flow, id)) > 1"
)
SUBMITTED = "SELECT count(*) FROM transitions WHERE old_state IS NULL"
FLOWS = "SELECT count(*) FROM flows"
QUIET_SECONDS = 2 * SETTINGS["leader_lease_seconds"]
_DATABASE = ("database", "backend", "disk", "connections")


@dataclass(frozen=True)
class Plan:
    """How long, how much, from which seed."""

    seconds: float
    seed: int
    faults: int = 0
    """At least so many, however long it takes."""
    tasks: int = 0
    """At least so many."""
    kinds: tuple[str, ...] = tuple(FAULTS)
    rate: float = 700.0
    """Tasks a second, about."""
    pause: float = 3.0
    """Seconds between the beginnings of two faults, on average."""
    disk_gigabytes: float = 8.0
    schedules: int = 0
    """Schedules of one second."""
    flows: int = 0
    """At least so many flows, and few other tasks."""
    logs: Path | None = None
    """Where the logs are kept."""
    limits: bool = False
    """Tasks behind limits, and few others."""
    in_time: bool = True
    """Judge how soon things happen, too. Where other programs need the processors, that says nothing about ours."""


@dataclass
class Outcome:
    """What a run showed."""

    verdict: Verdict
    faults: Counter[str]
    seconds: float
    recoveries: list[float]
    deadlocks: int
    quiet: bool
    causes: dict[str, int]
    """What dead letters died of."""

    @property
    def holds(self) -> bool:
        return self.verdict.holds and self.quiet and self.deadlocks == 0

    def figures(self) -> dict[str, Any]:
        ordered = sorted(self.recoveries)
        at = lambda share: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None  # noqa: E731
        return {
            **asdict(self.verdict.figures),
            "faults": self.faults.total(),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "seconds": round(self.seconds),
            "deadlocks": self.deadlocks,
            "violations": dict(self.verdict.counts),
            "recovery_p50": round(statistics.median(ordered), 2) if ordered else None,
            "recovery_p99": at(0.99),
            "recovery_max": at(1.0),
            "recoveries": len(ordered),
            "dead_letters_by_cause": self.causes,
        }


def run(plan: Plan, say: Any = print) -> Outcome:
    """Carry out a plan from the first process to the verdict."""
    with ExitStack() as stack:
        stage, here, log = stack.enter_context(_stage(plan))
        frozen = lambda: [m.name for m in stage.fleet.members if m.frozen]  # noqa: E731 - read again and again
        monitor = Monitor(here.direct_url, log, frozen, limits=plan.limits, in_time=plan.in_time)
        ended = stack.enter_context(tending(stage.fleet))
        monitor.start()
        _await_work(here, _workers(plan))
        began = time.monotonic()
        faults = _faults(plan, stage, monitor, log, here, say)
        seconds = time.monotonic() - began
        say(f"{faults.total()} faults in {seconds:.0f} s; now it may become quiet")
        quiet = _become_quiet(stage, here, monitor)
        ended.set()
        stage.fleet.end()
        monitor.stop()
        with psycopg.connect(here.direct_url, autocommit=True) as db:
            for idle in _idle(db, _workers(plan)):
                log.write(op="violation", invariant="I7", detail=f"{idle} never took a task")
            found = verdict(db, lambda: read(here.log_directory))
            recoveries = _recoveries(db, here)
            causes = dict(db.execute(_CAUSES).fetchall())
        return Outcome(found, faults, seconds, recoveries, monitor.deadlocks, quiet, causes)


@contextmanager
def _stage(plan: Plan) -> Iterator[tuple[Stage, Scene, ActorLog]]:
    directory = Path(tempfile.mkdtemp(prefix="tasklib-chaos-"))
    directory.chmod(0o755)
    logs = directory / "logs"
    logs.mkdir(mode=0o777)
    disk = small_disk(directory / "disk", plan.disk_gigabytes)
    server = EmbeddedPostgres(
        directory / "disk" / "postgres",
        settings={"max_connections": "150", "max_wal_size": "512MB", "deadlock_timeout": "200ms"},
    )
    try:
        with server:
            url = f"{server.create_database('chaos')}?{_PLAIN}"
            place = urlsplit(url)
            proxy = Proxy(place.hostname or "127.0.0.1", place.port or 5432)
            proxied = url.replace(f":{place.port}/", f":{proxy.port}/")
            here = Scene(
                url,
                proxied,
                str(logs),
                plan.seed,
                plan.rate,
                free_port(),
                schedules=plan.schedules,
                flows=plan.flows > 0,
                limits=plan.limits,
            )
            migrate(here.config())
            with psycopg.connect(url, autocommit=True) as db:
                recording.install(db)
                db.execute(_BACKLOG_INDEX)
            with Client(here.config()) as client:
                schedules.make(client, plan.schedules)
                if plan.limits:
                    limited_tasks.make(client)
            log = ActorLog(logs, "conductor")
            fleet = Fleet(here, _members(plan))
            try:
                yield Stage(server, url, proxy, fleet, random.Random(plan.seed), disk, _reporter(log)), here, log
            finally:
                fleet.end(timeout=5)
                proxy.close()
                if plan.logs is not None:
                    shutil.copytree(logs, plan.logs)
    finally:
        if disk is not None:
            import subprocess

            subprocess.run(["umount", "-l", str(disk)], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def _members(plan: Plan) -> list[Member]:
    signallers = [Member("signaller-0", "proof.chaos.signaller")] if plan.flows else []
    return [
        Member("worker-0", "proof.chaos.worker", ("direct",)),
        Member("worker-1", "proof.chaos.worker", ("direct",)),
        Member("worker-2", "proof.chaos.worker", ("proxied",)),
        Member("worker-3", "proof.chaos.worker", ("proxied",)),
        Member("http-0", "proof.chaos.http_server"),
        Member("worker-4", "proof.chaos.worker", ("http",)),
        Member("submitter-0", "proof.chaos.submitter", ("direct",)),
        Member("submitter-1", "proof.chaos.submitter", ("proxied",)),
        Member("operator-0", "proof.chaos.operator"),
        *signallers,
    ]


def _workers(plan: Plan) -> list[str]:
    return [member.name for member in _members(plan) if member.is_worker]


def _reporter(log: ActorLog) -> Any:
    return lambda **facts: log.write(op="fault", **facts)


@contextmanager
def tending(fleet: Fleet) -> Iterator[threading.Event]:
    """Start what dies, until the event is set."""
    ended = threading.Event()

    def tend() -> None:
        while not ended.wait(0.3):
            fleet.tend()

    thread = threading.Thread(target=tend, daemon=True, name="tending")
    fleet.tend()
    thread.start()
    try:
        yield ended
    finally:
        ended.set()
        thread.join(10)


def _faults(plan: Plan, stage: Stage, monitor: Monitor, log: ActorLog, here: Scene, say: Any) -> Counter[str]:
    """Begin faults one after the other, a few at a time, those of the database one at a time."""
    done: Counter[str] = Counter()
    places, database = threading.Semaphore(_AT_ONCE), threading.Lock()
    began, told = time.monotonic(), time.monotonic()
    kinds = list(plan.kinds)
    weights = [FAULTS[kind][0] for kind in kinds]
    threads: list[threading.Thread] = []

    def inject(kind: str, number: int) -> None:
        about_the_database = kind.startswith(_DATABASE)
        mine = Stage(**{**stage.__dict__, "random": random.Random(f"{plan.seed} {number}")})
        try:
            log.write(op="fault", what="begins", kind=kind, number=number)
            if about_the_database:
                with database:
                    monitor.disturbed()
                    happened = FAULTS[kind][1](mine)
                    monitor.disturbed()
            else:
                happened = FAULTS[kind][1](mine)
            done[kind] += happened is not False
            log.write(op="fault", what="over", kind=kind, number=number, happened=happened is not False)
        except Exception as e:  # a fault that could not be done is no fault
            say(f"{kind}: {e!r}")
            log.write(op="fault", what="failed", kind=kind, number=number, error=repr(e))
        finally:
            places.release()

    number = 0
    while time.monotonic() - began < plan.seconds or done.total() < plan.faults or not _enough(plan, here):
        [kind] = stage.random.choices(kinds, weights)
        places.acquire()
        threads.append(threading.Thread(target=inject, args=[kind, number], daemon=True))
        threads[-1].start()
        number += 1
        time.sleep(stage.random.expovariate(1 / plan.pause))
        if time.monotonic() - told > 30:
            told = time.monotonic()
            flows = f", {_count(here, FLOWS):,} flows" if plan.flows else ""
            say(f"{told - began:5.0f} s: {done.total()} faults, {_count(here, SUBMITTED):,} tasks{flows}")
    for thread in threads:
        thread.join(60)
    return done


def _count(here: Scene, query: str) -> int:
    try:
        with psycopg.connect(here.direct_url, autocommit=True, connect_timeout=3) as connection:
            row = connection.execute(query.encode()).fetchone()
            return row[0] if row else 0
    except psycopg.Error:
        return 0


def _enough(plan: Plan, here: Scene) -> bool:
    enough_tasks = not plan.tasks or _count(here, SUBMITTED) >= plan.tasks
    return enough_tasks and (not plan.flows or _count(here, FLOWS) >= plan.flows)


def _become_quiet(stage: Stage, here: Scene, monitor: Monitor) -> bool:
    """No more faults, no more submissions: all that waits or runs must end by itself."""
    stage.server.start()
    stage.proxy.resume()
    for kind in ("submitter", "operator"):
        stage.fleet.end(kind, timeout=10)
    with Client(here.config()) as client:
        for pause in client.pauses():
            client.resume(**{pause.kind: pause.value})
        if here.limits:
            client.reset_limit("chaos-db")
        if here.schedules:
            time.sleep(QUIET_SECONDS)  # a leader comes to what passed during the last faults
            schedules.stop(client)
    deadline = time.monotonic() + 900
    query = b"""
        SELECT count(*) FROM (
            (SELECT FROM tasks WHERE state IN ('pending', 'failed', 'running') LIMIT 1)
            UNION ALL (SELECT FROM flows WHERE finished_at IS NULL LIMIT 1)
            UNION ALL (SELECT FROM arrivals LIMIT 1)) AS rest"""
    while time.monotonic() < deadline:
        with psycopg.connect(here.direct_url, autocommit=True) as db:
            row = db.execute(query).fetchone()
        if row == (0,):
            return True
        time.sleep(0.5)
    return False


def verdict(db: psycopg.Connection, log: Callable[[], Iterable[Mapping[str, Any]]]) -> Verdict:
    """What the checker finds in one database, and in what the actors said of it."""
    rows = lambda query: [row[0] for row in db.execute(query).fetchall()]  # noqa: E731
    signals = [(line["task"], line["key"]) for line in log() if line.get("op") == "signal" and line["what"] == "ok"]
    end = End(
        ledger=Counter(rows("SELECT task::text FROM ledger")),
        transactional=frozenset(rows("SELECT id::text FROM tasks WHERE name = 'chaos.transactional'")),
        at_most_once=frozenset(rows("SELECT id::text FROM tasks WHERE name = 'chaos.once'")),
        outbox=frozenset(rows("SELECT task::text FROM outbox")),
        replays=Counter(rows("SELECT target FROM audit WHERE action = 'task.replay'")),
        marks_doubled=tuple(rows(_DOUBLED_MARKS)),
        slots=slot_history(db),
        flows=flow_history(db, signals, [LEDGER]),
        limits=limit_history(db, limited_tasks.NAMES, limited_tasks.bounds_of),
    )
    checker = Checker(crash_limit=SETTINGS["crash_limit"])
    return checker.check(recording.transitions(db), recording.reigns(db), log(), end)


def _await_work(here: Scene, workers: list[str]) -> None:
    """Faults begin when every worker has taken a task. One that never does is found at the end."""
    deadline = time.monotonic() + 120
    with psycopg.connect(here.direct_url, autocommit=True) as db:
        while time.monotonic() < deadline and _idle(db, workers):
            time.sleep(0.2)


def _idle(db: psycopg.Connection, workers: list[str]) -> list[str]:
    """Workers of which no process took a task: one that can't start is started again and again."""
    query = "SELECT EXISTS (SELECT FROM transitions WHERE new_state = 'running' AND starts_with(worker, %s))"
    return [name for name in workers if db.execute(query, (f"{name}-",)).fetchone() != (True,)]


def _recoveries(db: psycopg.Connection, here: Scene) -> list[float]:
    """Seconds from the kill of a worker to the end of each attempt that it had."""
    killed: dict[str, list[float]] = {}
    for line in read(here.log_directory):
        if line.get("op") == "fault" and line.get("what") == "killed":
            killed.setdefault(line["member"], []).append(line["at"])
    ended = db.execute(
        "WITH ended AS (SELECT worker, at FROM transitions WHERE old_state = 'running' AND by LIKE '%maintenance%') "
        "SELECT worker, extract(epoch FROM at)::float8, (SELECT extract(epoch FROM min(at))::float8 FROM transitions "
        "WHERE new_state = 'running' AND worker = ended.worker) FROM ended"
    ).fetchall()
    found = []
    for worker, at, began in ended:
        # Each start has its own id: the first kill after it began is the one that ended it.
        kills = [k for member, times in killed.items() if worker.startswith(member) for k in times if began < k < at]
        if kills:
            found.append(at - min(kills))
    return found
