"""Runs `manage.py` of the project in `project/`, or of an example, on a database of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

PROJECT = Path(__file__).parent / "project"
_NAMES = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}


def database(url: str, **changes: Any) -> dict[str, Any]:
    """An entry of DATABASES for this URL."""
    parts = conninfo_to_dict(url)
    known = {ours: str(parts[theirs]) for theirs, ours in _NAMES.items() if parts.get(theirs)}
    options = {"application_name": "the shop"}
    return {"ENGINE": "django.db.backends.postgresql", "OPTIONS": options, **known, **changes}


def manage(
    url: str,
    *arguments: str,
    project: Path = PROJECT,
    tasklib: dict[str, Any] | None = None,
    fails: bool = False,
    **changes: Any,
) -> str:
    """The output of a command of manage.py. `changes` are made to the entry of DATABASES."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TASKLIB_", "DATABASE_"))}
    environment |= {"SHOP_DATABASE": json.dumps(database(url, **changes)), "SHOP_TASKLIB": json.dumps(tasklib or {})}
    environment |= {"PYTHONWARNINGS": "default", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    output = ran.stdout + ran.stderr
    assert (ran.returncode != 0) == fails, output
    return output
