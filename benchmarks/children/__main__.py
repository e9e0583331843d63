"""Children of TaskLib as it is here, as it was at another commit, and of Celery: `python -m benchmarks.children`.

python -m benchmarks.peers install celery     # once; without it, Celery is left out
python -m benchmarks.children --write         # adds the figures to results/children.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.children.body import MARK, SECONDS
from benchmarks.peers.lab import ROOT, Lab, default_directory
from benchmarks.peers.records import RESULTS, append, checked_out
from benchmarks.peers.server import Redis, Server, own_redis, own_server

HERE = Path(__file__).parent
FIRST_RELEASE = "9792eb8"
CHILDREN = 2
REPLACED_AFTER = 100
"""After so many tasks TaskLib replaces a child, unless told otherwise. Celery does if told to; "kept" means never."""
WAIT_SECONDS = 300.0


@dataclass(frozen=True)
class Side:
    """One of those that are compared."""

    name: str
    rate: Callable[[int], float]
    starts: Callable[[int], dict[str, Any]] | None = None


class TaskLib:
    """TaskLib from the sources in a directory."""

    def __init__(self, tree: Path, server: Server, lab: Lab, name: str, **settings: str) -> None:
        self._server, self._lab, self._name = server, lab, f"children_{name}"
        path = os.pathsep.join([str(tree / "src"), str(HERE)])
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TASKLIB_")}
        url = {"TASKLIB_DATABASE_URL": server.database_url(self._name)}
        self._environment = kept | {"PYTHONPATH": path} | url | settings | _marks(lab)

    def rate(self, count: int) -> float:
        """Tasks a second, from the first one that begins to the last that ends."""
        self._server.create(self._name)
        self._run("-m", "tasklib", "migrate")
        self._run(str(HERE / "tasklib_side.py"), "submit", str(count))
        self._server.checkpoint()
        with _marked(self._lab) as marks:
            options = ["--burst", "--quiet", "--concurrency", str(CHILDREN)]
            self._run("-m", "tasklib", "worker", "tasklib_side", *options)
            return _rate(marks, count)

    def starts(self, count: int) -> dict[str, Any]:
        """Milliseconds of starts, one after the other."""
        answer: dict[str, Any] = json.loads(self._run(str(HERE / "tasklib_side.py"), "starts", str(count)))
        return answer

    def _run(self, *words: str) -> str:
        return subprocess.run(
            [sys.executable, *words], cwd=self._lab.directory, env=self._environment, check=True, stdout=subprocess.PIPE
        ).stdout.decode()


class Celery:
    """Celery's prefork pool, on a Redis without persistence."""

    def __init__(self, lab: Lab, python: Path, redis: Redis, *options: str) -> None:
        self._lab, self._python, self._options = lab, python, options
        self._environment = lab.process_environment() | {"PYTHONPATH": str(HERE), "CHILDREN_REDIS": redis.url}
        self._environment |= _marks(lab)

    def rate(self, count: int) -> float:
        """As above."""
        side = str(HERE / "celery_side.py")
        subprocess.run([self._python, side, str(count)], env=self._environment, check=True)
        alone = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL"]
        how = ["--pool", "prefork", "--concurrency", str(CHILDREN), *alone, *self._options]
        command = [self._python, "-m", "celery", "--app", "celery_side", "worker", *how]
        with _marked(self._lab) as marks:
            worker = subprocess.Popen(
                command, cwd=self._lab.directory, env=self._environment, stdout=subprocess.DEVNULL
            )
            try:
                deadline = time.monotonic() + WAIT_SECONDS
                while not marks.exists() or marks.stat().st_size < count * MARK.size:
                    if worker.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError("Celery didn't run its tasks")
                    time.sleep(0.05)
            finally:
                worker.terminate()
                worker.wait()
            return _rate(marks, count)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", type=int, default=500)
    options.add_argument("--starts", type=int, default=50)
    options.add_argument("--rounds", type=int, default=5, help="each side has its turn in each")
    options.add_argument("--before", default=FIRST_RELEASE, metavar="COMMIT", help="what to compare with")
    options.add_argument("--lab", type=Path, default=default_directory())
    options.add_argument("--write", action="store_true", help="Add the figures to results/children.jsonl.")
    given = options.parse_args()
    given.lab.mkdir(parents=True, exist_ok=True)
    lab = Lab(given.lab)
    rates: dict[str, list[float]] = {}
    starts: dict[str, list[dict[str, Any]]] = {}
    with own_server(lab, None) as server, own_redis(lab) as redis, _tree_of(given.before, lab) as before:
        for number in range(given.rounds):
            for side in _sides(lab, server, redis, before):
                rates.setdefault(side.name, []).append(side.rate(given.tasks))
                said = f"{rates[side.name][-1]:,.0f} tasks/s"
                if side.starts is not None:
                    starts.setdefault(side.name, []).append(side.starts(given.starts))
                    said += f", a start {statistics.median(starts[side.name][-1]['others']):.1f} ms"
                print(f"round {number + 1}  {side.name:12} {said}", flush=True)
    record = _record(given, rates, starts)
    if given.write:
        append(RESULTS / "children.jsonl", record)
    print(json.dumps(record, indent=2))


def _sides(lab: Lab, server: Server, redis: Redis | None, before: Path) -> list[Side]:
    sides = []
    for name, tree in (("before", before), ("now", ROOT)):
        ours = TaskLib(tree, server, lab, name)
        sides.append(Side(name, ours.rate, ours.starts))
    kept = TaskLib(ROOT, server, lab, "kept", TASKLIB_PROCESS_MAX_TASKS=str(10**6))
    sides.append(Side("now, kept", kept.rate))
    python = lab.python("celery")
    if redis is None or python is None:
        print("Celery is left out: it needs redis-server, and `python -m benchmarks.peers install celery`.")
    else:
        replaced = Celery(lab, python, redis, "--max-tasks-per-child", str(REPLACED_AFTER))
        sides.append(Side("celery", replaced.rate))
        sides.append(Side("celery, kept", Celery(lab, python, redis).rate))
    return sides


def _record(given: argparse.Namespace, rates: dict[str, list[float]], starts: dict[str, list[Any]]) -> dict[str, Any]:
    others = {name: [ms for turn in turns for ms in turn["others"]] for name, turns in starts.items()}
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checked_out(),
        "before": given.before,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "tasks": given.tasks,
        "task_seconds": SECONDS,
        "children": CHILDREN,
        "tasks_per_second": {name: [round(rate) for rate in turns] for name, turns in rates.items()},
        "median": {name: round(statistics.median(turns)) for name, turns in rates.items()},
        "start_ms": {
            name: {
                "first": round(statistics.median(turn["first"] for turn in starts[name]), 1),
                "p50": round(statistics.median(times), 1),
                "p99": round(sorted(times)[int(len(times) * 0.99)], 1),
            }
            for name, times in others.items()
        },
    }


@contextmanager
def _tree_of(commit: str, lab: Lab) -> Iterator[Path]:
    tree = lab.directory / f"tree-{commit}-{os.getpid()}"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _marks(lab: Lab) -> dict[str, str]:
    return {"CHILDREN_MARKS": str(lab.run_dir / "marks")}


@contextmanager
def _marked(lab: Lab) -> Iterator[Path]:
    lab.run_dir.mkdir(parents=True, exist_ok=True)
    marks = lab.run_dir / "marks"
    marks.unlink(missing_ok=True)
    yield marks
    marks.unlink(missing_ok=True)


def _rate(marks: Path, count: int) -> float:
    moments = list(MARK.iter_unpack(marks.read_bytes()))
    if len(moments) != count:
        raise RuntimeError(f"{len(moments)} of {count} tasks have run")
    return count / (max(end for _, end in moments) - min(begin for begin, _ in moments))


if __name__ == "__main__":
    main()
