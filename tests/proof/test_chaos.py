"""Twenty seconds of chaos; `make chaos` runs for minutes, and more with SECONDS=."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest

from proof.chaos import limited_tasks
from proof.chaos.faults import FAULTS
from proof.chaos.run import Plan, _idle, run
from proof.chaos.schedules import KINDS
from proof.history.checker import lines

pytestmark = pytest.mark.long

# What doesn't depend on rights that a user may lack, and doesn't take long.
QUICK = (
    "worker killed",
    "worker frozen briefly",
    "leader killed",
    "child killed",
    "HTTP server killed",
    "submitter killed",
    "worker restarted",
    "database stopped immediately",
    "connections terminated",
    "links reset",
    "submission unanswered",
    "claim unanswered",
    "settlement unanswered",
)
SLOT_QUICK = ("leader killed", "leader frozen", "worker restarted", "database stopped immediately", "links reset")


@pytest.mark.skipif("TASKLIB_TEST_DATABASE_URL" in os.environ, reason="it breaks a server of its own")
def test_twenty_seconds_of_faults_violate_no_invariant(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    outcome = run(
        Plan(seconds=20, seed=3, kinds=QUICK, pause=1.5, rate=150, disk_gigabytes=2.0, in_time=False), said.append
    )
    assert outcome.holds, "\n".join([*said, *lines(outcome.verdict), f"quiet: {outcome.quiet}"])
    assert outcome.faults.total() > 0
    assert outcome.verdict.figures.acknowledged > 0
    assert outcome.verdict.figures.lost == 0


@pytest.mark.skipif("TASKLIB_TEST_DATABASE_URL" in os.environ, reason="it breaks a server of its own")
def test_every_slot_is_fired_or_skipped_once_through_twenty_seconds_of_faults(
    capfd: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    plan = Plan(
        seconds=20, seed=5, kinds=SLOT_QUICK, pause=3.0, rate=20, disk_gigabytes=2.0, in_time=False, schedules=40
    )
    outcome = run(plan, said.append)
    assert outcome.holds, "\n".join([*said, *lines(outcome.verdict), f"quiet: {outcome.quiet}"])
    slots = outcome.verdict.figures.slots
    assert slots.slots > 0
    assert slots.fired > 0
    assert (slots.doubled, slots.missing) == (0, 0)


def test_what_the_worker_over_http_of_a_run_imports_can_be_served_over_http() -> None:
    durable = "[function.name for function in registry.functions.values() if function.durable]"
    check = f"import proof.chaos.worker\nfrom tasklib.tasks import registry\nprint({durable})"
    done = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CHAOS_SLOTS": "8", "CHAOS_LOGS": os.devnull},
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_worker_that_never_took_a_task_is_named(db: psycopg.Connection) -> None:
    db.execute("CREATE TEMPORARY TABLE transitions (worker text, new_state text)")
    db.execute("INSERT INTO transitions VALUES ('worker-1-ab', 'running'), ('worker-11-ab', 'completed')")
    assert _idle(db, ["worker-1", "worker-11", "worker-4"]) == ["worker-11", "worker-4"]


@pytest.mark.skipif("TASKLIB_TEST_DATABASE_URL" in os.environ, reason="it breaks a server of its own")
def test_limits_hold_through_twenty_seconds_of_faults(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    plan = Plan(seconds=20, seed=9, kinds=QUICK, pause=2.0, rate=40, disk_gigabytes=2.0, in_time=False, limits=True)
    outcome = run(plan, said.append)
    assert outcome.holds, "\n".join([*said, *lines(outcome.verdict), f"quiet: {outcome.quiet}"])
    limits = outcome.verdict.figures.limits
    assert min(limits.bounded_starts, limits.rated_starts, limits.serial_starts, limits.starts_after_a_block) > 0


def test_every_fault_the_short_run_draws_from_exists() -> None:
    assert {*QUICK, *SLOT_QUICK, *KINDS, *limited_tasks.KINDS} <= FAULTS.keys()
