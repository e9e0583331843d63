"""Processes that submit tasks one by one, all at the same time.

They stay until the end, as starting eight of them takes longer than what they are asked to do:

    python -m tasklib.bench.producers     # reads how many to submit from stdin, writes when it began and ended
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tasklib.bench.crew import environment, stop
from tasklib.bench.ground import BenchFailed, Ground
from tasklib.bench.tasks import nap
from tasklib.client.clients import Client

PRODUCERS = 8
_WARM_UP = 5


@dataclass(frozen=True)
class Producers:
    processes: Sequence[subprocess.Popen[bytes]]

    def submit(self, each: int) -> float:
        """Have each submit so many tasks; returns how many tasks per second they made together."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{each}\n".encode())
            process.stdin.flush()
        times = [self._answer(process) for process in self.processes]
        return len(times) * each / (max(ended for _, ended in times) - min(began for began, _ in times))

    def _answer(self, process: subprocess.Popen[bytes]) -> tuple[float, float]:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if len(words) != 2:
            raise BenchFailed(f"a producer ended by itself, with code {process.wait()}.")
        return float(words[0]), float(words[1])


def started_producers(ground: Ground) -> Producers:
    """Producers that are connected, and that end with the ground."""
    producers = Producers(_start(ground))
    producers.submit(_WARM_UP)
    return producers


def _start(ground: Ground) -> list[subprocess.Popen[bytes]]:
    processes: list[subprocess.Popen[bytes]] = []
    ground.clean_up.callback(stop, processes)
    with (ground.logs / "producers").open("ab") as log:
        for _ in range(PRODUCERS):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tasklib.bench.producers"],
                    env=environment(ground.config),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
            )
    return processes


def main() -> None:
    """Be a producer."""
    with Client() as client:
        for line in sys.stdin:
            began = time.monotonic()
            for number in range(int(line)):
                client.submit_task(nap, number=number)
            sys.stdout.write(f"{began} {time.monotonic()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
