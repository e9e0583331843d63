"""The doctor says when finished tasks pile up because no rule deletes them."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import Config
from tasklib.config import Retention
from tasklib.doctor import retention
from tasklib.doctor.findings import Severity
from tests.doctor.conftest import Look


@pytest.fixture
def old_tasks(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MANY", 50)
    db.execute(
        "INSERT INTO tasks (name, state, completed_at, result) "
        """SELECT 'done', 'completed', now() - interval '20 days', '{"value": 1}' FROM generate_series(1, 60)"""
    )


@pytest.mark.usefixtures("old_tasks")
def test_many_old_finished_tasks_and_no_retention_are_found_with_their_figures(look: Look) -> None:
    finding = look("retention")["no_retention"]
    assert finding.severity is Severity.WARNING
    assert finding.details["finished"] == 60
    assert finding.details["oldest_seconds"] == pytest.approx(20 * 86400, rel=0.01)
    assert finding.details["bytes"] > 0
    assert "TASKLIB_RETENTION=completed=30" in finding.action


@pytest.mark.usefixtures("old_tasks")
def test_old_finished_tasks_with_a_rule_that_deletes_them_are_no_finding(look: Look, config: Config) -> None:
    ruled = config.with_changes(retention=(Retention("completed", days=30),))
    assert look("retention", ruled)["retention"].severity is Severity.OK


@pytest.mark.usefixtures("old_tasks")
def test_rule_for_one_name_leaves_the_others_for_ever(look: Look, config: Config) -> None:
    ruled = config.with_changes(retention=(Retention("completed", days=30, name="ping"),))
    assert "no_retention" in look("retention", ruled)


def test_few_finished_tasks_are_no_finding(look: Look) -> None:
    assert look("retention")["retention"].severity is Severity.OK
