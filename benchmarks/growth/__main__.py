"""The command line."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.growth import crowd, report
from benchmarks.growth.dimensions import DIMENSIONS, TITLES, WORKERS
from benchmarks.growth.measuring import Figures, measure
from benchmarks.peers.lab import Lab
from benchmarks.peers.records import RESULTS, Record, append, describe_run, read
from benchmarks.schema import BenchSchema, add_server_options, chosen_schema

ROUNDS, QUICK_ROUNDS = 15, 2


def main(words: Sequence[str] | None = None) -> None:
    # The database is dropped on the way out, so a SIGTERM has to be a way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = _parser().parse_args(words)
    if arguments.draw:
        _draw(_last_of_each(read(arguments.draw)), arguments.charts or Path())
        return
    with chosen_schema(arguments, "growth") as schema:
        run(schema, arguments)


def run(schema: BenchSchema, arguments: argparse.Namespace) -> None:
    """Measure, print and keep."""
    out = arguments.out or (arguments.lab / "growth-quick.jsonl" if arguments.quick else RESULTS / "growth.jsonl")
    described = describe_run([], Lab(arguments.lab), schema.server.settings(), quick=arguments.quick)
    append(out, described)
    if schema.postmaster is None:
        print("The server can't be seen from here, so its CPU time is unknown.")
    records: list[Record] = []
    for dimension in _chosen(arguments.only):
        print(report.head(dimension), flush=True)
        for figures in _measured(schema, dimension, arguments.quick):
            record = {"kind": "growth", "run": described["run"], "dimension": dimension, **figures}
            records.append(record)
            append(out, record)
            print(report.line(record), flush=True)
    print(f"\n{report.LEGEND}\nKept in {out}.")
    if arguments.charts:
        _draw(records, arguments.charts)


def _measured(schema: BenchSchema, dimension: str, quick: bool) -> Iterator[dict[str, Any]]:
    points = _crowds(schema, quick) if dimension == "workers" else _scenes(schema, dimension, quick)
    for at, figures in points:
        begun = time.monotonic()
        found = figures()
        yield {"at": at, "label": f"{at:,}", **found, "took_seconds": round(time.monotonic() - begun, 1)}


def _scenes(schema: BenchSchema, dimension: str, quick: bool) -> Iterator[tuple[int, Callable[[], Figures]]]:
    for scene in DIMENSIONS[dimension](quick):
        yield scene.at, partial(measure, schema, scene, QUICK_ROUNDS if quick else ROUNDS)


def _crowds(schema: BenchSchema, quick: bool) -> Iterator[tuple[int, Callable[[], Figures]]]:
    tasks, rounds = (2_000, 1) if quick else (100_000, 3)
    for members in (1, 2) if quick else WORKERS:
        if crowd.fits(schema, members):
            yield members, partial(crowd.measure, schema, members, tasks, rounds)
        else:
            print(f"{members:>12,}  the server has too few connections (max_connections)")


def _chosen(only: str) -> list[str]:
    names = only.split(",") if only else list(TITLES)
    if unknown := set(names) - TITLES.keys():
        raise SystemExit(f"nothing called {', '.join(sorted(unknown))}. There are: {', '.join(TITLES)}.")
    return names


def _last_of_each(records: list[Record]) -> list[Record]:
    """Each dimension from the last run that has it."""
    points = [record for record in records if record["kind"] == "growth"]
    last = {point["dimension"]: point["run"] for point in points}
    return [point for point in points if point["run"] == last[point["dimension"]]]


def _draw(records: list[Record], directory: Path) -> None:
    from benchmarks.growth.chart import draw  # matplotlib takes a while, and not everybody has it

    directory.mkdir(parents=True, exist_ok=True)
    draw(records, directory / "growth.svg")
    print(f"Drawn in {directory / 'growth.svg'}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description="What a task costs, as things grow."
    )
    add_server_options(parser)
    parser.add_argument("--quick", action="store_true", help="small and few: to see it run, not to be quoted")
    parser.add_argument("--only", default="", help=f"separated by commas, of {', '.join(TITLES)}")
    parser.add_argument("--out", type=Path, help="JSON lines, appended")
    parser.add_argument("--charts", type=Path, help="a directory for growth.svg")
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help="only draw: each dimension from the last run in this file"
    )
    return parser


if __name__ == "__main__":
    main()
