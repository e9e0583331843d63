"""Run the tests that talk to PostgreSQL through PgBouncer in transaction mode, LISTEN on a direct connection.

make test-pgbouncer
make test-pgbouncer ARGS="tests/store -k claim"

Tests marked `direct` can't go through a pooler by their nature, and say why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

from tasklib.embedded import EmbeddedPostgres
from tests.pgbouncer import PROGRAM, Pooler, pgbouncer

ROOT = Path(__file__).parents[1]
INTEGRATION = [
    *("tests/store", "tests/migrations", "tests/maintenance", "tests/client", "tests/worker", "tests/executors"),
    *("tests/testing", "tests/server", "tests/http", "tests/dashboard", "tests/doctor", "tests/metrics", "tests/cli"),
    *("tests/observe", "tests/tracing", "tests/properties"),
]

# Who can't be served is told soon, not after two minutes.
SETTINGS = {"admin_users": "postgres", "query_wait_timeout": "10", "server_login_retry": "1"}


def main(arguments: list[str]) -> int:
    if PROGRAM is None:
        print("PgBouncer is not installed (Debian: apt install pgbouncer).")
        return 1
    with EmbeddedPostgres() as postgres, pgbouncer(postgres.url(), **SETTINGS) as pooler:
        code = _test_through(pooler, postgres, arguments or [d for d in INTEGRATION if (ROOT / d).exists()])
        print(f"{_transactions(pooler):,} transactions went through PgBouncer.")
    return code


def _test_through(pooler: Pooler, postgres: EmbeddedPostgres, arguments: list[str]) -> int:
    direct = psycopg.conninfo.conninfo_to_dict(postgres.url())["port"]
    paths = [str(ROOT / "tests/pooled"), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "TASKLIB_TEST_DATABASE_URL": postgres.url(),
        "POOLED_PORTS": f"{direct}:{pooler.port}",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    command = [sys.executable, "-m", "pytest", "-m", "not direct", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def _transactions(pooler: Pooler) -> int:
    with psycopg.connect(pooler.url("pgbouncer"), autocommit=True, cursor_factory=psycopg.ClientCursor) as console:
        cursor = console.execute("SHOW STATS")
        column = next(i for i, c in enumerate(cursor.description or ()) if c.name == "total_xact_count")
        return sum(int(row[column]) for row in cursor.fetchall())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
