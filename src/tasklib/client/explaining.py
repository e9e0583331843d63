"""The calls that say why a task is not running, and where it stands in line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.client.reason import Reason
from tasklib.client.reasons import reasons_of
from tasklib.db.query import Query
from tasklib.errors import TaskNotFound
from tasklib.states import TaskState
from tasklib.store import explain, fleet, limits, lookup
from tasklib.store.explain import Position, Situation
from tasklib.store.fleet import WorkerInfo
from tasklib.store.limits import LimitOnTask

__all__ = ["ExplainingCalls", "Explanation", "Position", "Reason"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running. `print(explanation)` says it in sentences."""

    task_id: UUID
    name: str
    queue: str
    state: TaskState
    reasons: tuple[Reason, ...]
    """The most decisive first; there is always one."""
    position: Position | None = None
    """Where it stands in line, if it stands in one."""

    def as_dict(self) -> dict[str, Any]:
        """The explanation as JSON has it."""
        place = self.position and {
            **asdict(self.position),
            "number": self.position.number,
            "eta_seconds": self.position.eta_seconds,
        }
        return {**asdict(self), "task_id": str(self.task_id), "state": self.state.value, "position": place}

    def __str__(self) -> str:
        return "\n".join(f"{r.sentence} {r.hint}".rstrip() for r in self.reasons)


def _discreet(worker: WorkerInfo, task: Situation, number: int) -> WorkerInfo:
    """A worker as shown to callers limited to their own tasks: only what concerns this task.

    Its id is told if it runs the task: the task itself says so.
    """
    return replace(
        worker,
        id=worker.id if worker.id == task.worker_id else f"worker {number}",
        queues=worker.queues and [queue for queue in worker.queues if queue == task.queue],
        names=worker.names and [name for name in worker.names if name == task.name],
        capabilities=[c for c in worker.capabilities if c in task.required_capabilities],
        host="",
        pid=0,
    )


class ExplainingCalls(OnBehalf):
    """Explanations and positions."""

    def explain_task(self, task_id: UUID | str) -> Call[Explanation]:
        """Why a task is not running: every reason that holds, the most decisive first, and what to do about it."""
        task_id = validation.as_id(task_id)
        task: Situation | None = yield explain.situation(task_id, owner=self.identity.owner, **self._thresholds())
        if task is None:
            raise TaskNotFound.with_id(task_id)
        workers: list[WorkerInfo] = yield fleet.workers()
        position: Position | None = yield self._position(task_id)
        if self.identity.only_own:
            workers = [_discreet(worker, task, number) for number, worker in enumerate(workers, 1)]
        behind: list[LimitOnTask] = yield limits.limits_of(task_id, owner=self.identity.owner)
        reasons = reasons_of(task, workers, position, self.config, behind)
        return Explanation(task_id, task.name, task.queue, TaskState(task.state), reasons, position)

    def queue_position(self, task_id: UUID | str) -> Call[Position | None]:
        """Where a task stands in line; None if it stands in none: not due, paused, running or finished."""
        task_id = validation.as_id(task_id)
        position: Position | None = yield self._position(task_id)
        if position is None:
            validation.known(task_id, (yield lookup.outcome(task_id, owner=self.identity.owner)))
        return position

    def _position(self, task_id: UUID) -> Query[Position | None]:
        return explain.position(
            task_id,
            owner=self.identity.owner,
            **self._thresholds(),
        )

    def _thresholds(self) -> dict[str, float]:
        return {
            "medium_after": self.config.promote_to_medium_after_seconds,
            "high_after": self.config.promote_to_high_after_seconds,
        }
