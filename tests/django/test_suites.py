"""The test suites of others, against the backend for `django.tasks`. They need sources that are not kept here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.django.manage import database

SOURCE = os.environ.get("TASKLIB_DJANGO_SOURCE", "")
SUITES = Path(__file__).parent / "suites"
IN_PLACE_OF = {
    "from django.tasks.backends.dummy import DummyBackend": "from suite_backends import Recording as DummyBackend",
    "from django.tasks.backends.immediate import ImmediateBackend": (
        "from suite_backends import Immediate as ImmediateBackend"
    ),
    "django.tasks.backends.dummy.DummyBackend": "suite_backends.Recording",
    "django.tasks.backends.immediate.ImmediateBackend": "suite_backends.Immediate",
    "import SimpleTestCase, TransactionTestCase": "import TransactionTestCase",
    "SimpleTestCase": "TransactionTestCase",  # theirs have no database
    "available_apps = []": "available_apps = None",
}
# What they test that is different here, and why.
DIFFERENT = {
    "ImmediateBackendTestCase.test_cannot_get_result": "results can be read",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "results can be read",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "run_after is supported",
    "DummyBackendTestCase.test_refresh_result": "it changes a result in memory; here it is read from the database",
    "DummyBackendTestCase.test_refresh_result_async": "it changes a result in memory",
    "TaskTestCase.test_refresh_result": "asynchronous code refreshes without await, which a database doesn't allow",
}


@pytest.mark.long
@pytest.mark.skipif(not SOURCE, reason="needs TASKLIB_DJANGO_SOURCE, a source distribution of Django 6")
def test_djangos_own_tests_of_task_backends_pass(empty_database_url: str, tmp_path: Path) -> None:
    shutil.copytree(Path(SOURCE) / "tests/tasks", tmp_path / "tasks")
    for path in (tmp_path / "tasks").glob("test_*.py"):
        text = path.read_text()
        for theirs, ours in IN_PLACE_OF.items():
            text = text.replace(theirs, ours)
        path.write_text(text)
    environment = {**os.environ, "SHOP_DATABASE": json.dumps(database(empty_database_url))}
    environment["PYTHONPATH"] = f"{tmp_path}:{SUITES}"
    command = [sys.executable, "-m", "django", "test", "--settings=suite_settings", "--noinput", "tasks"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    failed = set(re.findall(r"^(?:FAIL|ERROR): \w+ \([\w.]+\.(\w+\.\w+)\)", ran.stderr, re.MULTILINE))
    assert failed == set(DIFFERENT), ran.stderr
    assert "Ran 85 tests" in ran.stderr, ran.stderr  # of Django 6.1.3
