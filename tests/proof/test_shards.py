"""One round of all faults over four shards on two servers; `make test-shards` runs more with ROUNDS=."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

from proof.history.checker import Figures, Verdict, Violation, lines
from proof.shards.run import SHARDS, Outcome, run
from tests.docs.pages import ROOT


@pytest.mark.long
@pytest.mark.skipif("TASKLIB_TEST_DATABASE_URL" in os.environ, reason="it breaks servers of its own")
def test_a_server_that_is_killed_frozen_or_cut_off_leaves_the_others_undisturbed() -> None:
    said: list[str] = []
    outcome = run(1, said.append)
    shown = [f"shard {n}: {line}" for n, each in outcome.verdicts.items() for line in lines(each)]
    assert outcome.holds, "\n".join([*said, *shown, *outcome.problems])
    assert len(outcome.faults) == 7
    assert set(outcome.verdicts) == set(range(SHARDS + 1))
    assert all(each.figures.acknowledged for each in outcome.verdicts.values())


def test_a_run_holds_only_if_every_shard_does_and_nothing_else_was_wrong() -> None:
    well = Verdict([], Figures(), Counter())
    wrong = Verdict([Violation("I1", "a task is gone")], Figures(), Counter(I1=1))
    assert Outcome({0: well, 1: well}, []).holds
    assert not Outcome({0: well, 1: wrong}, []).holds
    assert not Outcome({0: well}, [], ["never happened: all tasks end"]).holds
    assert Outcome({0: well, 1: wrong}, []).figures()["violations"] == 1


def test_the_figures_of_the_page_are_those_of_the_recorded_run() -> None:
    run = json.loads((ROOT / "proof/results/shards.json").read_text())
    page = " ".join((ROOT / "docs/explanation/reliability.md").read_text().split())
    said = (
        f"`{run['command']}`, on {run['on']}: {len(run['faults'])} faults, {run['acknowledged']:,} acknowledged tasks, "
        f"{run['attempts']:,} attempts, {run['rescued']} of them ended by a leader; {run['lost']} lost, "
        f"{run['doubled']} doubled, {run['violations']} violations."
    )
    assert said in page
    assert run["problems"] == []
