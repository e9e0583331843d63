"""Run the tests on each Python we support that is installed here: 3.11, 3.12, 3.13. Needs nothing installed.

make test-pythons
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")


def main(arguments: list[str]) -> int:
    results: dict[str, str] = {}
    for version in VERSIONS:
        python = _find(version)
        results[version] = _test_with(python, version, arguments) if python else "not installed"
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return int(any(result == "FAILED" for result in results.values()))


def _find(version: str) -> str | None:
    """An interpreter that really is this version; pyenv's shims answer for versions that aren't switched on."""
    candidates = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
    for candidate in filter(None, candidates):
        asked = subprocess.run([str(candidate), "--version"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and f" {version}." in asked.stdout:
            return str(candidate)
    return None


def _test_with(python: str, version: str, arguments: list[str]) -> str:
    print(f"--- Python {version} ({python}) ---", flush=True)
    made = subprocess.run(
        ["make", "test", f"PYTHON={python}", f"VENV=.venv-{version}", f"ARGS={' '.join(arguments)}"],
        env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")},
        check=False,
    )
    return "passed" if made.returncode == 0 else "FAILED"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
