"""The Django project among the examples: its tests, and a migration state that is complete."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.docs.pages import ROOT

_VARIABLES = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}


@pytest.mark.long
@pytest.mark.parametrize("command", ["makemigrations --check --dry-run", "test --noinput"])
def test_the_django_example_works(empty_database_url: str, command: str) -> None:
    parts = conninfo_to_dict(empty_database_url)
    variables = {variable: str(parts[name]) for name, variable in _VARIABLES.items() if parts.get(name)}
    ran = subprocess.run(
        [sys.executable, "manage.py", *command.split()],
        cwd=ROOT / "examples/django_shop",
        env={**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
