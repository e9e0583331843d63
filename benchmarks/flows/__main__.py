"""What flows and durable functions cost: `python -m benchmarks.flows`.

python -m benchmarks.peers install celery dbos     # once; without them, chains are measured alone
python -m benchmarks.flows --write                 # all of it; adds the figures to results/flows.jsonl
python -m benchmarks.flows child joins --scale 0.1
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.flows.chains import chains
from benchmarks.flows.costs import child, gate, joins, steps
from benchmarks.flows.stage import Stage
from benchmarks.peers.lab import Lab, default_directory
from benchmarks.peers.records import RESULTS, append, checked_out
from benchmarks.peers.server import own_redis, own_server

TARGETS: dict[str, tuple[str, Callable[[dict[str, Any]], bool]]] = {
    "child": (
        "a child at most 15% dearer than a plain task, in time and in CPU",
        lambda found: max(found["dearer_by_time"], found["dearer_by_cpu"]) <= 0.15,
    ),
    "gate": ("a million children on one gate", lambda found: found["children"] >= 1_000_000),
    "joins": ("from the last child to its join, p99 under 50 ms", lambda found: found["p99_ms"] < 50),
    "steps": ("5,000 steps a second", lambda found: found["steps_per_second"] >= 5000),
    "chains": ("3 times the chains of the fastest peer", lambda found: (found["times_the_fastest_peer"] or 0) >= 3),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(TARGETS)}; all unless given")
    options.add_argument("--scale", type=float, default=1.0, help="0.1: a tenth of the tasks, for a first impression")
    options.add_argument("--rounds", type=int, default=5, help="turns of each side, where sides are compared")
    options.add_argument("--lab", type=Path, default=default_directory())
    options.add_argument("--write", action="store_true", help="Add the figures to results/flows.jsonl.")
    given = options.parse_args()
    if unknown := set(given.parts) - TARGETS.keys():
        options.error(f"no part is called {', '.join(sorted(unknown))}")
    lab = Lab(given.lab)
    lab.directory.mkdir(parents=True, exist_ok=True)
    size: Callable[[int], int] = lambda n: max(10, int(n * given.scale))  # noqa: E731 - it reads like a unit below
    with own_server(lab, None) as server, own_redis(lab) as redis:
        stage = Stage(server, lab)
        measured: dict[str, Callable[[], dict[str, Any]]] = {
            "child": lambda: child(stage, size(50_000), given.rounds),
            "gate": lambda: gate(stage, size(1_000_000)),
            "joins": lambda: joins(stage, size(500)),
            "steps": lambda: steps(stage, size(2_000), 20),
            "chains": lambda: chains(stage, redis, size(5_000), given.rounds),
        }
        for part in given.parts or TARGETS:
            print(f"{part}: {TARGETS[part][0]}", flush=True)
            found = measured[part]()
            record = {"kind": part, **_circumstances(), **found, "holds": TARGETS[part][1](found)}
            print(json.dumps(record, indent=2), flush=True)
            if given.write:
                append(RESULTS / "flows.jsonl", record)


def _circumstances() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checked_out(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
