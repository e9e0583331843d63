"""The command line."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.lab import Lab
from benchmarks.peers.records import RESULTS, append, describe_run
from benchmarks.profile.drain import Drain, noop_task
from benchmarks.profile.parts import parts_of
from benchmarks.profile.report import Figures, figures_of, table
from benchmarks.profile.stages import Stages
from benchmarks.schema import BenchSchema, add_server_options, chosen_schema

TASKS, REPEATS = 100_000, 3
QUICK_TASKS = 3_000


def main(words: Sequence[str] | None = None) -> None:
    # The database is dropped on the way out, so a SIGTERM has to be a way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = _parser().parse_args(words)
    with chosen_schema(arguments, "profile") as schema:
        run(schema, arguments)


def run(schema: BenchSchema, arguments: argparse.Namespace) -> Figures:
    """Drain with the stopwatch and without, in turn."""
    function = noop_task()
    tasks, repeats = (QUICK_TASKS, 1) if arguments.quick else (arguments.tasks, arguments.repeats)
    Drain(schema, min(tasks, 20_000)).run(function)  # what is done once is done
    plain, watched, stages = [], [], Stages()
    for _ in range(repeats):
        plain.append(Drain(schema, tasks).run(function))
        stages = Stages()
        watched.append(Drain(schema, tasks, stages).run(function))
    figures = figures_of(plain, watched, parts_of(stages.rows, function, schema.config))
    print(table(figures))
    out = arguments.out or (arguments.lab / "profile-quick.jsonl" if arguments.quick else RESULTS / "profile.jsonl")
    described = describe_run([], Lab(arguments.lab), schema.server.settings(), quick=arguments.quick)
    append(out, {**described, "kind": "profile", "python": sys.version.split()[0], **figures})
    print(f"Kept in {out}.")
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description="Where a no-op task's time goes.")
    add_server_options(parser)
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"{TASKS:,} unless given")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"{REPEATS} unless given")
    parser.add_argument("--quick", action="store_true", help="few tasks: to see it run, not to be quoted")
    parser.add_argument("--out", type=Path, help="JSON lines, appended")
    return parser


if __name__ == "__main__":
    main()
