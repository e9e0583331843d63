"""Which workers could take a task, and why none can: its queue, its name, or the capabilities it requires."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from tasklib.client.reason import Reason, some
from tasklib.config import Config
from tasklib.formatting import count, shell_option
from tasklib.store.explain import Situation
from tasklib.store.fleet import WorkerInfo


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that claim, and those that live but don't."""

    takers: Sequence[WorkerInfo]
    draining: Sequence[WorkerInfo]

    @classmethod
    def of(cls, workers: Sequence[WorkerInfo], config: Config) -> Fleet:
        live = [w for w in workers if w.status != "dead"]
        draining = [w for w in live if w.status == "draining" or w.drain_requested_at is not None]
        return cls([w for w in live if w not in draining], draining)

    def fitting(self, task: Situation) -> list[WorkerInfo]:
        return [w for w in self.takers if _serves(w, task) and _knows(w, task) and not _missing(w, task)]

    def blocker(self, task: Situation) -> Reason | None:
        """Why no worker can take it: the first of queue, name and capabilities that no live worker matches."""
        if not self.takers:
            return self._no_worker()
        serving = [w for w in self.takers if _serves(w, task)]
        if not serving:
            return self._queue_unserved(task)
        knowing = [w for w in serving if _knows(w, task)]
        if not knowing:
            return self._name_unknown(task, serving)
        if all(_missing(w, task) for w in knowing):
            return self._capabilities_missing(task, knowing)
        return None

    def _no_worker(self) -> Reason:
        leaving = f"; {count(len(self.draining), 'is', 'are')} draining" if self.draining else ""
        sentence = f"No live worker takes tasks{leaving}."
        return Reason("no_worker", sentence, "Start one: tasklib worker MODULE", {"draining": ids_of(self.draining)})

    def _queue_unserved(self, task: Situation) -> Reason:
        served = sorted({q for w in self.takers for q in w.queues or ()})
        return Reason(
            "queue_not_served",
            f"No live worker serves its queue {task.queue!r}; those there are serve {some(served) or 'others'}.",
            f"Start one that does: tasklib worker MODULE {shell_option('--queue', task.queue)}",
            {"queue": task.queue, "served_queues": served, "workers": ids_of(self.takers)},
        )

    def _name_unknown(self, task: Situation, serving: Sequence[WorkerInfo]) -> Reason:
        names = sorted({n for w in serving for n in w.names or ()})
        near = difflib.get_close_matches(task.name, names, n=3)
        elsewhere = [w for w in self.takers if _knows(w, task)]
        there = [f"{w.id} ({count(len(w.names), 'name')})" if w.names else w.id for w in serving]
        sentence = f"No live worker of its queue {task.queue!r} knows the name {task.name!r}. There are {some(there)}."
        if elsewhere:
            sentence += f" Workers of other queues do: {some(ids_of(elsewhere))}."
        if near:
            sentence += f" Known names like it: {some(near)}."
        return Reason(
            "name_not_known",
            sentence,
            "Deploy a worker whose MODULE defines it, or cancel the task if its name is wrong.",
            {"name": task.name, "workers": ids_of(serving), "similar": near, "known_elsewhere": ids_of(elsewhere)},
        )

    def _capabilities_missing(self, task: Situation, knowing: Sequence[WorkerInfo]) -> Reason:
        nearest = min(knowing, key=lambda w: len(_missing(w, task)))
        missing = _missing(nearest, task)
        prefix = f"{task.name}@"
        versions = [c.removeprefix(prefix) for c in missing if c.startswith(prefix)]
        options = " ".join(
            shell_option("--capability", c) for c in task.required_capabilities if not c.startswith(prefix)
        )
        step = f"Start one that has it: tasklib worker MODULE {options}".rstrip()
        if versions:
            step = (
                f"Deploy workers whose code reads version {versions[0]} of its arguments: @task(version=...) of "
                f"{task.name}, or an upcast."
            )
        return Reason(
            "capabilities_missing",
            f"No live worker has all it requires ({', '.join(task.required_capabilities)}). "
            f"The nearest, {nearest.id}, lacks {', '.join(missing)}.",
            step,
            {"required": task.required_capabilities, "missing": missing, "nearest_worker": nearest.id},
        )


def _serves(worker: WorkerInfo, task: Situation) -> bool:
    return worker.queues is None or task.queue in worker.queues


def _knows(worker: WorkerInfo, task: Situation) -> bool:
    return worker.knows(task.name)


def _missing(worker: WorkerInfo, task: Situation) -> list[str]:
    return [c for c in task.required_capabilities if c not in worker.capabilities]


def ids_of(workers: Sequence[WorkerInfo]) -> list[str]:
    return [w.id for w in workers]
