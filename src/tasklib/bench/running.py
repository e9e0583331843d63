"""Round after round, and the medians of them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tasklib.bench.plan import Plan
from tasklib.bench.rounds import Round, Sample
from tasklib.bench.schema import BenchSchema
from tasklib.bench.workloads import Workload


@dataclass(frozen=True)
class Step:
    """A workload about to be measured, or just measured if it has a sample."""

    workload: Workload
    repeat: int
    sample: Sample | None = None


@dataclass(frozen=True)
class Result:
    """All samples of one workload."""

    workload: Workload
    tasks: int
    samples: Sequence[Sample]

    @property
    def values(self) -> list[float]:
        return _known([s.value for s in self.samples])

    @property
    def ratios(self) -> list[float]:
        """Each within one round: what slows a round down slows both sides."""
        return _known([s.ratio for s in self.samples])

    @property
    def value(self) -> float | None:
        return _median(self.values)

    @property
    def against(self) -> float | None:
        return _median(_known([s.against for s in self.samples]))

    @property
    def ratio(self) -> float | None:
        return _median(self.ratios)

    @property
    def details(self) -> dict[str, float | None]:
        return {name: _median(self.all_of(name)) for name in self.samples[0].details}

    def all_of(self, detail: str) -> list[float]:
        """This detail of every sample."""
        return _known([s.details[detail] for s in self.samples])


def run(
    schema: BenchSchema, plan: Plan, workloads: Sequence[Workload], tell: Callable[[Step], None] = lambda step: None
) -> list[Result]:
    """Measure each workload once per round, in every second round in the opposite order."""
    samples: dict[str, list[Sample]] = {workload.id: [] for workload in workloads}
    for repeat in range(plan.repeats):
        flipped = bool(repeat % 2)
        round_ = Round(schema, plan, flipped)
        order = reversed(workloads) if flipped else workloads
        for workload in sorted(order, key=lambda workload: workload.comes_last):
            tell(Step(workload, repeat))
            sample = workload.measure(round_)
            samples[workload.id].append(sample)
            tell(Step(workload, repeat, sample))
    return [Result(workload, plan.size(workload.id), samples[workload.id]) for workload in workloads]


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
