"""Medians over the repeats of measurements, and ratios between them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.peers.records import Record

SMALLER_IS_BETTER = frozenset({"p50", "p99", "cpu_10k"})


@dataclass(frozen=True)
class Figure:
    """One figure of one system: the median of its repeats, and how far they were apart."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def most(self) -> float:
        return max(self.values)


class Summary:
    """The measurements that count: those that went well, of one run for each workload."""

    def __init__(self, records: Iterable[Record], *, all_runs: bool = False) -> None:
        everything = list(records)
        self.runs = {record["run"]: record for record in everything if record["kind"] == "run"}
        measured = [record for record in everything if record["kind"] == "measurement"]
        self.used = measured if all_runs else _of_last_runs(measured)
        self._measured = measured
        self.failures = [record for record in self.used if not record["ok"]]
        self._good = [record for record in self.used if record["ok"]]

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(record["system"] for record in self.used))

    def run_of(self, workload: str) -> list[str]:
        return sorted({record["run"] for record in self.used if record["workload"] == workload})

    def figure(self, system: str, workload: str, key: str = "tasks_s") -> Figure | None:
        """A figure by its name in the records; `cpu_10k` is server and worker together."""
        records = self._good_of(system, workload)
        values = [value for record in records if (value := _value(record, key)) is not None]
        return Figure(tuple(values)) if values else None

    def median(self, system: str, workload: str, key: str = "tasks_s") -> float | None:
        figure = self.figure(system, workload, key)
        return figure.median if figure else None

    def ratio(self, system: str, other: str, workload: str, key: str = "tasks_s") -> float | None:
        """How many times the other's median this one's is."""
        mine, theirs = self.median(system, workload, key), self.median(other, workload, key)
        return None if mine is None or not theirs else mine / theirs

    def ratio_to_own(self, system: str, workload: str, other: str) -> float | None:
        """The rate in a workload as a multiple of that in another one, in the same runs."""
        runs = self.run_of(workload)
        base = Summary([record for record in self._measured if record["run"] in runs], all_runs=True)
        mine, theirs = self.median(system, workload), base.median(system, other)
        return None if mine is None or not theirs else mine / theirs

    def best(self, systems: Iterable[str], workload: str, key: str = "tasks_s") -> tuple[str, float] | None:
        """Which of these did best, and what."""
        found = [(name, median) for name in systems if (median := self.median(name, workload, key)) is not None]
        if not found:
            return None
        by_median = sorted(found, key=lambda entry: entry[1])
        return by_median[0] if key in SMALLER_IS_BETTER else by_median[-1]

    def tenths(self, system: str, workload: str = "W8") -> list[float]:
        """The rate in each tenth of a drain, medians over the repeats."""
        drains = [record.get("tenths_tasks_s") or [] for record in self._good_of(system, workload)]
        return [statistics.median(rates) for rates in zip(*drains, strict=False)]

    def steadiness(self, system: str, workload: str = "W8") -> float | None:
        """The rate in the second half of a drain as a multiple of the first half's: below 1 it got slower.

        The first and the last tenth are left out: a worker warms up in the one and runs dry in the other.
        """
        ratios = [
            ratio
            for record in self._good_of(system, workload)
            if (ratio := steadiness_of(record.get("tenths_tasks_s") or ())) is not None
        ]
        return statistics.median(ratios) if ratios else None

    def _good_of(self, system: str, workload: str) -> list[Record]:
        return [r for r in self._good if r["system"] == system and r["workload"] == workload]


def steadiness_of(tenths: Sequence[float]) -> float | None:
    """The median of tenths 6 to 9 over the median of tenths 2 to 5."""
    if len(tenths) < 10:
        return None
    return statistics.median(tenths[5:9]) / statistics.median(tenths[1:5])


def _of_last_runs(measured: list[Record]) -> list[Record]:
    """Ratios hold within one run, so an older run of the same workload doesn't count. Runs are named by their time."""
    last: dict[str, str] = {}
    for record in measured:
        last[record["workload"]] = max(last.get(record["workload"], ""), record["run"])
    return [record for record in measured if record["run"] == last[record["workload"]]]


def _value(record: Record, key: str) -> float | None:
    if key != "cpu_10k":
        return record.get(key)
    server, worker = record.get("cpu_server_10k"), record.get("cpu_worker_10k")
    return None if server is None or worker is None else server + worker
