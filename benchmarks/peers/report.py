"""REPORT.md: medians, ratios, and whether they show what they must."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.records import Record, read
from benchmarks.peers.summary import Summary
from benchmarks.peers.systems import WORKLOADS
from benchmarks.peers.verdicts import OURS, judge_all, number

COLUMNS = (
    ("W1 submit singly", "W1", "tasks_s"),
    ("W2 submit many", "W2", "tasks_s"),
    ("W3 drain", "W3", "tasks_s"),
    ("W4 two workers", "W4", "tasks_s"),
    ("W5 p50 ms", "W5", "p50"),
    ("W5 p99 ms", "W5", "p99"),
    ("W5 p50 from call", "W5", "call_p50"),
    ("W6 sync", "W6", "tasks_s"),
    ("W7 history", "W7", "tasks_s"),
    ("W8 snapshot", "W8", "tasks_s"),
    ("W9 CPU server", "W3", "cpu_server_10k"),
    ("W9 CPU worker", "W3", "cpu_worker_10k"),
    ("W10 producers", "W10", "tasks_s"),
)
"""What a table shows: its heading, the workload and the figure."""


def write_report(results: Sequence[Path], out: Path, *, all_runs: bool = False) -> None:
    """Write the report on these files of results."""
    records = [record for path in results for record in read(path)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(report(Summary(records, all_runs=all_runs)))


def report(summary: Summary) -> str:
    sections = [
        "# Comparison with peers and with PostgreSQL's limit\n",
        *_what_was_measured(summary),
        "\n## What it must show\n",
        *_verdicts(summary),
        "\n## Medians (least to most)\n",
        "Tasks per second; W5 in milliseconds; W9 in CPU seconds per 10,000 tasks.\n",
        *_medians(summary),
        f"\n## Ratios to {OURS}\n",
        f"1.00 is {OURS}. Of rates more is better, of W5 and W9 less.\n",
        *_ratios(summary),
        "\n## W8 as it goes on\n",
        "Tasks per second in each tenth of the drain, medians.\n",
        *_tenths(summary),
        "\n## Versions and settings\n",
        *_settings(summary),
    ]
    if summary.failures:
        sections += ["\n## What failed\n", *[_failure(record) for record in summary.failures]]
    return "\n".join(sections) + "\n"


def _what_was_measured(summary: Summary) -> list[str]:
    lines = []
    for name in sorted({run for workload in WORKLOADS for run in summary.run_of(workload)}):
        run = summary.runs.get(name)
        if run is None:
            continue
        machine, workloads = run["machine"], [w for w in WORKLOADS if name in summary.run_of(w)]
        quick = " **A quick run: to try it out, not to quote.**" if run.get("quick") else ""
        lines.append(
            f"- Run {name}, commit {run['commit']}: {', '.join(workloads)}; {run['repeats']} repeats, alternated."
            f" {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']};"
            f" PostgreSQL {run['postgresql'].get('server_version')}.{quick}"
        )
    return lines


def _verdicts(summary: Summary) -> list[str]:
    rows = [[v.workload, v.requirement, v.found or "-", v.word] for v in judge_all(summary)]
    return _table(["", "at least", "found", ""], rows)


def _medians(summary: Summary) -> list[str]:
    return _table(
        ["system", *(heading for heading, _, _ in COLUMNS)],
        [[name, *(_with_spread(summary, name, w, key) for _, w, key in COLUMNS)] for name in summary.systems],
    )


def _with_spread(summary: Summary, system: str, workload: str, key: str) -> str:
    figure = summary.figure(system, workload, key)
    if figure is None:
        return "-"
    spread = f" ({number(figure.least)} to {number(figure.most)})" if len(figure.values) > 1 else ""
    return number(figure.median) + spread


def _ratios(summary: Summary) -> list[str]:
    return _table(
        ["system", *(heading for heading, _, _ in COLUMNS)],
        [
            [name, *(_ratio(summary.ratio(name, OURS, workload, key)) for _, workload, key in COLUMNS)]
            for name in summary.systems
        ],
    )


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def _tenths(summary: Summary) -> list[str]:
    rows = []
    for name in summary.systems:
        tenths = summary.tenths(name)
        if tenths:
            steadiness = summary.steadiness(name)
            rows.append([name, *(number(rate) for rate in tenths), "-" if steadiness is None else f"{steadiness:.2f}"])
    return _table(["system", *(str(i) for i in range(1, 11)), "second half / first"], rows)


def _settings(summary: Summary) -> list[str]:
    lines = []
    for run in (summary.runs[name] for name in sorted(summary.runs) if _is_used(summary, name)):
        lines.append(f"Run {run['run']}\n")
        lines.append("- PostgreSQL: " + ", ".join(f"`{k} = {v}`" for k, v in sorted(run["postgresql"].items())))
        for name, system in run["systems"].items():
            drivers = "".join(f", {driver} {version}" for driver, version in system.get("drivers", {}).items())
            options = ", ".join(f"{key}={value!r}" for key, value in system["options"].items())
            lines.append(f"- {name} {system['version']} ({system['runtime']}{drivers}): {options or 'no options'}")
        lines.append("")
    return lines


def _is_used(summary: Summary, run: str) -> bool:
    return any(record["run"] == run for record in summary.used)


def _failure(record: Record) -> str:
    told = record.get("error") or {key: record.get(key) for key in ("n", "ran", "done", "stored", "lost")}
    return f"- {record['system']} {record['workload']}, repeat {record['repeat']}: {' '.join(str(told).split())[:300]}"


def _table(headings: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings), *[f"| {' | '.join(row)} |" for row in rows]]
