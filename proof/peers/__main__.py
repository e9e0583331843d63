"""`make peers`: the same faults for each system; the figures go to proof/results/peers.json.

The systems are those of `python -m benchmarks.peers install`, in environments outside the tree.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers.lab import Lab, default_directory
from proof.peers.programs import PROGRAMS
from tasklib.embedded import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "proof" / "results" / "peers.json"
TASKS, TASK_SECONDS, WORKERS, PATIENCE = 600, 0.5, 2, 150.0


@dataclass
class Found:
    """What one fault did to one system."""

    system: str
    version: str
    fault: str
    tasks: int
    finished: int
    """Tasks whose function returned at least once."""
    begun_again: int
    """Beginnings beyond the first of each task."""
    finished_again: int
    """Tasks that ran to their end more than once."""
    left: int
    """What the system itself still counts as unfinished at the end."""
    seconds: float | None
    """From the fault until every task had finished; None: they had not when patience ended."""
    workers_ended: int
    """Workers that ended by themselves."""


class Trial:
    """One system on one fresh database."""

    def __init__(self, lab: Lab, system: str, server: EmbeddedPostgres, directory: Path) -> None:
        self.server = server
        python = lab.python(system)
        if python is None:
            raise SystemExit(f"{system} is not installed: python -m benchmarks.peers install {system}")
        self.database = f"peers_{system}"
        server.drop_database(self.database)
        self.log = directory / f"{system}.log"
        self.log.unlink(missing_ok=True)
        self.log.touch()
        program = directory / f"{system}_program.py"
        program.write_text(PROGRAMS[system])
        self._command = [str(python), str(program)]
        self._environment = {
            **lab.process_environment(),
            "PEERS_URL": server.create_database(self.database),
            "PEERS_LOG": str(self.log),
            "PEERS_TASK_SECONDS": str(TASK_SECONDS),
        }
        self._output = (directory / f"{system}.out").open("ab")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.ended_by_themselves = 0

    def do(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr[-800:]}")
        return done.stdout.strip()

    def start_worker(self) -> None:
        self.workers.append(
            subprocess.Popen(
                [*self._command, "work"], env=self._environment, stdout=self._output, stderr=subprocess.STDOUT
            )
        )

    def tend(self) -> None:
        """What a supervisor does: start again what has ended."""
        for worker in list(self.workers):
            if worker.poll() is not None:
                self.workers.remove(worker)
                self.ended_by_themselves += 1
                self.start_worker()

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        begun: Counter[str] = Counter()
        ended: Counter[str] = Counter()
        for line in self.log.read_text().splitlines():
            what, _, number = line.partition(" ")
            (begun if what == "begin" else ended)[number] += 1
        return begun, ended

    def close(self) -> None:
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
        self.server.drop_database(self.database)


def kill(trial: Trial) -> None:
    worker = trial.workers.pop(0)
    worker.kill()
    worker.wait()
    trial.start_worker()


def freeze(trial: Trial) -> None:
    worker = trial.workers[0]
    worker.send_signal(signal.SIGSTOP)
    time.sleep(30.0)
    worker.send_signal(signal.SIGCONT)


def restart(trial: Trial) -> None:
    trial.server.restart("immediate")


FAULTS: dict[str, Callable[[Trial], None]] = {
    "worker killed (kill -9)": kill,
    "worker frozen for 30 s (SIGSTOP)": freeze,
    "database restarted": restart,
}


def try_out(lab: Lab, system: str, fault: str, server: EmbeddedPostgres, directory: Path) -> Found:
    """Submit, let it run for a while, do it, and wait until all is done or patience ends."""
    trial = Trial(lab, system, server, directory)
    try:
        trial.do("setup")
        trial.do("submit", str(TASKS))
        for _ in range(WORKERS):
            trial.start_worker()
        while sum(trial.counts()[1].values()) < TASKS // 6:
            trial.tend()
            time.sleep(0.1)
        trial.ended_by_themselves = 0
        began = time.monotonic()
        FAULTS[fault](trial)
        seconds = None
        while time.monotonic() - began < PATIENCE:
            trial.tend()
            if len(trial.counts()[1]) == TASKS:
                seconds = round(time.monotonic() - began, 1)
                break
            time.sleep(0.2)
        time.sleep(5.0)  # what was begun again may end a second time
        begun, ended = trial.counts()
        return Found(
            system,
            lab.versions(system, "tasklib-pg" if system == "tasklib" else system).get(system, "this checkout"),
            fault,
            TASKS,
            len(ended),
            sum(begun.values()) - len(begun),
            sum(count > 1 for count in ended.values()),
            int(trial.do("left").splitlines()[-1]),
            seconds,
            trial.ended_by_themselves,
        )
    finally:
        trial.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.peers", description=__doc__)
    parser.add_argument("--systems", default=",".join(PROGRAMS))
    parser.add_argument("--lab", type=Path, default=default_directory())
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres() as server:
        os.chmod(directory, 0o755)
        for fault in FAULTS:
            for system in given.systems.split(","):
                found.append(try_out(Lab(given.lab), system, fault, server, Path(directory)))
                print(found[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(f) for f in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
