"""What a task costs a worker that serves several shards: `python -m benchmarks.shards`.

python -m benchmarks.shards --write           # adds the figures to results/shards.jsonl
python -m benchmarks.shards --tasks 2000      # quick

All shards are on one server, so this shows what serving more of them costs, and not what more servers bring. CPU time,
which a busy machine changes less than wall-clock time; rounds of all setups alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tasklib import Client, Config, Shard, Worker, task
from tasklib.bench.cpu import seconds_of_trees
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

RESULTS = Path(__file__).parent / "results" / "shards.jsonl"
CONCURRENCY = 100
SETUPS = (0, 1, 2, 4)
"""How many shards; 0: without shards."""


@task(name="shards.noop")
async def noop(n: int) -> int:
    return n


class Round(NamedTuple):
    """What one drain cost."""

    worker_us: float
    server_us: float
    tasks_per_claim: float
    tasks_per_settlement: float


def configuration(urls: Sequence[str], directory: Path) -> Config:
    """That of a worker over these shards. One shard is read from a file, which may name more later."""
    file = directory / f"{len(urls)}.toml"
    file.write_text("".join(f'[[shard]]\nnumber = {n}\ndatabase_url = "{url}"\n' for n, url in enumerate(urls)))
    return Config(shards_file=str(file))


def drained(config: Config, urls: Sequence[str], tasks: int, server_pid: int) -> Round:
    """Have a worker run so many tasks, an equal part in each shard."""
    for number, url in enumerate(urls):
        one = Config(shards=(Shard(number, url),)).for_shard(number)
        with Client(one) as client:
            client.submit_many(noop, [{"n": n} for n in range(tasks // len(urls))])
    before, server_before = time.process_time(), seconds_of_trees([server_pid])
    worker = Worker(config, concurrency=CONCURRENCY, burst=True, names=["shards.noop"])
    worker.run_sync()
    used, server_used = time.process_time() - before, seconds_of_trees([server_pid]) - server_before
    counts = {stat.key.outcome: stat.count for stat in worker.collector.totals() if not stat.key.name}
    return Round(
        used / tasks * 1e6,
        server_used / tasks * 1e6,
        counts["claimed"] / max(1, counts["claim"]),
        counts["settled"] / max(1, counts["settle"]),
    )


def measured(tasks: int, rounds: int) -> dict[str, dict[str, float]]:
    """The medians of each setup."""
    found: dict[int, list[Round]] = {setup: [] for setup in SETUPS}
    with EmbeddedPostgres(settings={"max_wal_size": "4GB"}) as server, tempfile.TemporaryDirectory() as directory:
        pid = server.postmaster_pid
        assert pid is not None
        urls = [server.create_database(f"shard_{number}") for number in range(max(SETUPS))]
        for number, url in enumerate(urls):
            migrate(Config(shards=(Shard(number, url),)).for_shard(number))
        for number in range(rounds + 1):
            for setup in SETUPS:
                part = urls[: max(1, setup)]
                config = configuration(part, Path(directory)) if setup else Config(urls[0])
                one = drained(config, part, tasks, pid)
                if number:  # the first round warms up
                    found[setup].append(one)
    return {
        str(setup): {
            name: round(statistics.median(getattr(each, name) for each in each_round), 1) for name in Round._fields
        }
        for setup, each_round in found.items()
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--write", action="store_true", help=f"Add the figures to {RESULTS.name}.")
    given = options.parse_args()
    figures: dict[str, Any] = {
        "on": f"{datetime.now(UTC):%Y-%m-%d}",
        "tasks": given.tasks,
        "rounds": given.rounds,
        "slots": CONCURRENCY,
        "by_shards": measured(given.tasks, given.rounds),
    }
    print(json.dumps(figures, indent=2))
    if given.write:
        with RESULTS.open("a") as results:
            results.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
