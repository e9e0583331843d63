"""Does the claim use its index?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasklib.client.effects import Call, InTransaction
from tasklib.config import Config
from tasklib.doctor.findings import Finding, critical, ok
from tasklib.store import doctor
from tasklib.store.claim import Served

_INDEXES = frozenset({"tasks_claimable", "tasks_pkey"})


def look(config: Config) -> Call[list[Finding]]:
    plan: dict[str, Any] = yield InTransaction((), [doctor.as_a_claim(), doctor.claim_plan(Served(["any"]))])
    others = sorted({_said(scan) for scan in _scans(plan) if scan.get("Index Name") not in _INDEXES | {None}})
    others += sorted({_said(scan) for scan in _scans(plan) if "Index" not in scan["Node Type"] and _is_read(scan)})
    if not others:
        return [ok("claim_plan", "The claim is planned as scans of its index.")]
    return [
        critical(
            "claim_plan",
            f"The claim's plan has {', '.join(others)}.",
            "It should only scan the index tasks_claimable; otherwise each claim reads the whole backlog, or the "
            "whole table.",
            "Fix a missing or invalid index reported above, then run: ANALYZE tasks;",
            scans=others,
        )
    ]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [n for n in _nodes(plan) if n.get("Relation Name") == "tasks" and "Scan" in n["Node Type"]]


def _is_read(scan: dict[str, Any]) -> bool:
    # What was locked is updated where it was found.
    return bool(scan["Node Type"] != "Tid Scan")


def _said(scan: dict[str, Any]) -> str:
    index = f" of {scan['Index Name']}" if "Index Name" in scan else " of tasks"
    return f"{scan['Node Type']}{index}"
