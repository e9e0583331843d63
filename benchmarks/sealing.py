"""What sealing costs per task: python benchmarks/sealing.py

Seals and opens the arguments of one task again and again, in one process, without a database, and prints the
median of the CPU time of several rounds in microseconds.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable

from tasklib.tasks.keyring import Keyring
from tasklib.tasks.sealing import Sealing, TaskSeal

ROUNDS, CALLS = 9, 1000
SIZES = (100, 1_000, 10_000)


def microseconds(call: Callable[[], object]) -> float:
    """The median over some rounds of the CPU time that one call takes."""
    rounds = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(CALLS):
            call()
        rounds.append((time.process_time() - before) / CALLS * 1e6)
    return statistics.median(rounds)


def main() -> None:
    seal = TaskSeal(Keyring([("2026-11", os.urandom(32))]), "2026-11", "018f0000-0000-7000-8000-000000000001", "pay")
    whole = Sealing(None)
    print(f"{'bytes':>8} {'seal µs':>8} {'open µs':>8}")
    for size in SIZES:
        text = json.dumps({"iban": "x" * (size - 12)})
        stored = seal.arguments(text, whole)
        sealing = microseconds(lambda text=text: seal.arguments(text, whole))
        opening = microseconds(lambda stored=stored: seal.opened_arguments(stored))
        print(f"{len(text):>8} {sealing:>8.1f} {opening:>8.1f}")


if __name__ == "__main__":
    main()
