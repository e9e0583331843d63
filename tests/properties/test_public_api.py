"""The public API against a model of it: whatever is called in whatever order, both say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tasklib import Client, Config, Reject, RetryPolicy, current_task, task
from tasklib.errors import InvalidOption, TaskLibError, TaskNotFound
from tasklib.tasks import registry
from tasklib.testing import drain_sync

QUEUES = ("default", "mail", "reports")
PRIORITIES = (-10, 0, 50, 100)


@dataclass
class Known:
    """What the model knows of one task."""

    queue: str
    priority: int
    fails: int
    """How many attempts fail; -1: it is rejected."""
    max_retries: int
    later: bool
    key: str | None
    order: int
    state: str = "pending"
    attempts: int = 0
    is_replayed: bool = False

    @property
    def waits(self) -> bool:
        return self.state in ("pending", "failed")


def attempted(known: Known) -> None:
    """What one attempt makes of a task."""
    known.attempts += 1
    if known.fails == -1:
        known.state = "dead_letter"
    elif known.attempts <= known.fails:
        known.state = "dead_letter" if known.attempts > known.max_retries else "failed"
    else:
        known.state = "completed"


class Api(RuleBasedStateMachine):
    """Every call goes to the database and to the model."""

    config: ClassVar[Config]
    db: ClassVar[psycopg.Connection]
    tasks: Bundle[UUID] = Bundle("tasks")

    @initialize()
    def begin(self) -> None:
        self.db.execute("DELETE FROM tasks")
        self.db.execute("DELETE FROM pauses")
        self.client = Client(self.config)
        self.known: dict[UUID, Known] = {}
        self.paused: set[str] = set()
        self.submitted = 0

    def teardown(self) -> None:
        if hasattr(self, "client"):
            self.client.close()

    @rule(
        target=tasks,
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from(PRIORITIES),
        fails=st.integers(-1, 3),
        max_retries=st.integers(0, 2),
        later=st.booleans(),
        key=st.none() | st.sampled_from(["a", "b"]),
    )
    def submit(self, queue: str, priority: int, fails: int, max_retries: int, later: bool, key: str | None) -> UUID:
        task_id = self.client.submit_task(
            "properties_work",
            fails=fails,
            queue=queue,
            priority=priority,
            max_retries=max_retries,
            delay_seconds=3600 if later else None,
            idempotency_key=key,
        )
        first = next((id_ for id_, k in self.known.items() if key is not None and k.key == key), None)
        if first is not None:
            assert task_id == first, "a known key returns the first task"
        else:
            assert task_id not in self.known
            self.submitted += 1
            self.known[task_id] = Known(queue, priority, fails, max_retries, later, key, self.submitted)
        return task_id

    @rule(fails=st.lists(st.integers(-1, 1), min_size=1, max_size=5), queue=st.sampled_from(QUEUES))
    def submit_many(self, fails: list[int], queue: str) -> None:
        ids = self.client.submit_many("properties_work", [{"fails": f} for f in fails], queue=queue, max_retries=1)
        assert len(set(ids)) == len(fails)
        for task_id, f in zip(ids, fails, strict=True):
            self.submitted += 1
            self.known[task_id] = Known(queue, 0, f, 1, False, None, self.submitted)

    @rule()
    def run_what_is_due(self) -> None:
        """Retries are an hour away, so that one run is one attempt of each."""
        drained = drain_sync(self.config)
        due = [
            id_ for id_, k in self.known.items() if k.state == "pending" and not k.later and k.queue not in self.paused
        ]
        assert set(drained.ids) == set(due)
        for task_id in due:
            attempted(self.known[task_id])

    @rule()
    def run_with_retries(self) -> None:
        drain_sync(self.config, until_done=True)
        for known in self.known.values():
            if known.queue in self.paused:
                continue
            while known.state == "failed" or (known.state == "pending" and not known.later):
                attempted(known)

    @rule(task_id=tasks)
    def cancel(self, task_id: UUID) -> None:
        known = self.known[task_id]
        if known.waits:
            known.state = "cancelled"
        assert self.client.cancel_task(task_id) == known.state

    @rule(task_id=tasks)
    def replay(self, task_id: UUID) -> None:
        known = self.known[task_id]
        if known.waits:
            with pytest.raises(TaskLibError):
                self.client.replay_task(task_id)
            return
        self.client.replay_task(task_id)
        known.state, known.attempts, known.later, known.is_replayed = "pending", 0, False, True

    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        assert self.client.pause(queue=queue) == (queue not in self.paused)
        self.paused.add(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        assert self.client.resume(queue=queue) == (queue in self.paused)
        self.paused.discard(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def cancel_a_queue(self, queue: str) -> None:
        waiting = [k for k in self.known.values() if k.queue == queue and k.waits]
        assert self.client.cancel_tasks(queue=queue).cancelled == len(waiting)
        for known in waiting:
            known.state = "cancelled"

    @rule()
    def replay_dead_letters(self) -> None:
        dead = {id_ for id_, k in self.known.items() if k.state == "dead_letter"}
        assert set(self.client.replay_dead_letters(everything=True)) == dead
        for task_id in dead:
            known = self.known[task_id]
            known.state, known.attempts, known.later, known.is_replayed = "pending", 0, False, True

    @rule(task_id=consumes(tasks))
    def purge(self, task_id: UUID) -> None:
        known = self.known[task_id]
        if known.state != "dead_letter":
            return
        assert list(self.client.purge_dead_letters(ids=[task_id])) == [task_id]
        del self.known[task_id]
        assert self.client.get_task(task_id) is None
        with pytest.raises(TaskNotFound):
            self.client.cancel_task(task_id)

    @rule(size=st.integers(1, 4))
    def list_in_pages(self, size: int) -> None:
        found: list[UUID] = []
        page = self.client.list_tasks(limit=size)
        while page:
            found += [t.id for t in page]
            page = self.client.list_tasks(limit=size, after=page[-1])
        assert len(found) == len(set(found))
        assert set(found) == self.known.keys()
        assert found == sorted(found, reverse=True)

    @rule(state=st.sampled_from(["pending", "failed", "completed", "cancelled", "dead_letter"]))
    def list_by_state(self, state: str) -> None:
        found = {t.id for t in self.client.list_tasks(state=state)}
        assert found == {id_ for id_, k in self.known.items() if k.state == state}

    @invariant()
    def the_table_is_as_the_model_says(self) -> None:
        if not hasattr(self, "known"):
            return
        rows = self.db.execute("SELECT id, state, retry_count, completed_at IS NOT NULL FROM tasks").fetchall()
        assert {id_: state for id_, state, _, _ in rows} == {id_: k.state for id_, k in self.known.items()}
        for task_id, state, retries, has_end in rows:
            assert retries <= self.known[task_id].max_retries
            assert has_end == (state in ("completed", "cancelled", "dead_letter"))


def test_whatever_is_called_in_whatever_order_the_model_says_the_same(config: Config, db: psycopg.Connection) -> None:
    with registry.isolated():

        @task(name="properties_work", retry_policy=RetryPolicy(base_seconds=3600))
        async def work(fails: int) -> int:
            if fails == -1:
                raise Reject("never")
            if current_task().attempt <= fails:
                raise RuntimeError("not yet")
            return current_task().attempt

        machine = type("OnThisDatabase", (Api,), {"config": config, "db": db})
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            machine,
            settings=settings(
                max_examples=25,
                stateful_step_count=20,
                suppress_health_check=list(HealthCheck),
            ),
        )


def test_options_that_make_no_sense_are_refused_whatever_else_is_said(config: Config) -> None:
    with Client(config) as client, pytest.raises(InvalidOption):
        client.submit_task("anything", priority=101, registered_elsewhere=True)
