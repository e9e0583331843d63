"""The model of a task's life holds, and without any one of its guards it doesn't."""

from __future__ import annotations

import shutil

import pytest

from proof.model.run import MUTANTS, check

NEEDED = shutil.which("spin") and shutil.which("gcc")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not NEEDED, reason="the model needs spin and gcc: apt-get install spin gcc"),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("at_most_once", [False, True], ids=["at least once", "at most once"])
def test_every_order_of_statements_leaves_a_task_with_one_ending(at_most_once: bool) -> None:
    verdict = check(retries=0, lost=1, at_most_once=at_most_once)  # `make model` visits those with more of both
    assert verdict.errors == 0, verdict.violated
    assert verdict.complete
    assert verdict.states > 100_000


@pytest.mark.parametrize("mutant", MUTANTS, ids=MUTANTS.get)
def test_a_missing_guard_is_found(mutant: int) -> None:
    verdict = check(mutant)
    assert verdict.errors == 1
    assert "violated" in verdict.violated
