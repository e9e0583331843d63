"""The table: microseconds per task, by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from benchmarks.profile.drain import INSTRUMENTS, Drain
from benchmarks.profile.parts import BOOKKEEPING, RUNS_AT_ONCE
from benchmarks.profile.stages import CLAIM_WIRE, RUNNING, SETTLE_WIRE, STAGES
from benchmarks.profile.stopwatch import REST

OTHER_THREADS = "other threads (heartbeats, leases)"
SERVER = {CLAIM_WIRE: "claims", SETTLE_WIRE: "completions"}
Figures = dict[str, Any]


def figures_of(plain: list[Drain], watched: list[Drain], parts: Mapping[str, float]) -> Figures:
    """Medians over the drains; microseconds per task."""
    stages = {name: _median(watched, lambda d, name=name: d.by_stage.get(name, 0.0)) for name in _all_stages()}
    stages[OTHER_THREADS] = _median(watched, lambda d: d.other_threads)
    return {
        "tasks": plain[0].tasks,
        "tasks_s": median(d.tasks / d.wall for d in plain),
        "per_batch": median(d.tasks / d.batches for d in plain),
        "worker_us": _median(plain, lambda d: d.worker),
        "worker_watched_us": _median(watched, lambda d: d.worker),
        "waiting_us": _median(plain, lambda d: d.wall - d.worker),
        "stages_us": stages,
        "parts_us": {name: 1e6 * seconds for name, seconds in parts.items()} if RUNS_AT_ONCE else {},
        "server_us": _server(plain),
    }


def table(figures: Figures) -> str:
    whole = sum(figures["stages_us"].values())
    lines = [f"{'worker':<66}{'µs per task':>12}{'share':>8}"]
    for name, value in figures["stages_us"].items():
        lines.append(_line(name, value, whole))
        if name == RUNNING and figures["parts_us"]:
            left = value - sum(figures["parts_us"].values())
            lines += [
                _line(f"    {part}", us, whole) for part, us in {**figures["parts_us"], BOOKKEEPING: left}.items()
            ]
    lines += [_line("together", whole, whole), _line("without the stopwatch", figures["worker_us"], whole)]
    if figures["server_us"]:
        total = sum(figures["server_us"].values())
        lines += ["", f"{'server':<66}{'µs per task':>12}{'share':>8}"]
        lines += [_line(name, value, total) for name, value in figures["server_us"].items()]
        lines.append(_line("together", total, total))
    lines += ["", _speed(figures)]
    return "\n".join(lines)


def _speed(figures: Figures) -> str:
    return (
        f"{figures['tasks_s']:,.0f} tasks/s with one worker, {figures['per_batch']:,.0f} results per statement.\n"
        f"Of each {1e6 / figures['tasks_s']:.1f} µs the worker uses {figures['worker_us']:.1f} "
        f"and waits {figures['waiting_us']:.1f}."
    )


def _line(name: str, value: float, whole: float) -> str:
    return f"{name:<66}{value:>12.2f}{value / whole:>8.0%}"


def _all_stages() -> list[str]:
    return [*STAGES, REST, INSTRUMENTS]


def _server(drains: list[Drain]) -> dict[str, float]:
    """By process. What is left are those that write the log and the pages, and the worker's other connections."""
    if any(drain.server is None for drain in drains):
        return {}
    found = {said: _median(drains, lambda d, stage=stage: d.backends.get(stage, 0.0)) for stage, said in SERVER.items()}
    total = _median(drains, lambda d: d.server)
    return {**found, "all other processes": max(0.0, total - sum(found.values()))}


def _median(drains: list[Drain], seconds: Callable[..., float]) -> float:
    return median(1e6 * seconds(drain) / drain.tasks for drain in drains)
