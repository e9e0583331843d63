"""A rolling deploy: old and new code side by side, with changed signatures and a renamed function."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.eventually import eventually

_RUN = """
import sys, tasklib
from tasklib import Worker, task
tasklib.init(sys.argv[1])
"""
OLD = f"""{_RUN}
@task(name="mail.send", max_retries=0)
def send(to: str) -> str:
    return to

@task(name="report.make", version=1, max_retries=0)
def make(month: str) -> str:
    return month

def produce(n):
    send.submit_sync(to=f"old-{{n}}")
    make.submit_sync(month=f"old-{{n}}")
"""
NEW = f"""{_RUN}
@task(name="mail.deliver", aliases=["mail.send"], version=2, max_retries=0)
def deliver(recipients: list[str], subject: str) -> str:
    return recipients[0]

@deliver.upcast(1)
def _(old):
    return {{"recipients": [old["to"]], "subject": "(none)"}}

@task(name="report.make", version=2, max_retries=0, executor="process")
def make(year: int, month: int) -> str:
    return f"{{year}}-{{month}}"

@make.upcast(1)
def _(old):
    return {{"year": 2026, "month": int(old["month"].rpartition("-")[2]) % 12 + 1}}

def produce(n):
    deliver.submit_sync(recipients=[f"new-{{n}}"], subject="s")
    make.submit_sync(year=2027, month=n % 12 + 1)
"""
_WORK = "\nif __name__ == '__main__' and sys.argv[2] == 'work':\n    Worker(concurrency=4).run_sync()\n"
_PRODUCE = (
    "\nif __name__ == '__main__' and sys.argv[2] == 'produce':\n    [produce(n) for n in range(int(sys.argv[3]))]\n"
)


class Programs:
    """The old and the new program, each in processes of its own."""

    def __init__(self, directory: Path, url: str) -> None:
        self._url, self._directory = url, directory
        for name, text in (("old", OLD), ("new", NEW)):
            (directory / f"{name}_program.py").write_text(text + _PRODUCE + _WORK)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self._directory / f"{name}-{len(self._running)}.log").open("wb")
        path = self._directory / f"{name}_program.py"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TASKLIB_")}
        process = subprocess.Popen(
            [sys.executable, str(path), self._url, *arguments], stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        self._running.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait() == 0, self._log_texts()

    def _log_texts(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self._directory.glob("*.log"))

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def programs(tmp_path: Path, database_url: str) -> Iterator[Programs]:
    programs = Programs(tmp_path, database_url)
    yield programs
    programs.end()


@pytest.mark.parametrize("first", ["old", "new"])
def test_a_rolling_deploy_with_changed_signatures_and_a_renamed_function_has_no_dead_letters(
    programs: Programs, db: psycopg.Connection, first: str
) -> None:
    each, second = "25", "new" if first == "old" else "old"
    producers = [programs.start(name, "produce", each) for name in (first, second)]
    worker_of_old = programs.start("old", "work")
    worker_of_new = programs.start("new", "work")
    for producer in producers:
        programs.finish(producer)

    def unfinished() -> int:
        row = db.execute("SELECT count(*) FROM tasks WHERE state NOT IN ('completed', 'dead_letter')").fetchone()
        return row[0] if row else -1

    eventually(lambda: unfinished() == 0, "all tasks ended")
    worker_of_old.terminate()  # the deploy is over: what old producers left behind is for new workers
    programs.finish(worker_of_old)
    programs.finish(programs.start("old", "produce", "10"))
    eventually(lambda: unfinished() == 0, "the tasks of old producers ended")
    worker_of_new.terminate()
    programs.finish(worker_of_new)
    states = db.execute("SELECT state, count(*)::int FROM tasks GROUP BY state").fetchall()
    assert states == [("completed", 120)], db.execute(
        "SELECT name, kwargs, error FROM tasks WHERE error IS NOT NULL"
    ).fetchall()
    rows = db.execute("SELECT name, payload_version, count(*)::int FROM tasks GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
    assert rows == [("mail.deliver", 2, 25), ("mail.send", None, 35), ("report.make", 1, 35), ("report.make", 2, 25)]
    seen = {row[0]["value"] for row in db.execute("SELECT result FROM tasks WHERE name = 'mail.deliver'")}
    assert seen == {f"new-{n}" for n in range(25)}
