"""What the measurements must show, and whether they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.peers.catalogue import SYSTEMS
from benchmarks.peers.summary import SMALLER_IS_BETTER, Summary
from benchmarks.peers.systems import Role

OURS = "tasklib"
PEERS = [system.name for system in SYSTEMS.values() if system.role is Role.PEER]
POSTGRESQL_PEERS = [name for name in PEERS if SYSTEMS[name].broker == "postgresql"]
PYTHON_PEERS = [name for name in PEERS if SYSTEMS[name].language == "python"]


@dataclass(frozen=True)
class Verdict:
    """One requirement, what was found, and whether that is enough; None if there is nothing to tell it by."""

    workload: str
    requirement: str
    found: str
    passed: bool | None

    @property
    def word(self) -> str:
        return {True: "pass", False: "FAIL", None: "not measured"}[self.passed]


Requirement = Callable[[Summary], Verdict]


def times_another(workload: str, factor: float, other: str, *, ours: str = OURS) -> Requirement:
    """At least `factor` times what another system does."""

    def judge(summary: Summary) -> Verdict:
        ratio = summary.ratio(ours, other, workload)
        words = f"{'' if ours == OURS else ours + ': '}{factor:g} x {other}"
        return _at_least(workload, words, ratio, factor)

    return judge


def times_best(workload: str, factor: float, others: list[str], who: str) -> Requirement:
    """At least `factor` times what the best of many does."""

    def judge(summary: Summary) -> Verdict:
        best = summary.best(others, workload)
        ratio = None if best is None else summary.ratio(OURS, best[0], workload)
        return _at_least(workload, f"{factor:g} x {who}", ratio, factor, f" of {best[0]}" if best else "")

    return judge


def ahead_of(workload: str, others: list[str], who: str, key: str = "tasks_s", label: str = "") -> Requirement:
    """Better than each of many, and so than the best of them."""

    def judge(summary: Summary) -> Verdict:
        mine, best = summary.median(OURS, workload, key), summary.best(others, workload, key)
        requirement = f"{label}{'below' if key in SMALLER_IS_BETTER else 'ahead of'} {who}"
        shown = "W9" if key == "cpu_10k" else workload
        if mine is None or best is None:
            return Verdict(shown, requirement, "", None)
        passed = mine < best[1] if key in SMALLER_IS_BETTER else mine > best[1]
        return Verdict(shown, requirement, f"{number(mine)} against {number(best[1])} of {best[0]}", passed)

    return judge


def times_own(workload: str, factor: float, other_workload: str, *, strictly: bool = False) -> Requirement:
    """At least (or more than) `factor` times our own rate in another workload."""

    def judge(summary: Summary) -> Verdict:
        ratio = summary.ratio_to_own(OURS, workload, other_workload)
        if strictly:
            passed = None if ratio is None else ratio > factor
            return Verdict(workload, f"more than {other_workload}", _times(ratio), passed)
        return _at_least(workload, f"{factor:g} x {other_workload}", ratio, factor)

    return judge


def steady(workload: str, factor: float) -> Requirement:
    """The second half of a drain is as fast as the first, give or take what a machine does by itself."""

    def judge(summary: Summary) -> Verdict:
        requirement = f"not worse as it goes on (second half {factor:g} x the first)"
        return _at_least(workload, requirement, summary.steadiness(OURS, workload), factor)

    return judge


REQUIREMENTS: tuple[Requirement, ...] = (
    times_another("W1", 0.8, "bare-insert"),
    times_another("W1", 0.8, "bare-insert-async", ours="tasklib-async"),
    ahead_of("W1", POSTGRESQL_PEERS, "every PostgreSQL peer"),
    times_best("W2", 2.0, PYTHON_PEERS, "the best Python peer"),
    times_another("W2", 0.6, "raw-copy"),
    times_another("W3", 2.0, "pgqueuer"),
    ahead_of("W3", ["graphile-worker"], "graphile-worker"),
    times_another("W3", 0.65, "limit"),
    times_own("W4", 1.0, "W3", strictly=True),
    ahead_of("W5", POSTGRESQL_PEERS, "every PostgreSQL peer", "p50", "p50 "),
    ahead_of("W5", POSTGRESQL_PEERS, "every PostgreSQL peer", "p99", "p99 "),
    times_best("W6", 2.0, PEERS, "the best peer"),
    times_own("W7", 0.9, "W3"),
    times_own("W8", 0.8, "W3"),
    steady("W8", 0.9),
    ahead_of("W3", PEERS, "every peer", "cpu_10k", "CPU "),
    times_another("W10", 0.85, "tasklib-silent"),
)


def judge_all(summary: Summary) -> list[Verdict]:
    return [judge(summary) for judge in REQUIREMENTS]


def number(value: float | None) -> str:
    """Short, and as exact as a measurement deserves."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _at_least(workload: str, requirement: str, ratio: float | None, factor: float, of: str = "") -> Verdict:
    return Verdict(workload, requirement, _times(ratio) + of, None if ratio is None else ratio >= factor)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f} x"
