"""What each part of TaskLib costs, as measured: seconds of one core unless the name says otherwise.

`python -m benchmarks.simulation measure` measures them on this machine, and keeps them in `results/simulation.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parents[1] / "results" / "simulation.json"


class Linear(NamedTuple):
    """A cost that grows with a number."""

    fixed: float
    each: float = 0.0

    def of(self, number: float) -> float:
        return self.fixed + self.each * number


def fitted(points: Sequence[tuple[float, float]]) -> Linear:
    """The line through (number, cost) with the least squares of relative errors; nothing costs less than nothing.

    Relative, because a claim of one task matters as much as a claim of 500.
    """
    weights = [1 / max(cost, 1e-9) ** 2 for _, cost in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    joint = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True))
    each = max(0.0, joint / spread) if spread else 0.0
    fixed = mean_y - each * mean_x
    if fixed < 0:  # the line through nothing
        squares = sum(w * x * x for w, (x, _) in zip(weights, points, strict=True))
        return Linear(0.0, sum(w * x * y for w, (x, y) in zip(weights, points, strict=True)) / squares)
    return Linear(fixed, each)


@dataclass(frozen=True)
class Costs:
    """Of the server, but for the last ones."""

    claim: Linear
    """A claim, by the tasks it returns."""
    skip: float
    """For a claim, to pass over one row that another claim in flight holds."""
    complete: Linear
    """Storing results, by their number."""
    submit_one: float
    submit_many: float
    """For each task of a COPY."""
    sleepers: Linear
    """What sleeping workers add to the submission of one task, by their number: one is chosen among them."""
    listeners: Linear
    """What a NOTIFY costs its sender and all sessions of its database, by the number of those that listen."""
    heartbeat: float
    election: float
    """A look at the lead, while another process has it."""
    poll: float
    """An idle worker's question whether a task is due."""
    doze: float
    """Announcing that a worker sleeps, or that it no longer does."""
    report: float
    """A worker's counts of a few seconds."""
    cold: float
    """What any of these takes besides on a session that has slept: caches have forgotten it."""
    bury: Linear
    """The leader's look for dead workers, by the workers there are."""
    snapshot: Linear
    """The leader's counting, by the waiting tasks, of which it counts 100,000 at most."""
    fold: Linear
    """Adding up counts, by the rows that workers have reported."""
    rescue: Linear
    """Taking 500 tasks from dead workers, by the tasks that those hold."""
    retain: float
    """Deleting one finished task."""
    flush_seconds: float
    """Until a commit is on disk: the disk's time, not a core's."""
    wal_bytes: float
    """Written for one task from its submission to its result, in large batches."""
    connection_bytes: float
    """Memory of the server for one connection that claims."""
    worker_task: Linear
    """Of a worker, for its claims and settlements (together) and for each task."""
    worker_idle: float
    """Of a worker that has nothing to do, per second and shard."""
    worker_shard_bytes: float
    """Memory of a worker for one more shard."""
    place_key: Linear
    """Of a producer, finding the shard of a key, by the shards."""

    def as_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def times(self, factor: float) -> Costs:
        """The same on a machine whose cores take so much longer. Disks and sizes stay as they are."""
        stay = [f.name for f in fields(self) if f.name.endswith("_bytes") or f.name == "flush_seconds"]
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in stay}
        more: dict[str, Any] = {
            name: Linear(value.fixed * factor, value.each * factor) if isinstance(value, Linear) else value * factor
            for name, value in given.items()
        }
        return replace(self, **more)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Costs:
        """Raises if one is missing."""
        given = {f.name: said[f.name] for f in fields(cls)}
        return cls(**{name: Linear(*v) if isinstance(v, list) else v for name, v in given.items()})


def kept() -> dict[str, Any]:
    """All that was measured, checked and predicted last."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def keep(part: str, found: Mapping[str, Any]) -> None:
    """Replace one part of the results."""
    RESULTS.write_text(json.dumps({**kept(), part: found}, indent=1) + "\n")


def measured_costs() -> Costs:
    """The costs of the last measurement that was kept."""
    return Costs.from_json(kept()["measured"]["costs"])
