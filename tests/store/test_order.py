"""The order of claims, held against a model in plain Python: all levels and ages, retries, delays, pauses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklib import Config
from tasklib.db.connect import TASKS, conninfo
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.store import claim
from tasklib.store.claim import Claimed, Lane, Place, Served
from tasklib.testing import databases

T = TypeVar("T")
MEDIUM, HIGH = 600.0, 1200.0
NEIGHBOUR = Served(["w"])


@dataclass(frozen=True)
class Waiting:
    """A claimable row, before the moment of its claim is known."""

    queue: str
    name: str
    capabilities: tuple[str, ...]
    priority: int
    age: timedelta
    """How long it has been due; negative for one whose time has not come."""
    is_retry: bool = False


@dataclass(frozen=True)
class Task:
    """A row with its id, which decides where all else is equal."""

    waiting: Waiting
    id: UUID


@dataclass(frozen=True)
class Scene:
    """Tasks, a worker, and what the fleet has decided."""

    tasks: Sequence[Waiting]
    served: Served
    paused_queues: tuple[str, ...] = ()
    paused_names: tuple[str, ...] = ()
    configured: tuple[float, float] = (MEDIUM, HIGH)
    decided: tuple[float | None, float | None] = (None, None)
    goes_on: bool = False
    """The worker resumes behind its last claims, as a busy one does."""
    neighbour: Served = NEIGHBOUR
    """Another worker, which sets apart what it doesn't serve ..."""
    set_apart_after: int | None = None
    """... after so many claims of this one."""

    @property
    def thresholds(self) -> tuple[float, float]:
        """What the fleet has decided goes before the worker's own configuration."""
        medium, high = self.decided
        return medium or self.configured[0], high or self.configured[1]

    def may_take(self, task: Waiting) -> bool:
        return (
            task.age >= timedelta(0)
            and (self.served.queues is None or task.queue in self.served.queues)
            and task.name in self.served.names
            and set(task.capabilities) <= set(self.served.capabilities)
            and task.queue not in self.paused_queues
            and task.name not in self.paused_names
        )

    def level(self, task: Waiting) -> int:
        """The model: low counts as medium after a while, and everything as high after another."""
        medium, high = (timedelta(seconds=s) for s in self.thresholds)
        if task.age >= (high + medium if task.priority < 0 else high):
            return 100
        return 0 if task.priority < 0 and task.age >= medium else task.priority

    def rank(self, task: Task) -> tuple[int, timedelta, UUID]:
        return -self.level(task.waiting), -task.waiting.age, task.id


class Queue:
    """A table that is filled, claimed from and emptied within one transaction: now() stands still."""

    def __init__(self, config: Config) -> None:
        self.connection = psycopg.connect(conninfo(config, role=TASKS), autocommit=True)

    def claims(self, scene: Scene, limit: int) -> list[list[Task]]:
        """Play a scene to its end: what each claim brought, in its order."""
        with self.connection.transaction(force_rollback=True):
            tasks = self.fill(scene)
            batches: list[list[Task]] = []
            behind: dict[Lane, Place] = {}
            while batch := self._claim(scene, limit, behind):
                batches.append([Task(tasks[UUID(c.id)], UUID(c.id)) for c in batch])
                assert [c.effective_priority for c in batch] == [scene.level(t.waiting) for t in batches[-1]]
                if scene.goes_on:
                    behind |= {c.lane: c.place for c in batch}
                if len(batches) == scene.set_apart_after:
                    self._run(claim.set_apart(scene.neighbour))
            return batches

    def fill(self, scene: Scene) -> dict[UUID, Waiting]:
        # Ids in no order: only where everything else is equal may they decide.
        tasks = {UUID(int=(i + 1) * 7919 % 10007): t for i, t in enumerate(scene.tasks)}
        assert len(tasks) == len(scene.tasks)
        now = self._now()
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO tasks "
                "(id, queue, name, required_capabilities, priority, state, scheduled_at, next_retry_at) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                [_row(id_, task, now) for id_, task in tasks.items()],
            )
            pauses = [("queue", q) for q in scene.paused_queues] + [("name", n) for n in scene.paused_names]
            cursor.executemany("INSERT INTO pauses (kind, value) VALUES (%s, %s)", pauses)
        self.decide(*scene.decided)
        return tasks

    def decide(self, medium: float | None, high: float | None) -> None:
        self.connection.execute(
            "UPDATE settings SET promote_to_medium_after_seconds = %s, promote_to_high_after_seconds = %s",
            (medium, high),
        )

    def _claim(self, scene: Scene, limit: int, behind: Mapping[Lane, Place]) -> list[Claimed]:
        medium, high = scene.configured
        terms = {"lease_seconds": 600.0, "medium_after": medium, "high_after": high}
        return self._run(claim.claim(scene.served, limit, "w", behind, **terms))

    def _run(self, query: Query[T]) -> T:
        return execute(self.connection, replace(query, prepare=True), None)

    def _now(self) -> datetime:
        row = self.connection.execute("SELECT now()").fetchone()
        assert row is not None
        moment: datetime = row[0]
        return moment


def _row(id_: UUID, task: Waiting, now: datetime) -> tuple[object, ...]:
    due = now - task.age
    # A retry waits anew from its retry time; when it was first scheduled no longer matters.
    first = due - timedelta(days=1) if task.is_retry else due
    state, retry = ("failed", due) if task.is_retry else ("pending", None)
    return id_, task.queue, task.name, list(task.capabilities), task.priority, state, first, retry


@pytest.fixture(scope="module")
def queue(server_url: str, template_database: str) -> Iterator[Queue]:
    with databases.database(server_url, template_database) as url:
        queue = Queue(Config(url))
        # The statistics count no rows in some pages, which makes every wrong plan look cheap.
        with queue.connection.transaction(force_rollback=True):
            queue.fill(Scene(everywhere(500, seed=0), NEIGHBOUR))
        queue.connection.execute("ANALYZE tasks")
        yield queue
        queue.connection.close()


QUEUES = ("a", "a\x01", "b")
NAMES = ("w", "w\x01", "wa", "x", *(f"name_{n}" for n in range(46)))
CAPABILITIES = ((), ("c",), ("c", "d"), ("d",))
PRIORITIES = (-10, -9, -1, 0, 1, 50, 99, 100)
# Right before, at, and right behind every border.
_BORDERS = [timedelta(seconds=s, microseconds=m) for s in (0, 600, 1200, 1800) for m in (-1, 0, 1)]

ages = st.sampled_from(_BORDERS) | st.integers(-100, 2500).map(lambda s: timedelta(seconds=s))
thresholds = st.sampled_from((1.0, 60.0, 600.0, 1200.0, 5000.0))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Few lanes with many tasks each as well as many lanes with few."""
    names, queues, capabilities, priorities = (
        draw(st.lists(st.sampled_from(pool), min_size=1, max_size=min(8, len(pool)), unique=True))
        for pool in (NAMES, QUEUES, CAPABILITIES, PRIORITIES)
    )
    task = st.builds(
        Waiting,
        st.sampled_from(queues),
        st.sampled_from(names),
        st.sampled_from(capabilities),
        st.sampled_from(priorities),
        ages,
        st.booleans(),
    )
    tasks = draw(st.lists(task, max_size=60))
    goes_on, apart = draw(st.booleans()), draw(st.none() | st.integers(1, 5))
    if draw(st.booleans()):
        return Scene(tasks, Served(NAMES, None, ("c", "d")), goes_on=goes_on, set_apart_after=apart)
    return Scene(
        tasks,
        Served(
            draw(st.lists(st.sampled_from(names), min_size=1, unique=True)),
            draw(st.none() | st.lists(st.sampled_from(queues), min_size=1, unique=True)),
            draw(st.lists(st.sampled_from(("c", "d", "e")), unique=True)),
        ),
        draw(st.lists(st.sampled_from(QUEUES), max_size=1).map(tuple)),
        draw(st.lists(st.sampled_from(NAMES), max_size=1).map(tuple)),
        draw(st.tuples(thresholds, thresholds)),
        draw(st.tuples(st.none() | thresholds, st.none() | thresholds)),
        goes_on,
        Served(draw(st.lists(st.sampled_from(names), max_size=3)), None, ("c", "d")),
        apart,
    )


playing = settings(max_examples=150)


def everywhere(count: int, seed: int) -> list[Waiting]:
    """Thousands of tasks of all levels and ages."""
    chance = random.Random(seed)
    return [
        Waiting(
            chance.choice(QUEUES),
            chance.choice(NAMES),
            chance.choice(CAPABILITIES),
            chance.choice(PRIORITIES),
            timedelta(seconds=chance.randint(-200, 2500)),
            chance.random() < 0.3,
        )
        for _ in range(count)
    ]


def assert_in_order(queue: Queue, scene: Scene, limit: int) -> None:
    """Everything this worker may take was taken, and nothing else, in the order of the model."""
    batches = queue.claims(scene, limit)
    claimed = [task for batch in batches for task in batch]
    ranks = [scene.rank(t) for t in claimed]
    assert ranks == sorted(ranks)
    assert all(len(batch) == limit for batch in batches[:-1]), "a claim brings as many as there are"
    assert sorted(repr(t.waiting) for t in claimed) == sorted(repr(t) for t in scene.tasks if scene.may_take(t))


@pytest.mark.long
@playing
@given(scenes(), st.sampled_from((1, 2, 3, 7, 12)))
def test_claims_come_in_the_order_of_the_model(queue: Queue, scene: Scene, limit: int) -> None:
    assert_in_order(queue, scene, limit)


@pytest.mark.long
@pytest.mark.parametrize("goes_on", [False, True], ids=["from the beginning", "going on"])
def test_a_thousand_tasks_of_fifty_names_come_one_by_one_in_the_order_of_the_model(queue: Queue, goes_on: bool) -> None:
    served = Served([*NAMES[:20], "w"], ["a", "b"], ["c", "d"])
    assert_in_order(queue, Scene(everywhere(1000, seed=1), served, goes_on=goes_on, set_apart_after=40), 1)


@pytest.mark.parametrize("goes_on", [False, True], ids=["from the beginning", "going on"])
@pytest.mark.parametrize("limit", [10, 100, 3000])
def test_thousands_of_tasks_come_in_batches_in_the_order_of_the_model(queue: Queue, limit: int, goes_on: bool) -> None:
    scene = Scene(everywhere(3000, seed=limit), Served(NAMES, None, ["c", "d"]), paused_names=("x",), goes_on=goes_on)
    assert_in_order(queue, replace(scene, set_apart_after=3), limit)


def test_what_stands_behind_raised_tasks_of_its_lane_still_goes_before_lower_levels(queue: Queue) -> None:
    """A claim that has room for more than a lane's raised tasks must not pass over the rest of that lane."""
    old, new = timedelta(seconds=1300), timedelta(seconds=10)
    raised = Waiting("a", "w", (), 50, old)
    tasks = [raised, *[replace(raised, age=new)] * 5, *[Waiting("a", "w", (), 0, new)] * 5]
    [first, second] = queue.claims(Scene(tasks, Served(["w"])), 6)
    assert [t.waiting.priority for t in first] == [50] * 6
    assert [t.waiting.priority for t in second] == [0] * 5


@pytest.mark.parametrize(
    "neighbour",
    [None, {"queue": "z"}, {"name": "x"}, {"capabilities": ("c",)}, {"priority": 5}],
    ids=["alone", "another queue", "another name", "other capabilities", "another priority"],
)
def test_what_stands_behind_raised_tasks_takes_its_own_place_among_other_lanes(
    neighbour: dict[str, Any] | None, queue: Queue
) -> None:
    """Its place is that of its oldest task: not of a raised one, and not of a task beside this lane."""
    raised = Waiting("a", "w", (), 0, timedelta(seconds=1300))
    newest = replace(raised, age=timedelta(seconds=20))
    older = replace(raised, queue="b", age=timedelta(seconds=30))
    tasks = [raised, newest, older]
    if neighbour is not None:
        tasks.append(replace(raised, age=timedelta(seconds=40), **neighbour))
    scene = Scene(tasks, Served(["w"], ["a", "b"]))
    served = [task for task in tasks if scene.may_take(task)]
    *first, last = [t.waiting for batch in queue.claims(scene, len(served) - 1) for t in batch]
    assert raised in first
    assert older in first
    assert last == newest


def test_thresholds_changed_at_run_time_count_from_the_next_claim(queue: Queue) -> None:
    low = Waiting("a", "w", (), -10, timedelta(seconds=30))
    high = Waiting("a", "w", (), 100, timedelta(seconds=5))
    scene = Scene([low, replace(low, age=timedelta(seconds=29)), high, high], Served(["w"]))
    with queue.connection.transaction(force_rollback=True):
        queue.fill(scene)
        first = queue._claim(scene, 1, {})
        queue.decide(10, 10)
        second = queue._claim(scene, 1, {})
        queue.decide(None, None)
        third = queue._claim(scene, 1, {})
    assert [(c.priority, c.effective_priority) for c in first + second + third] == [(100, 100), (-10, 100), (100, 100)]


@playing
@given(st.integers(-10, 100), ages, thresholds, thresholds)
def test_effective_priority_in_sql_is_that_of_the_model(
    queue: Queue, priority: int, age: timedelta, medium: float, high: float
) -> None:
    row = queue.connection.execute(
        "SELECT tasklib_effective_priority(%s, now() - %s, %s, %s, now())", (priority, age, medium, high)
    ).fetchone()
    model = Scene([], Served([]), configured=(medium, high)).level(Waiting("", "", (), priority, age))
    assert row == (model,)
