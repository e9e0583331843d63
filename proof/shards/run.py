"""Four shards on two servers under load; one of the servers is killed, frozen and cut off; then the checker.

While a server is away, tasks that are submitted to the shards of the other one have to complete before it comes back.
One shard is moved to another database, by a command that is killed once and goes on, and a fifth one is added, while
programs submit the same keys again and again. At the end I1 to I12 must hold in each shard, over its move too, and no
mark and no key may be in two of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg

from proof.chaos import tasks
from proof.chaos.fleet import Fleet, Member
from proof.chaos.proxy import Proxy
from proof.chaos.run import tending, verdict
from proof.chaos.scene import SETTINGS, Scene
from proof.history import recording
from proof.history.actors import read
from proof.history.checker import Verdict
from proof.shards.keyed import KeyedSubmitter
from proof.shards.submitter import Submitter
from tasklib import Client, Config, Shard
from tasklib.cli.shards_file import changing
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate
from tasklib.tasks.ids import shard_of

SERVERS, SHARDS = 2, 4
MOVES, ADDED = 3, 4
"""The shard that moves, and the one that is added."""
WORKERS = 3
_PLAIN = "sslmode=disable&gssencmode=disable"
_PATIENCE_SECONDS = 300.0
_SAMPLE = 20
"""So many tasks for each shard that is to be undisturbed."""
_UNFINISHED = b"SELECT count(*) FROM tasks WHERE state IN ('pending', 'failed', 'running')"
_HISTORY = ("transitions", "terms", "ledger", "outbox")
"""The tables of the suite beside TaskLib's, which a move leaves behind."""
_COMPLETED = "SELECT count(*) FROM tasks WHERE id = ANY(%s) AND state = 'completed'"
_TOOK_A_TASK = "SELECT count(*) FROM transitions WHERE new_state = 'running' AND starts_with(worker, %s)"


@dataclass
class Outcome:
    """What a run showed."""

    verdicts: dict[int, Verdict]
    faults: list[str]
    problems: list[str] = field(default_factory=list)
    """What was wrong beside the invariants of each shard."""

    @property
    def holds(self) -> bool:
        return not self.problems and all(each.holds for each in self.verdicts.values())

    def figures(self) -> dict[str, Any]:
        """Sums over all shards."""
        sums = {
            name: sum(getattr(each.figures, name) for each in self.verdicts.values())
            for name in ("tasks", "acknowledged", "completed", "attempts", "rescued", "lost", "doubled")
        }
        violations = sum(each.counts.total() for each in self.verdicts.values())
        return {**sums, "violations": violations, "faults": self.faults, "problems": self.problems}


class Site:
    """The servers and their shards. The second server is behind a proxy, which cuts it off."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.file = directory / "shards.toml"
        self.former: list[str] = []
        """Where the shard that moves has been."""
        self.servers = [stack.enter_context(EmbeddedPostgres(directory / f"server-{n}")) for n in range(SERVERS)]
        self.direct: list[Shard] = []
        for number in range(SHARDS):
            url = self.servers[number % SERVERS].create_database(f"shard_{number}")
            self.direct.append(Shard(number, f"{url}?{_PLAIN}"))
        place = urlsplit(self.direct[1].database_url)
        self.proxy = Proxy(place.hostname or "127.0.0.1", place.port or 5432)
        stack.callback(self.proxy.close)
        ports = (f":{place.port}/", f":{self.proxy.port}/")
        self.shards = [Shard(s.number, s.database_url.replace(*ports)) for s in self.direct]
        for shard in self.direct:
            self.prepare(shard)
        with changing(self.file) as shards:
            shards += self.shards

    @staticmethod
    def prepare(shard: Shard) -> None:
        """Make the tables of a shard, and record what happens to their rows."""
        migrate(Config(shards=(shard,), **SETTINGS).for_shard(shard.number))
        with psycopg.connect(shard.database_url, autocommit=True) as db:
            recording.install(db)

    def new_place(self, number: int) -> Shard:
        """For a shard that is added, or moved, in a database of the first server."""
        url = self.servers[0].create_database(f"shard_{number}_{len(self.former)}")
        shard = Shard(number, f"{url}?{_PLAIN}")
        self.prepare(shard)
        return shard

    def has_moved(self, to: Shard) -> None:
        self.former.append(self.direct[to.number].database_url)
        self.direct[to.number] = to

    def command(self, *args: str) -> subprocess.Popen[str]:
        """Start `tasklib shard`."""
        environment = {**os.environ, "TASKLIB_SHARDS_FILE": str(self.file), "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "tasklib", "shard", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def config(self, number: int) -> Config:
        """That of one shard."""
        return Config(shards=self.direct, **SETTINGS).for_shard(number)

    def connected(self, number: int) -> psycopg.Connection:
        return psycopg.connect(self.direct[number].database_url, autocommit=True)


def run(rounds: int, say: Callable[[str], None] = print, *, logs: Path | None = None) -> Outcome:
    """So many rounds of all faults."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="tasklib-shards-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        directory.chmod(0o755)
        here = _scene(directory)
        if logs is not None:
            stack.callback(shutil.copytree, here.log_directory, logs)
        site = Site(directory, stack)
        fleet = Fleet(here, [Member(f"worker-{n}", "proof.chaos.worker", (str(site.file),)) for n in range(WORKERS)])
        stack.callback(fleet.end, timeout=5)
        outcome = Outcome({}, [])
        with tending(fleet) as ended, _submitting(site, here):
            _await(lambda: all(_has_worked(site, m.name) for m in fleet.members), "every worker takes a task", outcome)
            for _ in range(rounds):
                for what, fault in _faults(site, fleet, outcome):
                    say(what)
                    outcome.faults.append(what)
                    fault()
            _submit_no_more.set()
            ended.set()
        _await(lambda: not any(_unfinished(site, s.number) for s in site.direct), "all tasks end", outcome)
        fleet.end()
        _judge(site, here, outcome)
        return outcome


_submit_no_more = threading.Event()


def _scene(directory: Path) -> Scene:
    (directory / "logs").mkdir(mode=0o777)
    return Scene("", "", str(directory / "logs"), 1, 0.0, 0)


@contextmanager
def _submitting(site: Site, here: Scene) -> Iterator[None]:
    """A producer for each shard, and two of keys for all, until the end of the block."""
    _submit_no_more.clear()
    config = Config(shards_file=str(site.file), **SETTINGS)
    producers = [
        *(Submitter(here, n, config) for n in range(SHARDS)),
        *(KeyedSubmitter(here, f"keyed-{n}", config) for n in range(2)),
    ]
    threads = [threading.Thread(target=each.run, args=[_submit_no_more]) for each in producers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        _submit_no_more.set()
        for thread in threads:
            thread.join()


def _faults(site: Site, fleet: Fleet, outcome: Outcome) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each fault by its name."""
    far = site.servers[1]

    def away(go: Callable[[], object], come_back: Callable[[], object]) -> Callable[[], None]:
        def fault() -> None:
            go()
            try:
                _others_are_undisturbed(site, outcome)
            finally:
                come_back()

        return fault

    yield "node killed", away(far.kill, far.start)
    yield "worker killed", lambda: fleet.signal(fleet.members[0], signal.SIGKILL)
    yield "node frozen", away(far.pause, far.resume)
    yield "node cut off", away(site.proxy.cut, site.proxy.mend)
    yield "worker stopped", lambda: fleet.signal(fleet.members[1], signal.SIGTERM)
    yield "shard moved, and the command killed", lambda: _move(site, outcome)
    if len(site.direct) == SHARDS:
        yield "shard added", lambda: _add(site, outcome)


def _move(site: Site, outcome: Outcome) -> None:
    """Kill the command once the shard takes no writes, and go on; the others are undisturbed meanwhile."""
    to = site.new_place(MOVES)
    with site.command("move", str(MOVES), "--database-url", to.database_url) as moving:
        assert moving.stdout is not None
        said = []
        for line in moving.stdout:
            said.append(line)
            if "takes no writes" in line:
                moving.kill()
    others = [n for n in range(SHARDS) if n != MOVES]
    _others_are_undisturbed(site, outcome, others)
    with site.command("move", str(MOVES)) as moving:
        assert moving.stdout is not None
        said += moving.stdout.readlines()
    if moving.returncode != 0:
        outcome.problems.append(f"the shard was not moved: {''.join(said)}")
        return
    site.has_moved(to)
    _others_are_undisturbed(site, outcome, [MOVES])


def _add(site: Site, outcome: Outcome) -> None:
    """Add a shard, and wait until it has completed tasks with keys."""
    new = site.new_place(ADDED)
    with site.command("add", str(ADDED), "--database-url", new.database_url) as adding:
        assert adding.stdout is not None
        said = adding.stdout.read()
    if adding.returncode != 0:
        outcome.problems.append(f"the shard was not added: {said}")
        return
    site.direct.append(new)
    _await(lambda: _completed(site, ADDED) >= _SAMPLE, "keys reach the shard that was added", outcome)


def _completed(site: Site, number: int) -> int:
    with site.connected(number) as db:
        row = db.execute("SELECT count(*) FROM tasks WHERE state = 'completed'").fetchone()
    assert row is not None
    return int(row[0])


def _others_are_undisturbed(site: Site, outcome: Outcome, numbers: Sequence[int] = range(0, SHARDS, SERVERS)) -> None:
    """Tasks of these shards, as a rule of the server that is there, complete while another one is away."""
    for number in numbers:
        with Client(site.config(number)) as client:
            ids = client.submit_many([tasks.short.bind(mark=f"sample-{time.time_ns()}-{n}") for n in range(_SAMPLE)])

            def done(number: int = number, ids: list[UUID] = ids) -> bool:
                with site.connected(number) as db:
                    return db.execute(_COMPLETED, (ids,)).fetchone() == (len(ids),)

            _await(done, f"tasks of shard {number} complete while another one is away", outcome)


def _has_worked(site: Site, name: str) -> bool:
    for number in range(SHARDS):
        with site.connected(number) as db:
            if db.execute(_TOOK_A_TASK, (f"{name}-",)).fetchone() != (0,):
                return True
    return False


def _unfinished(site: Site, number: int) -> int:
    with site.connected(number) as db:
        row = db.execute(_UNFINISHED).fetchone()
    assert row is not None
    return int(row[0])


def _await(condition: Callable[[], bool], what: str, outcome: Outcome) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            outcome.problems.append(f"never happened: {what}")
            return
        time.sleep(0.2)


def _judge(site: Site, here: Scene, outcome: Outcome) -> None:
    where: dict[str, int] = {}
    for step, former in enumerate(site.former):
        _carry_history(former, site.direct[MOVES].database_url, (step - len(site.former)) * 10**12)
    for number in (shard.number for shard in site.direct):
        with site.connected(number) as db:
            outcome.verdicts[number] = verdict(db, lambda number=number: _said_of(here.log_directory, number))
            marks = db.execute("SELECT DISTINCT kwargs ->> 'mark' FROM tasks WHERE kwargs ? 'mark'").fetchall()
            wrong = [id_ for (id_,) in db.execute("SELECT id FROM tasks") if shard_of(id_) != number]
        if wrong:
            outcome.problems.append(f"shard {number} has {len(wrong)} tasks whose ids name another one")
        for (mark,) in marks:
            if where.setdefault(mark, number) != number:
                outcome.problems.append(f"{mark} is in the shards {where[mark]} and {number}")


def _carry_history(former: str, present: str, offset: int) -> None:
    """What was recorded where the shard has been, before what was recorded where it is."""
    with psycopg.connect(former) as old, psycopg.connect(present) as new:
        for table in _HISTORY:
            rows = old.execute(f"SELECT * FROM {table}".encode())
            assert rows.description is not None
            names = [column.name for column in rows.description]
            values = ", ".join("%s + " + str(offset) if name == "seq" else "%s" for name in names)
            into = f"INSERT INTO {table} ({', '.join(names)}) OVERRIDING SYSTEM VALUE VALUES ({values})"
            new.cursor().executemany(into.encode(), rows.fetchall())


def _said_of(logs: Path, number: int) -> Iterator[Mapping[str, Any]]:
    """What the actors said of the tasks of one shard. What is said of none is said of the first."""
    for line in read(logs):
        of = line.get("shard")
        if of is None:
            ids = line.get("tasks") or ([line["task"]] if "task" in line else [])
            of = shard_of(UUID(ids[0])) if ids else 0
        if of == number:
            yield line
