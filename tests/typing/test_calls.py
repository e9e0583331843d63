"""Type checkers report each wrong call in `calls.py`, and no right one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CALLS = HERE / "calls.py"
ROOT = HERE.parent.parent
OFFLINE = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # else it looks for a newer version of itself


def marked() -> set[int]:
    """The lines that must be reported."""
    return {n for n, line in enumerate(CALLS.read_text().splitlines(), 1) if line.endswith("# E")}


def explained(lines: set[int]) -> list[str]:
    texts = CALLS.read_text().splitlines()
    return [f"{n}: {texts[n - 1]}" for n in sorted(lines)]


def reported_by_mypy(cache: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(HERE / "mypy.ini")]
    ran = subprocess.run(
        [*command, "--cache-dir", str(cache), str(CALLS)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ran.returncode in (0, 1), ran.stderr
    for line in ran.stdout.splitlines():
        if found := re.match(r"(.*):(\d+): error: ", line):
            assert found[1].endswith("calls.py"), line
            yield int(found[2])


def reported_by_pyright() -> Iterator[int]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run([*command, str(CALLS)], capture_output=True, text=True, check=False, cwd=HERE, env=OFFLINE)
    if ran.returncode not in (0, 1):
        pytest.skip(f"pyright can't run here: {(ran.stderr or ran.stdout).strip().splitlines()[-1]}")
    for found in json.loads(ran.stdout)["generalDiagnostics"]:
        if found["severity"] == "error":
            yield found["range"]["start"]["line"] + 1


def test_there_are_forty_calls_of_either_kind() -> None:
    checked = [line for line in CALLS.read_text().splitlines() if "assert_type(" in line]
    assert min(len(marked()), len(checked)) >= 40


def test_mypy_reports_each_wrong_call_and_no_right_one(request: pytest.FixtureRequest) -> None:
    cache = request.config.cache
    assert cache is not None
    reported = set(reported_by_mypy(cache.mkdir("mypy-of-calls")))
    assert (explained(marked() - reported), explained(reported - marked())) == ([], [])


def test_pyright_reports_each_wrong_call_and_no_right_one() -> None:
    pytest.importorskip("pyright", reason="pyright is not installed: pip install 'pyright[nodejs]'")
    reported = set(reported_by_pyright())
    assert (explained(marked() - reported), explained(reported - marked())) == ([], [])
