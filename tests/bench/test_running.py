"""Rounds, sides by turns, and medians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasklib.bench.plan import FULL_SIZES, Plan
from tasklib.bench.rounds import Round, Sample
from tasklib.bench.running import Step, run
from tasklib.bench.waking import percentile
from tasklib.bench.workloads import WORKLOADS, Workload
from tests.bench.made_up import result

NOWHERE: Any = None


def test_there_are_twelve_workloads_and_each_has_a_size() -> None:
    assert list(WORKLOADS) == [f"W{n}" for n in range(1, 13)] == list(FULL_SIZES)


def test_the_scale_makes_workloads_smaller_but_never_empty() -> None:
    assert Plan(scale=1).size("W8") == 200_000
    assert Plan(scale=0.1).size("W8") == 20_000
    assert Plan(scale=0.000_001).size("W5") > 0


def test_every_second_round_goes_the_other_way_and_what_is_derived_comes_last() -> None:
    order: list[str] = []

    def note(id_: str) -> Callable[[Round], Sample]:
        def measure(round_: Round) -> Sample:
            order.append(f"{id_}{'<' if round_.flipped else '>'}")
            return Sample(1.0)

        return measure

    workloads = [Workload("W3", "", note("W3")), Workload("W9", "", note("W9"), comes_last=True)]
    workloads.append(Workload("W10", "", note("W10")))
    run(NOWHERE, Plan(repeats=3), workloads)
    assert order == ["W3>", "W10>", "W9>", "W10<", "W3<", "W9<", "W3>", "W10>", "W9>"]


def test_each_step_is_told_before_and_after() -> None:
    told: list[Step] = []
    only = Workload("W3", "", lambda round_: Sample(5.0))
    run(NOWHERE, Plan(repeats=2), [only], told.append)
    assert [(step.repeat, step.sample) for step in told] == [(0, None), (0, Sample(5.0)), (1, None), (1, Sample(5.0))]


@pytest.mark.parametrize(("flipped", "order"), [(False, "ab" * 4), (True, "ba" * 4)])
def test_sides_take_turns_in_slices(flipped: bool, order: str) -> None:
    timed: list[str] = []
    prepared: list[int] = []

    def side(name: str) -> Callable[[int], Callable[[], None]]:
        def prepare(count: int) -> Callable[[], None]:
            prepared.append(count)
            return lambda: timed.append(name)

        return prepare

    Round(NOWHERE, Plan(), flipped).rates(10, side("a"), side("b"))
    assert "".join(timed) == order
    assert prepared == [2] * 8


def test_what_several_workloads_need_is_measured_once_in_a_round() -> None:
    measured: list[int] = []

    def measure() -> int:
        measured.append(1)
        return len(measured)

    round_ = Round(NOWHERE, Plan())
    assert [round_.once("W3", measure), round_.once("W3", measure)] == [1, 1]
    assert Round(NOWHERE, Plan()).once("W3", measure) == 2


def test_a_result_is_the_median_of_values_and_of_ratios_within_rounds() -> None:
    measured = result("W4", 10.0, 30.0, 20.0)
    assert measured.value == 20.0
    assert measured.ratio == 0.5
    uneven = type(measured)(measured.workload, 1, [Sample(10, 10), Sample(20, 40), Sample(90, 100)])
    assert uneven.ratio == 0.9  # not 20 / 40


def test_what_is_not_known_stays_out_of_the_medians() -> None:
    measured = result("W9", None, details={"server": None, "worker": 0.5})
    assert measured.value is None
    assert measured.details == {"server": None, "worker": 0.5}


def test_percentiles() -> None:
    assert percentile(list(range(100)), 50) == 50
    assert percentile(list(range(100)), 99) == 99
    assert percentile([7.0], 99) == 7.0
