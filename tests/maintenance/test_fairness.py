"""No task starves: in virtual time, over hours."""

from __future__ import annotations

import pytest

from benchmarks.fairness import HIGH, LOADS, LOW, MEDIUM, WITHOUT_AGING, Load, Simulation


@pytest.mark.parametrize("load", LOADS, ids=["fits", "more than fits"])
def test_no_task_waits_longer_than_promised_and_than_those_ahead_take(load: Load) -> None:
    waits = Simulation(Load(load.title, load.fractions, hours=2)).run()
    assert {p: w.beyond_bound for p, w in waits.items()} == {HIGH: 0, MEDIUM: 0, LOW: 0}
    # Those ahead at the promotion are few as long as the high ones alone fit into the capacity.
    assert waits[LOW].longest <= load.promised(LOW) + 60
    assert waits[MEDIUM].longest <= load.promised(MEDIUM) + 60


def test_without_aging_low_tasks_would_starve_under_the_same_load() -> None:
    waits = Simulation(Load("", WITHOUT_AGING.fractions, hours=2, medium_after=1e9, high_after=1e9)).run()
    assert waits[LOW].longest > 3600
