"""A Django project with `tasklib.django` among its apps: its commands, and its own tests."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.django.manage import manage

IN_TRANSACTIONS = ("test_in_testcase", "test_settings", "test_admin")


def test_the_tests_of_a_project_pass_in_the_transactions_of_django(empty_database_url: str) -> None:
    manage(empty_database_url, "test", *(f"shop.tests.{name}" for name in IN_TRANSACTIONS), "--noinput")


@pytest.mark.long
@pytest.mark.parametrize("max_age", [0, None])
def test_the_tests_of_a_project_pass_with_real_workers(empty_database_url: str, max_age: int | None) -> None:
    module = "shop.tests.test_in_transactiontestcase"
    manage(empty_database_url, "test", module, "--noinput", CONN_MAX_AGE=max_age)


@pytest.mark.long
def test_migrate_makes_the_tables_and_a_worker_runs_the_tasks_of_every_app(empty_database_url: str) -> None:
    """One project from its first command to its first result."""
    manage(empty_database_url, "migrate")
    submit = "from shop.tasks import *; o = Order.objects.create(email='ada@example.com').pk; "
    submit += "send_receipt.submit_sync(order=o); send_receipt_in_child.submit_sync(order=o)"
    manage(empty_database_url, "shell", "-c", submit)
    worked = manage(empty_database_url, "tasklib", "worker", "--burst", "--settings", "mysite.settings")
    assert "completed" in worked
    listed = manage(empty_database_url, "tasklib", "list", "--json")
    assert [json.loads(line)["state"] for line in listed.splitlines()] == ["completed"] * 2
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT receipts FROM shop_order").fetchall() == [(2,)]


@pytest.mark.long
def test_nothing_is_left_to_migrate_whether_or_not_there_is_a_schema(empty_database_url: str) -> None:
    settings = {"SCHEMA": "jobs"}
    manage(empty_database_url, "migrate", "tasklib", tasklib=settings)
    made = manage(empty_database_url, "makemigrations", "--check", "--dry-run", tasklib=settings)
    assert "No changes detected" in made
    look = "from tasklib.django.models import TaskRecord; from shop.tasks import send_receipt; "
    look += "send_receipt.submit_sync(order=1); print(TaskRecord.objects.get().kwargs)"
    assert "{'order': 1}" in manage(empty_database_url, "shell", "-c", look, tasklib=settings)
    assert "No changes detected" in manage(empty_database_url, "makemigrations", "--check", "--dry-run")


def test_before_migrate_a_submission_says_which_command_is_missing(empty_database_url: str) -> None:
    submit = "from shop.tasks import send_receipt; send_receipt.submit_sync(order=1)"
    said = manage(empty_database_url, "shell", "-c", submit, fails=True)
    assert "SchemaError: TaskLib's tables are missing" in said
    assert "Run: python manage.py migrate" in said
