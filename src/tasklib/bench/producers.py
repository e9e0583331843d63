"""Eight processes that submit tasks one by one, all at the same time.

They stay until the end, and are forked from one that has imported everything: to start them takes longer than what they
are asked to do. They end when their stdin does, so they don't outlive us, whatever happens.

    python -m tasklib.bench.producers     # reads how many tasks each shall submit, answers when that is done
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

from tasklib.bench.schema import BenchFailed, BenchSchema
from tasklib.bench.tasks import nap
from tasklib.bench.workers import environment
from tasklib.client.clients import Client

PRODUCERS = 8
_WARM_UP = 5
_PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Producers:
    process: subprocess.Popen[bytes]
    log: Path

    def submit(self, each: int) -> None:
        """Have each submit so many tasks; returns when all have."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{each}\n".encode())
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            words = self.log.read_text(errors="replace")[-2000:].strip()
            raise BenchFailed(f"the producers ended unexpectedly. Their last output:\n{words}")

    def stop(self) -> None:
        """At once, with all that were forked: what they are doing is of no use any more."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def started_producers(schema: BenchSchema) -> Producers:
    """Producers that are connected, and that end with the schema."""
    log = schema.logs / "producers"
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tasklib.bench.producers"],
            env=environment(schema.config),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for us alone
        )
    producers = Producers(process, log)
    schema.clean_up.callback(producers.stop)
    producers.submit(_WARM_UP)
    return producers


def main() -> None:
    """Be the producers."""
    fork = multiprocessing.get_context("fork")
    with fork.Pool(PRODUCERS, _become_producer, (fork.Barrier(PRODUCERS),)) as pool:
        for line in sys.stdin:
            pool.map(_submit, [int(line)] * PRODUCERS, chunksize=1)
            sys.stdout.write("done\n")
            sys.stdout.flush()


_client: Client
_all_here: Barrier


def _become_producer(all_here: Barrier) -> None:
    global _client, _all_here
    _client, _all_here = Client(), all_here


def _submit(count: int) -> None:
    _all_here.wait(_PATIENCE_SECONDS)  # none may take the part of another
    for number in range(count):
        _client.submit_task(nap, number=number)


if __name__ == "__main__":
    main()
