"""Guards are found in the SQL and can be taken out; `make mutants` shows that a test misses each."""

from __future__ import annotations

import json

import pytest

from proof.mutants.guards import CHOSEN, GUARDED, guards, source, without
from proof.mutants.run import EQUIVALENT, RESULTS, caught_by, first_red

pytestmark = pytest.mark.long


def test_the_guards_of_a_settlement_are_state_token_and_worker() -> None:
    found = [guard.condition for guard in guards() if guard.file == "complete"]
    assert found == ["{still_running}", "task.lease_token = done.token", "task.worker_id = %(worker)s"]


def test_every_guarded_statement_has_a_guard_and_loses_just_that() -> None:
    for guard in guards():
        before, after = source(guard.file).splitlines(), without(guard, source(guard.file)).splitlines()
        assert [n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new] == [guard.line]
    with_guards = {guard.file for guard in guards()}
    assert len(with_guards) > 20
    assert with_guards <= {*GUARDED, *CHOSEN}


def test_without_its_token_guard_a_settlement_turns_a_test_red(server_url: str) -> None:
    [guard] = [guard for guard in guards() if guard.name == "complete: task.lease_token = done.token"]
    assert "::test_" in caught_by(guard, server_url)


@pytest.mark.parametrize(
    ("summary", "test"),
    [
        ("FAILED tests/a.py::test_b - AssertionError: no [x]", "tests/a.py::test_b"),
        ("FAILED tests/a.py::test_b[now() - '1 s'-True] - AssertionError", "tests/a.py::test_b[now() - '1 s'-True]"),
        ("ERROR tests/a.py::test_b[1]", "tests/a.py::test_b[1]"),
        ("ERROR tests/a.py - ImportError", "tests/a.py"),
        ("1 passed", ""),
    ],
)
def test_the_first_red_test_is_read_from_the_summary(summary: str, test: str) -> None:
    assert first_red(f"....F\n{summary}\n1 failed") == test


def test_every_guard_that_is_on_record_was_caught_or_has_a_reason_not_to_be() -> None:
    recorded = json.loads(RESULTS.read_text())
    assert [name for name, test in recorded.items() if not test and name not in EQUIVALENT] == []
    assert len(recorded) > 50
