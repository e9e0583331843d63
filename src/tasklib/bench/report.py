"""Results in words and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tasklib.bench.machine import Facts
from tasklib.bench.plan import Plan
from tasklib.bench.running import Result
from tasklib.bench.workloads import CPU_SECONDS, MILLISECONDS

NOT_KNOWN = "not known"
TITLES = ("", "workload", "result", "from - to", "compared")
NUMBERS = {"result", "from - to"}


def as_json(facts: Facts, plan: Plan, results: Sequence[Result], began: datetime) -> dict[str, Any]:
    """Everything, for a program."""
    return {
        "began": began.isoformat(timespec="seconds"),
        "plan": asdict(plan),
        "facts": facts.as_json(),
        "workloads": [_workload(result) for result in results],
    }


def _workload(result: Result) -> dict[str, Any]:
    workload = result.workload
    return {
        "id": workload.id,
        "name": workload.name,
        "tasks": result.tasks,
        "unit": workload.unit,
        "value": result.value,
        "compared_with": workload.compared_with,
        "against": result.against,
        "ratio": result.ratio,
        "details": result.details,
        "samples": [asdict(sample) | {"ratio": sample.ratio} for sample in result.samples],
    }


def row(result: Result) -> tuple[str, ...]:
    """The cells below TITLES."""
    workload, values = result.workload, result.values
    spread = f"{figure(min(values), workload.unit)} - {figure(max(values), workload.unit)}" if values[1:] else ""
    shown = f"{figure(result.value, workload.unit)} {workload.unit}" if result.value is not None else NOT_KNOWN
    return workload.id, workload.name, shown, spread, compared(result)


def compared(result: Result) -> str:
    """`0.91 x a bare INSERT`, and what else there is to say."""
    details = result.details
    parts = [ratio(result)] if result.ratio is not None else []
    match result.workload.id:
        case "W5" | "W12":
            parts.append(f"p99 {said(details['p99_ms'], MILLISECONDS)}")
        case "W8":
            parts.append(f"last quarter {details['last_to_first']:.2f} x first")
        case "W9":
            parts += [f"{who} {said(details[who], CPU_SECONDS)}" for who in ("server", "worker")]
    return ", ".join(parts)


def ratio(result: Result) -> str:
    return f"{result.ratio:.2f} x {result.workload.compared_with}"


def figure(value: float, unit: str) -> str:
    """A number with as many digits as mean something."""
    return f"{value:,.0f}" if unit not in (MILLISECONDS, CPU_SECONDS) else f"{value:.2f}"


def said(value: float | None, unit: str) -> str:
    return NOT_KNOWN if value is None else f"{figure(value, unit)} {unit.removeprefix('CPU ')}"
