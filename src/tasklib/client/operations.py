"""The calls of operators about the fleet, for sync and async callers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Unpack
from uuid import UUID

from tasklib.client.dead_letters import DeadLetterCalls
from tasklib.client.effects import Call
from tasklib.client.filters import TaskConditions, checked_tasks
from tasklib.errors import InvalidOption, WorkerNotFound
from tasklib.states import CLAIMABLE, TaskState
from tasklib.store import control, fleet, pauses, settings
from tasklib.store.control import CancelCounts
from tasklib.store.filters import EVERY_TASK, TaskFilter
from tasklib.store.fleet import WorkerInfo
from tasklib.store.pauses import Kind, Paused
from tasklib.store.settings import Stored
from tasklib.tasks.options import MAX_NAME_BYTES, Options, is_name, is_storable

CANCEL_BATCH = 1000
_CANCELLABLE = frozenset({*CLAIMABLE, TaskState.RUNNING})


class _Unset(Enum):
    UNSET = "unset"


UNSET: Final = _Unset.UNSET
"""An option that was not given, where None means something."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the fleet that change at run time, as they are now."""

    promote_to_medium_after_seconds: float
    promote_to_high_after_seconds: float
    changed: tuple[str, ...] = ()
    """Which of them are stored for the whole fleet; the others are as this program's configuration says."""


class OperatorCalls(DeadLetterCalls):
    """Workers, pauses, settings, mass cancel and dead letters."""

    def workers(self) -> Call[list[WorkerInfo]]:
        """Every worker that is known, the dead ones of the last day too, in the order of their starts."""
        found: list[WorkerInfo] = yield fleet.workers()
        return found

    def drain_worker(self, worker_id: str) -> Call[None]:
        """Request a worker to take no more tasks, finish those it has, and end. Repeating it changes nothing."""
        if not isinstance(worker_id, str) or not is_storable(worker_id):
            raise InvalidOption(f"a worker's id is text, as workers() gives it, not {worker_id!r}.")
        changed: bool = yield fleet.drain(worker_id, by=self.identity.actor)
        if changed:
            return
        known: list[WorkerInfo] = yield fleet.workers()
        live = [w.id for w in known if w.status != "dead"]
        if worker_id not in live:
            raise WorkerNotFound.with_id(worker_id, "dead" if any(w.id == worker_id for w in known) else None, live)

    def pause(self, *, queue: str | None = None, name: str | None = None) -> Call[bool]:
        """Let no worker begin tasks of this queue, or of this name, until `resume`; what runs goes on.

        Returns False if it was paused already.
        """
        changed: bool = yield pauses.pause(*_what(queue, name), by=self.identity.actor)
        return changed

    def resume(self, *, queue: str | None = None, name: str | None = None) -> Call[bool]:
        """End a pause; idle workers claim at once. Returns False if there was none."""
        changed: bool = yield pauses.resume(*_what(queue, name), by=self.identity.actor)
        return changed

    def pauses(self) -> Call[list[Paused]]:
        """The queues and names that are paused."""
        found: list[Paused] = yield pauses.pauses()
        return found

    def settings(self) -> Call[Settings]:
        """The settings that can change at run time: those stored for the fleet, else those of the configuration."""
        return self._in_force((yield settings.settings()))

    def change_settings(
        self,
        *,
        promote_to_medium_after_seconds: float | _Unset | None = UNSET,
        promote_to_high_after_seconds: float | _Unset | None = UNSET,
    ) -> Call[Settings]:
        """Change settings for every worker, from its next claim on; None goes back to each program's configuration."""
        given = {
            "promote_to_medium_after_seconds": promote_to_medium_after_seconds,
            "promote_to_high_after_seconds": promote_to_high_after_seconds,
        }
        changes = {name: value for name, value in given.items() if not isinstance(value, _Unset)}
        # The configuration has the same fields and validates them.
        self.config.with_changes(**{name: value for name, value in changes.items() if value is not None})
        stored: Stored | None = yield settings.change(changes, by=self.identity.actor)
        return self._in_force(stored or (yield settings.settings()))

    def cancel_tasks(
        self,
        task_filter: TaskFilter = EVERY_TASK,
        /,
        *,
        everything: bool = False,
        dry_run: bool = False,
        **conditions: Unpack[TaskConditions],
    ) -> Call[CancelCounts]:
        """Cancel every unfinished task that matches the filters of `list_tasks`, and return how many.

        `cancelled` of them were waiting; `asked` are running, and their workers were requested to stop them. Tasks
        submitted later are left alone. Without a condition, `everything=True` is required. `dry_run=True` only counts.
        """
        chosen = checked_tasks(task_filter, conditions, self.config)
        if chosen.is_everything and not everything:
            raise InvalidOption(
                "cancel_tasks() without a condition would cancel every task. Give state=, name=, queue=, tags=, "
                "created_after=, created_before=, worker= or ids=; or everything=True."
            )
        if finished := set(chosen.state or ()) - _CANCELLABLE:
            raise InvalidOption(f"a task that is {min(finished)} is finished and can't be cancelled.")
        return (yield from self._cancel_all(chosen, dry_run))

    def _cancel_all(self, chosen: TaskFilter, dry_run: bool) -> Call[CancelCounts]:
        states = sorted(_CANCELLABLE) if chosen.state is None else chosen.state
        chosen = replace(chosen, state=states, owner=self.identity.owner)
        look: control.CancelPreview = yield control.cancel_look(chosen)
        if dry_run:
            return CancelCounts(look.waiting, look.running)
        return (yield from _cancel(chosen.not_after(look.moment), self.identity.actor))

    def _in_force(self, stored: Stored) -> Settings:
        values = {
            name: getattr(self.config, name) if value is None else value for name, value in stored._asdict().items()
        }
        changed = tuple(name for name, value in stored._asdict().items() if value is not None)
        return Settings(**values, changed=changed)


def _cancel(chosen: TaskFilter, actor: str) -> Call[CancelCounts]:
    cancelled = asked = 0
    full = True
    while full:
        batch: CancelCounts = yield control.cancel_batch(chosen, CANCEL_BATCH, by=actor)
        cancelled, asked = cancelled + batch.cancelled, asked + batch.asked
        full = CANCEL_BATCH in (batch.cancelled, batch.asked)
    # Rows that another transaction had locked: one by one, so that each statement waits for one row only.
    rest: list[str] = yield control.cancel_rest(chosen)
    for task_id in rest:
        state: str | None = yield control.cancel(UUID(task_id), by=actor)
        cancelled += state == TaskState.CANCELLED
        asked += state == TaskState.RUNNING
    return CancelCounts(cancelled, asked)


def _what(queue: str | None, name: str | None) -> tuple[Kind, str]:
    if queue is not None and name is None:
        Options(queue=queue)  # checks it
        return "queue", queue
    if name is not None and queue is None:
        if not is_name(name):
            raise InvalidOption(f"name must be a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
        return "name", name
    raise InvalidOption("give either queue= or name=, and only one of them.")
