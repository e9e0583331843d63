"""Run the tests that talk to PostgreSQL on each version we support: 15 (the system's), 16 and 18 (the wheel's).

make test-postgres
make test-postgres ARGS="tests/store -k claim"
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tasklib.embedded import EmbeddedPostgres

SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
INTEGRATION = ["tests/store", "tests/worker", "tests/client", "tests/migrations"]


def main(arguments: list[str]) -> int:
    servers = {16: EmbeddedPostgres(version=16), 18: EmbeddedPostgres(version=18)}
    if SYSTEM_15.exists():
        servers = {15: EmbeddedPostgres(version=15, bin_dir=SYSTEM_15), **servers}
    else:
        print(f"PostgreSQL 15 is not installed in {SYSTEM_15}: testing 16 and 18 only.", flush=True)
    results = {version: _test_on(version, server, arguments or INTEGRATION) for version, server in servers.items()}
    for version, code in results.items():
        print(f"PostgreSQL {version}: {'passed' if code == 0 else f'FAILED ({code})'}")
    return max(results.values())


def _test_on(version: int, server: EmbeddedPostgres, arguments: list[str]) -> int:
    print(f"--- PostgreSQL {version} ---", flush=True)
    with server:
        environment = {**os.environ, "TASKLIB_TEST_DATABASE_URL": server.url()}
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
