"""Results as JSON lines: one that describes a run, then one for each measurement in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers.lab import ROOT, Lab
from benchmarks.peers.systems import System
from tasklib.bench.machine import hardware

Record = dict[str, Any]

RESULTS = ROOT / "benchmarks" / "results"
DRIVERS = ("psycopg", "asyncpg", "uvloop", "redis")


def describe_run(systems: Iterable[System], lab: Lab, server_settings: dict[str, str], **more: Any) -> Record:
    """Where, on what and with which versions the measurements of a run are made."""
    now = datetime.now(UTC)
    return {
        "kind": "run",
        "run": now.strftime("%Y%m%dT%H%M%SZ"),
        "at": now.isoformat(timespec="seconds"),
        "machine": {**hardware(), "load_before": round(os.getloadavg()[0], 2)},
        "commit": checked_out(),
        "postgresql": server_settings,
        "systems": {system.name: {"options": dict(system.options), **versions(system, lab)} for system in systems},
        **more,
    }


def versions(system: System, lab: Lab) -> dict[str, Any]:
    """The version of a system and of what it runs on."""
    if system.language == "node":
        return {"version": lab.node_version(system.distribution), "runtime": f"node {_said('node', '--version')}"}
    found = lab.versions(system.environment, system.distribution, *DRIVERS)
    return {
        "version": found.get(system.distribution),
        "runtime": f"python {found.get('python')}",
        "drivers": {name: found[name] for name in DRIVERS if name in found},
    }


def append(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def checked_out() -> str:
    """What is checked out; a trailing + says that files differ from it."""
    commit = _said("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    changed = _said("git", "-C", str(ROOT), "status", "--porcelain", "--", "src", "benchmarks/peers")
    return f"{commit or 'unknown'}{'+' if changed else ''}"


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""
