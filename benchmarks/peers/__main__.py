"""The command line: install, run, report."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.catalogue import SYSTEMS, chosen
from benchmarks.peers.installing import install
from benchmarks.peers.lab import Lab, default_directory
from benchmarks.peers.records import RESULTS, Record, append, describe_run
from benchmarks.peers.report import write_report
from benchmarks.peers.runner import Plan, carry_out
from benchmarks.peers.server import Redis, Server, own_redis, own_server
from benchmarks.peers.systems import WORKLOADS, System
from benchmarks.peers.workloads import QUICK, Scale


def main() -> None:
    # Workers are stopped on the way out, so a SIGTERM has to be a way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = _parser().parse_args()
    arguments.do(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--lab", type=Path, default=default_directory(), help="where everything is installed and run")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("install", help="install the systems into the lab")
    command.add_argument("environments", nargs="*", help="only these")
    command.add_argument("--python", type=Path, help="the interpreter for all of them; this one unless given")
    command.set_defaults(do=_install)

    command = commands.add_parser("run", help="measure, and append the results to a file")
    command.add_argument(
        "--systems", default="", help=f"separated by commas; all that are installed, of {', '.join(SYSTEMS)}"
    )
    command.add_argument("--workloads", default=",".join(WORKLOADS), help="separated by commas")
    command.add_argument("--repeats", type=int, default=3)
    command.add_argument("--quick", action="store_true", help="few tasks: to try it out, not to quote")
    command.add_argument("--count", type=int, help="the same number of tasks for every system and workload")
    command.add_argument("--database-url", help="a server of yours, where databases may be created")
    command.add_argument("--postgres-bin", type=Path, help="the programs of the PostgreSQL to start")
    command.add_argument("--out", type=Path, help="results/peers.jsonl, or quick.jsonl in the lab, unless given")
    command.set_defaults(do=_run)

    command = commands.add_parser("report", help="make REPORT.md of the results")
    command.add_argument("results", type=Path, nargs="*", help="results/peers.jsonl unless given")
    command.add_argument("--quick", action="store_true", help="on the quick runs; both files are in the lab")
    command.add_argument("--all-runs", action="store_true", help="merge all runs, not the last one of each workload")
    command.add_argument("--out", type=Path, help="REPORT.md beside the results unless given")
    command.set_defaults(do=_report)
    return parser


def _install(arguments: argparse.Namespace) -> None:
    outcomes = install(Lab(arguments.lab), arguments.python, set(arguments.environments))
    for program in ("node", "redis-server"):
        if not shutil.which(program):
            print(f"  {program} is not installed: the systems that need it will be left out")
    failed = [name for name, outcome in outcomes.items() if outcome.startswith("NOT")]
    print(f"in {arguments.lab}" + (f"; not installed: {', '.join(failed)}" if failed else ""))


def _run(arguments: argparse.Namespace) -> None:
    lab = Lab(arguments.lab)
    lab.directory.mkdir(parents=True, exist_ok=True)
    out = arguments.out or _results(arguments)
    with ExitStack() as stack:
        if arguments.database_url:
            server = Server(arguments.database_url, notes=["the server's CPU seconds are unknown: it is a given one"])
        else:
            server = stack.enter_context(own_server(lab, arguments.postgres_bin))
        systems = chosen(filter(None, arguments.systems.split(",")))
        redis = stack.enter_context(own_redis(lab)) if any(s.broker == "redis" for s in systems) else None
        plan = Plan(_that_can_run(systems, lab, redis), _workloads(arguments), arguments.repeats, _scale(arguments))
        run = describe_run(
            plan.systems, lab, server.settings(), quick=arguments.quick, repeats=arguments.repeats, notes=server.notes
        )
        append(out, run)

        def keep(record: Record) -> None:
            append(out, record)
            print(_line(record), flush=True)

        carry_out(plan, lab, server, redis, keep, run["run"])
        for note in server.notes:
            print(f"note: {note}")


def _that_can_run(systems: list[System], lab: Lab, redis: Redis | None) -> list[System]:
    able = []
    for system in systems:
        if system.language == "node":
            there = bool(lab.node_version(system.distribution) and shutil.which("node"))
        else:
            there = system.distribution in lab.versions(system.environment, system.distribution)
        if there and not (system.broker == "redis" and redis is None):
            able.append(system)
        else:
            print(f"{system.name:20} left out: {'it is not installed' if not there else 'there is no Redis'}")
    return able


def _workloads(arguments: argparse.Namespace) -> list[str]:
    names: list[str] = arguments.workloads.split(",")
    if unknown := set(names).difference(WORKLOADS):
        raise SystemExit(f"no workload {', '.join(sorted(unknown))}. There are: {', '.join(WORKLOADS)} (W9 is in W3).")
    return names


def _scale(arguments: argparse.Namespace) -> Scale:
    scale = QUICK if arguments.quick else Scale()
    return replace(scale, fixed=arguments.count) if arguments.count else scale


def _line(record: Record) -> str:
    head = f"{record['repeat']} {record['workload']:3} {record['system']:20}"
    if record.get("error"):
        return f"{head} FAILED {record['error'][-300:]}"
    if "p50" in record:
        figures = f"p50 {record['p50']:.2f} ms, p99 {record['p99']:.2f} ms"
    else:
        figures = f"{record['tasks_s']:>10,.0f} tasks/s  ({record['n']:,} in {record['seconds']:.2f} s)"
    return f"{head} {figures}{'' if record['ok'] else '  NOT OK'}"


def _report(arguments: argparse.Namespace) -> None:
    results = arguments.results or [_results(arguments)]
    out = arguments.out or results[0].with_name("REPORT.md")
    write_report(results, out, all_runs=arguments.all_runs)
    print(out.read_text())


def _results(arguments: argparse.Namespace) -> Path:
    """Quick runs stay out of the tree: they aren't results."""
    lab: Path = arguments.lab
    return lab / "quick.jsonl" if arguments.quick else RESULTS / "peers.jsonl"


if __name__ == "__main__":
    main()
