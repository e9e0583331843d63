"""Flows of every shape, the faults they have to survive, and an operator who cancels and replays them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from proof.chaos import database_tasks
from proof.chaos import flow_tasks as tasks
from tasklib import Client, Flow, chain, group, spawned
from tasklib.tasks.flow_runs import FlowRun, Submittable

KINDS = (
    "worker killed",
    "worker frozen briefly",
    "worker frozen past its lease",
    "leader killed",
    "leader frozen",
    "HTTP server killed",
    "submitter killed",
    "worker restarted",
    "worker with a clock ahead",
    "worker with a clock behind",
    "database stopped fast",
    "database stopped immediately",
    "database killed",
    "database frozen",
    "backend killed",
    "connections terminated",
    "links delayed",
    "links stalled",
    "links reset",
    "links half-closed",
    "submission unanswered",
    "claim unanswered",
    "settlement unanswered",
    "fold unanswered",
    "record unanswered",
    "consumption unanswered",
    "suspension unanswered",
)
"""The faults that flows have to survive."""

_COMPLETED_SHARE = 0.2
_COMPLETED = """
    SELECT durable.id
    FROM (SELECT id FROM flows WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 50) AS flow
    JOIN tasks AS durable ON durable.flow = flow.id
    WHERE (durable.name = 'chaos.gatherer'
           -- Signals that were consumed do not come again.
           OR durable.name = 'chaos.order' AND durable.kwargs ->> 'signals' = '0')
      AND NOT EXISTS (SELECT FROM tasks AS other WHERE other.flow = flow.id AND other.state <> 'completed')
"""


class Flows:
    """Draws flows."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance

    def any(self, mark: str) -> Submittable[Any]:
        shapes: list[tuple[int, Callable[[str], Submittable[Any]]]] = [
            (6, self._chain),
            (6, self._group),
            (3, self._settled),
            (3, self._at_least),
            (3, self._diamond),
            (4, self._durable),
            (4, self._spawning),
            (3, self._gathering),
        ]
        weights, makers = zip(*shapes, strict=True)
        [maker] = self._random.choices(makers, weights)
        return maker(mark)

    def _fate(self) -> str:
        choice = self._random.random()
        return "dead" if choice < 0.03 else "flaky" if choice < 0.06 else "ok"

    def _members(self, mark: str, number: int) -> Iterator[Any]:
        return (tasks.member.s(mark=mark, fate=self._fate()) for _ in range(number))

    def _next(self, mark: str) -> Any:
        return tasks.following.s(mark=mark, fate=self._fate())

    def _chain(self, mark: str) -> Submittable[Any]:
        return chain(*self._members(mark, 1), *(self._next(mark) for _ in range(self._random.randrange(1, 3))))

    def _group(self, mark: str) -> Submittable[Any]:
        number = self._random.randrange(2, 5)
        return group(self._members(mark, number)).then(tasks.join.s(mark=mark, least=number))

    def _settled(self, mark: str) -> Submittable[Any]:
        number = self._random.randrange(1, 4)
        return group(self._members(mark, number)).then(tasks.settled.s(mark=mark, most=number), when="settled")

    def _at_least(self, mark: str) -> Submittable[Any]:
        enough: int | float
        enough, least = self._random.choice([(1, 1), (2, 2), (0.5, 2), (0.75, 3)])
        return group(self._members(mark, 4)).then(tasks.join.s(mark=mark, least=least), at_least=enough)

    def _diamond(self, mark: str) -> Submittable[Any]:
        """One, two beside each other, of which one may fail, and one after both."""
        flow: Flow[Any] = Flow("diamond")
        first = flow.add(tasks.member.s(mark=mark, fate=self._fate()))
        needed = flow.add(tasks.following.s(first, mark=mark, fate=self._fate()))
        optional = flow.add(tasks.following.s(first, mark=mark, fate=self._random.choice(["ok", "dead"])))
        flow.add(tasks.following.s(needed, mark=mark, fate=self._fate()), optional=[optional])
        return flow

    def _durable(self, mark: str) -> Submittable[Any]:
        choose = self._random
        steps, seconds, signals = choose.randrange(4), choose.choice([0.0, 0.0, 0.3, 1.5]), choose.randrange(3)
        return chain(database_tasks.order.s(mark=mark, steps=steps, seconds=seconds, signals=signals), self._next(mark))

    def _spawning(self, mark: str) -> Submittable[Any]:
        """A join that waits for tasks which are known only when they are spawned."""
        number = self._random.randrange(4)
        spawner = database_tasks.spawner.s(mark=mark, number=number, fate=self._fate())
        least = number + (number > 0)  # the first one spawns one more
        return chain(spawned(spawner, of=database_tasks.spawned), tasks.join.s(mark=mark, least=least))

    def _gathering(self, mark: str) -> Submittable[Any]:
        fates = [self._fate() for _ in range(self._random.randrange(4))]
        return chain(database_tasks.gatherer.s(mark=mark, fates=fates), self._next(mark))


def submitted(client: Client, flow: Submittable[Any]) -> list[UUID]:
    """The ids of its tasks."""
    run: FlowRun[Any] = client.submit_flow(flow)
    return [UUID(str(id_)) for ids in run.tasks.values() for id_ in ids]


class Meddler:
    """What an operator does with flows."""

    def __init__(self, client: Client, rows: Callable[..., list[tuple[Any, ...]]], chance: random.Random) -> None:
        self._client, self._rows, self._random = client, rows, chance

    def cancel(self) -> None:
        if found := self._rows("SELECT id FROM flows WHERE finished_at IS NULL ORDER BY id DESC LIMIT 50"):
            self._client.cancel_flow(self._random.choice(found)[0])

    def replay(self) -> None:
        if self._random.random() < _COMPLETED_SHARE:
            self._replay_completed()
            return
        found = self._rows("SELECT id FROM flows WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 50")
        if found:
            self._client.replay_flow(self._random.choice(found)[0])

    def _replay_completed(self) -> None:
        """A durable task does everything again. Only after all of its flow: a join would miss its result."""
        if found := self._rows(_COMPLETED):
            self._client.replay_task(self._random.choice(found)[0])
