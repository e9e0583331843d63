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
TASKS_DB_SOURCE = os.environ.get("TASKLIB_DJANGO_TASKS_DB_SOURCE", "")
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
DJANGOS_TESTS = 85  # of Django 6.1.3


# The scenarios of django-tasks-db: what becomes of enqueued tasks, and what a worker does with them. Its other classes
# test how it locks rows, deletes old ones, orders its model, and how its command parses and stops.
SCENARIOS = ("DatabaseBackendTestCase", "DatabaseBackendWorkerTestCase")
IN_PLACE_OF_TASKS_DB = {
    "self.assertNumQueries(": "contextlib.nullcontext(",  # a worker has connections of its own
    "result.id).version, 4)": "result.id).version, 7)",
    'assertLogs("django_tasks"': 'assertLogs("django.tasks"',
    'assertIn("django_tasks_db", errors': 'assertIn("tasklib.django", errors',
}
_COMMAND = "an option or message of their command `db_worker`"
_ID = "their option `id_function`: ids are UUIDs of version 7"
_WAITS = "a task whose function no worker has doesn't fail: it waits, and `tasklib doctor` names it"
_BACKEND, _WORKER = SCENARIOS
DIFFERENT_FROM_TASKS_DB = {
    f"{_BACKEND}.test_custom_id_function": _ID,
    f"{_BACKEND}.test_unknown_id_function": _ID,
    f"{_BACKEND}.test_postgres_db_id_function": _ID,
    f"{_BACKEND}.test_index_scan_for_ready": "the index of their table",
    f"{_BACKEND}.test_run_after_null_0016_migration": "a row of one of their migrations",
    f"{_BACKEND}.test_task_name": "a property of their model",
    f"{_BACKEND}.test_invalid_task_path": "a row that is no task of Django's has no result: `TaskResultDoesNotExist`",
    f"{_WORKER}.test_run_after_priority": "the order of their model's rows",
    f"{_WORKER}.test_invalid_task_path": _WAITS,
    f"{_WORKER}.test_missing_task_path": _WAITS,
    f"{_WORKER}.test_task_import_string": _WAITS,
    f"{_WORKER}.test_doesnt_process_different_backend": _COMMAND,
    f"{_WORKER}.test_exclude_queues_requires_processing_all_queues": _COMMAND,
    f"{_WORKER}.test_excluding_unknown_queue_processes_selected_queues": _COMMAND,
    f"{_WORKER}.test_process_all_queues_excluding_one_queue": _COMMAND,
    f"{_WORKER}.test_max_tasks": _COMMAND,
    f"{_WORKER}.test_fractional_interval": _COMMAND,
    f"{_WORKER}.test_negative_interval": _COMMAND,
    f"{_WORKER}.test_infinite_interval": _COMMAND,
    f"{_WORKER}.test_negative_max_tasks": _COMMAND,
    f"{_WORKER}.test_empty_worker_id": _COMMAND,
    f"{_WORKER}.test_too_long_worker_id": _COMMAND,
    f"{_WORKER}.test_unknown_backend": _COMMAND,
    f"{_WORKER}.test_incorrect_backend": _COMMAND,
    f"{_WORKER}.test_verbose_logging": _COMMAND,
}
ALL_OF_TASKS_DB, SKIPPED = 59, 1  # of its commit c7230a3; the one is for Django before 6.0


def changed(directory: Path, in_place_of: dict[str, str]) -> None:
    """Put ours in the place of theirs in the tests of a directory."""
    for path in directory.glob("test*.py"):
        text = path.read_text()
        for theirs, ours in in_place_of.items():
            text = text.replace(theirs, ours)
        path.write_text(text)


def outcome_of(url: str, settings: str, directory: Path, *names: str) -> str:
    """What Django's test runner says of these tests."""
    environment = {**os.environ, "SHOP_DATABASE": json.dumps(database(url))}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (directory, SUITES, SUITES / "stand_ins")))
    command = [sys.executable, "-m", "django", "test", f"--settings={settings}", "--noinput", *names]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False).stderr


@pytest.mark.long
@pytest.mark.skipif(not SOURCE, reason="needs TASKLIB_DJANGO_SOURCE, a source distribution of Django 6")
def test_djangos_own_tests_of_task_backends_pass(empty_database_url: str, tmp_path: Path) -> None:
    shutil.copytree(Path(SOURCE) / "tests/tasks", tmp_path / "tasks")
    changed(tmp_path / "tasks", IN_PLACE_OF)
    said = outcome_of(empty_database_url, "suite_settings", tmp_path, "tasks")
    failed = set(re.findall(r"^(?:FAIL|ERROR): \w+ \([\w.]+\.(\w+\.\w+)\)", said, re.MULTILINE))
    assert failed == set(DIFFERENT), said
    assert f"Ran {DJANGOS_TESTS} tests" in said, said


@pytest.mark.long
@pytest.mark.skipif(not TASKS_DB_SOURCE, reason="needs TASKLIB_DJANGO_TASKS_DB_SOURCE, a checkout of django-tasks-db")
def test_the_scenarios_of_django_tasks_db_pass(empty_database_url: str, tmp_path: Path) -> None:
    shutil.copytree(Path(TASKS_DB_SOURCE) / "tests", tmp_path / "tests")
    changed(tmp_path / "tests", IN_PLACE_OF_TASKS_DB)
    scenarios = [f"tests.tests.{name}" for name in SCENARIOS]
    said = outcome_of(empty_database_url, "suite_tasks_db_settings", tmp_path, *scenarios)
    failed = set(re.findall(r"^(?:FAIL|ERROR): \w+ \([\w.]+\.(\w+\.\w+)\)", said, re.MULTILINE))
    assert failed == set(DIFFERENT_FROM_TASKS_DB), said
    ran = {f"Ran {ALL_OF_TASKS_DB} tests", f"Ran {ALL_OF_TASKS_DB - SKIPPED} tests"}  # as the release of Python counts
    assert any(line in said for line in ran), said


def test_the_page_says_the_counts_and_lists_every_scenario_that_differs_with_its_reason() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/use-with-django.md").read_text()
    passed = ALL_OF_TASKS_DB - SKIPPED - len(DIFFERENT_FROM_TASKS_DB)
    assert f"Of the {ALL_OF_TASKS_DB} tests in which" in page
    assert f"{passed} pass with TaskLib's backend and worker" in page
    assert f"The other {len(DIFFERENT_FROM_TASKS_DB)} don't" in page
    assert f"Of the {DJANGOS_TESTS} tests that Django" in page
    assert f"{DJANGOS_TESTS - len(DIFFERENT)} pass with subclasses" in page
    reasons: dict[str, list[str]] = {}
    for name, reason in DIFFERENT_FROM_TASKS_DB.items():
        reasons.setdefault(reason, []).append(f"`{name.partition('.')[2]}`")
    for reason, names in reasons.items():
        assert f"| {reason} | {', '.join(names)} |" in page
