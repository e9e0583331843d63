"""Run the integration tests in schemas that a Citus cluster distributes.

TASKLIB_CITUS_URL=postgresql://postgres@coordinator/db make test-citus
TASKLIB_CITUS_URL=... TASKLIB_CITUS_CONNECT=coordinator make test-citus ARGS="tests/store -k claim"

Tests that read plans of plain tables, or make triggers of their own, fail there.
"""

from __future__ import annotations

import subprocess
import sys

from tests.distributed_schemas import CLUSTER, URL_VARIABLE

INTEGRATION = ["tests/citus", "tests/store", "tests/worker", "tests/client", "tests/migrations"]


def main(arguments: list[str]) -> int:
    if CLUSTER is None:
        print(f"Skipped: set {URL_VARIABLE} to the address of a Citus cluster's coordinator, and of a database on it.")
        return 0
    command = [sys.executable, "-m", "pytest", "-m", "not long", "-rs", *(arguments or INTEGRATION)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
