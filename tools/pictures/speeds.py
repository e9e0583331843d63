"""The recorded comparison with other queues as a chart that fits light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.records import RESULTS, read
from benchmarks.peers.summary import Summary

SYSTEMS = {
    "tasklib": "TaskLib",
    "pgqueuer": "PgQueuer",
    "graphile-worker": "graphile-worker (Node)",
    "oban": "Oban (Python)",
    "procrastinate": "Procrastinate",
}
OURS = "tasklib"
WIDTH, LABEL, BAR, STEP, GAP = 840, 190, 16, 24, 46
LONGEST = WIDTH - LABEL - 90
_STYLE = """text { font: 13px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 14px; } .note { fill: #57606a; font-size: 12px; }
.ours { fill: #2f6fa7; } .other { fill: #b9c3cc; } .figure { font-weight: 600; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .note { fill: #9198a1; } .ours { fill: #4a94d3; } .other { fill: #59636e; }
}"""


@dataclass(frozen=True)
class Panel:
    """One workload: what it measures, and its name and figure in the records."""

    title: str
    workload: str
    key: str = "tasks_s"
    note: str = "per second, more is better"


PANELS = (
    Panel("One worker runs tasks that do nothing and stores their results", "W3"),
    Panel("The same with plain functions, which run in threads", "W6"),
    Panel("One program submits tasks one by one", "W1"),
    Panel("From submission until an idle worker begins the task", "W5", "p50", "milliseconds, less is better"),
)


def svg() -> str:
    """The chart of the recorded medians, the best first. A system that a workload didn't measure is left out."""
    summary = Summary(read(RESULTS / "peers.jsonl"))
    drawn: list[str] = []
    top = 8
    for panel in PANELS:
        drawn += _panel(panel, bars := _bars(summary, panel), top)
        top += GAP + STEP * len(bars)
    note = "Medians. Two shared cores run the worker, PostgreSQL 15 and the benchmark together."
    drawn.append(f'<text class="note" x="0" y="{top + 10}">{note}</text>')
    size = f'viewBox="0 0 {WIDTH} {top + 20}" width="{WIDTH}"'
    label = "Speeds of TaskLib and other queues on PostgreSQL"
    body = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">\n'
        f"<style>\n{_STYLE}\n</style>\n{body}\n</svg>\n"
    )


def _bars(summary: Summary, panel: Panel) -> list[tuple[str, float]]:
    found = [
        (system, median)
        for system in SYSTEMS
        if (median := summary.median(system, panel.workload, panel.key)) is not None
    ]
    return sorted(found, key=lambda bar: bar[1], reverse=panel.key == "tasks_s")


def _panel(panel: Panel, bars: list[tuple[str, float]], top: int) -> Iterator[str]:
    longest = max(value for _, value in bars)
    yield f'<text class="title" x="0" y="{top + 12}">{panel.title} <tspan class="note">({panel.note})</tspan></text>'
    for place, (system, value) in enumerate(bars):
        y, length = top + 24 + place * STEP, max(2, round(LONGEST * value / longest))
        kind = "ours" if system == OURS else "other"
        shown = f"{round(value, -2 if value >= 10_000 else 0):,.0f}" if panel.key == "tasks_s" else f"{value:.2f}"
        yield f'<text x="{LABEL - 10}" y="{y + 13}" text-anchor="end">{SYSTEMS[system]}</text>'
        yield f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length}" height="{BAR}" rx="2"/>'
        yield f'<text class="figure" x="{LABEL + length + 8}" y="{y + 13}">{shown}</text>'
