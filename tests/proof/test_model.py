"""The models of a task's life and of how it is found hold, and without any one of their guards they don't."""

from __future__ import annotations

import shutil

import pytest

from proof.model.run import GATE_MUTANTS, MUTANTS, WAKING_MUTANTS, check, check_gate, check_waking

NEEDED = shutil.which("spin") and shutil.which("gcc")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not NEEDED, reason="the model needs spin and gcc: apt-get install spin gcc"),
]


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


def test_in_every_order_of_steps_no_task_waits_while_a_worker_sleeps() -> None:
    verdict = check_waking()
    assert verdict.errors == 0, verdict.violated
    assert verdict.complete
    assert verdict.states > 100_000


@pytest.mark.parametrize("mutant", WAKING_MUTANTS, ids=WAKING_MUTANTS.get)
def test_a_missing_precaution_of_waking_is_found(mutant: int) -> None:
    verdict = check_waking(mutant)
    assert verdict.errors == 1
    assert "violated" in verdict.violated


@pytest.mark.long
def test_every_order_of_arriving_spawning_and_folding_lets_the_join_through_once_or_turns_it_away() -> None:
    verdict = check_gate()
    assert verdict.errors == 0, verdict.violated
    assert verdict.complete
    assert verdict.states > 10_000


@pytest.mark.long
@pytest.mark.parametrize("mutant", GATE_MUTANTS, ids=GATE_MUTANTS.get)
def test_a_missing_part_of_the_protocol_of_gates_is_found(mutant: int) -> None:
    verdict = check_gate(mutant)
    assert verdict.errors == 1
    assert "violated" in verdict.violated
