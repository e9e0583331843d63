"""Twenty seconds of chaos; `make chaos` runs for minutes, and more with SECONDS=."""

from __future__ import annotations

import os

import pytest

from proof.chaos.faults import FAULTS
from proof.chaos.run import Plan, run
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


@pytest.mark.timeout(420)
@pytest.mark.skipif("TASKLIB_TEST_DATABASE_URL" in os.environ, reason="it breaks a server of its own")
def test_twenty_seconds_of_faults_violate_no_invariant(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    outcome = run(Plan(seconds=20, seed=3, kinds=QUICK, pause=1.5, rate=150, disk_gigabytes=2.0), said.append)
    assert outcome.holds, "\n".join([*said, *lines(outcome.verdict), f"quiet: {outcome.quiet}"])
    assert outcome.faults.total() >= 3
    assert outcome.verdict.figures.acknowledged > 100
    assert outcome.verdict.figures.lost == 0


@pytest.mark.timeout(420)
@pytest.mark.skipif("TASKLIB_TEST_DATABASE_URL" in os.environ, reason="it breaks a server of its own")
def test_every_slot_is_fired_or_skipped_once_through_twenty_seconds_of_faults(
    capfd: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    plan = Plan(seconds=20, seed=5, kinds=SLOT_QUICK, pause=3.0, rate=20, disk_gigabytes=2.0, schedules=40)
    outcome = run(plan, said.append)
    assert outcome.holds, "\n".join([*said, *lines(outcome.verdict), f"quiet: {outcome.quiet}"])
    slots = outcome.verdict.figures.slots
    assert slots.slots > 400
    assert slots.fired > 0
    assert (slots.doubled, slots.missing) == (0, 0)


def test_every_fault_the_short_run_draws_from_exists() -> None:
    assert {*QUICK, *SLOT_QUICK, *KINDS} <= FAULTS.keys()
