"""`Task` as a model of SQLModel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import registry
from sqlmodel import Field, Session, SQLModel, col, select

import tasklib
from tasklib import Client, Config, Task, TaskState, Worker, task
from tasklib.migrations import migrate
from tests.client.lookup.states import put

SIBLINGS: dict[str, Callable[[Task], bool]] = {
    "pending": tasklib.is_pending,
    "running": tasklib.is_running,
    "completed": tasklib.is_completed,
    "failed": tasklib.is_failed,
    "cancelled": tasklib.is_cancelled,
    "dead_letter": tasklib.is_dead_letter,
}


@pytest.mark.parametrize("state", SIBLINGS)
def test_exactly_one_sibling_is_true_of_a_task(state: str, client: Client, greet: Any, db: Any) -> None:
    task_id = client.submit_task(greet, name="a")
    put(db, task_id, state)
    found = client.get_task(task_id)
    assert found is not None
    assert {name for name, holds in SIBLINGS.items() if holds(found)} == {state}
    assert tasklib.is_terminal(found) is (state in ("completed", "cancelled", "dead_letter"))


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url), poolclass=NullPool)
    with Session(engine) as session:
        yield session


def test_the_model_works_in_select(session: Session, client: Client, greet: Any, db: Any) -> None:
    ids = client.submit_many(greet, [{"name": n} for n in "abc"], tags={"team": "x"}, required_capabilities=["gpu"])
    put(db, ids[1], "completed")
    waiting = session.exec(select(Task).where(Task.state == "pending").order_by(col(Task.id))).all()
    assert [t.id for t in waiting] == [ids[0], ids[2]]
    assert [(t.kwargs, t.tags, t.required_capabilities) for t in waiting] == [
        ({"name": "a"}, {"team": "x"}, ["gpu"]),
        ({"name": "c"}, {"team": "x"}, ["gpu"]),
    ]
    done = session.exec(select(Task.id, Task.result).where(Task.state == TaskState.COMPLETED)).one()
    assert tuple(done) == (ids[1], 42)
    found = client.get_task(ids[0])
    assert found is not None
    assert waiting[0].model_dump() == found.model_dump()


def test_the_model_reads_another_schema_by_translation(database_url: str, session: Session) -> None:
    there = Config(database_url, schema="jobs")
    migrate(there)
    with Client(there) as client:
        task_id = client.submit_task("a", registered_elsewhere=True)
    session.connection(execution_options={"schema_translate_map": {None: "jobs"}})
    assert [t.id for t in session.exec(select(Task)).all()] == [task_id]


def test_a_task_added_to_a_session_is_complete_and_runs(session: Session, config: Config, db: Any) -> None:
    @task
    def double(number: int) -> int:
        return 2 * number

    added = Task(name="double", kwargs={"number": 4})
    session.add(added)
    session.commit()
    assert (added.id.version, added.state, added.retry_count) == (7, "pending", 0)
    nothing = "result, history, progress, trace_context"
    assert db.execute(f"SELECT {nothing} FROM tasks WHERE num_nulls({nothing}) = 4").fetchall() == [(None,) * 4]
    Worker(config, burst=True).run_sync()
    session.refresh(added)
    assert added.result == 8


def test_many_tasks_can_be_added_at_once_and_ordered_by_their_ids(session: Session, db: Any) -> None:
    added = [Task(name=f"t{i}") for i in range(3)]
    session.add_all(added)
    session.commit()
    assert len({t.id for t in added}) == 3
    assert session.exec(select(Task.name).order_by(col(Task.created_at), col(Task.id))).all() != []


NULLS = "result = 'null', history = 'null', progress = 'null', trace_context = 'null'"


@pytest.mark.parametrize("fails", [False, True])
def test_a_row_with_nulls_of_json_runs_and_is_shown(fails: bool, config: Config, client: Client, db: Any) -> None:
    @task(max_retries=0)
    def maybe() -> int:
        if fails:
            raise ValueError("no")
        return 1

    task_id = client.submit_task(maybe)
    db.execute(f"UPDATE tasks SET {NULLS}")
    before = client.get_task(task_id)
    assert before is not None
    assert (before.result, before.history, before.progress, before.trace_context) == (None, None, None, None)
    Worker(config, burst=True).run_sync()
    after = client.get_task(task_id)
    assert after is not None
    assert [entry["outcome"] for entry in after.history or []] == ["error"] * fails
    client.replay_task(task_id)
    again = client.get_task(task_id)
    assert again is not None
    assert [entry["outcome"] for entry in again.history or []] == ["error"] * fails + ["replayed"]


def test_a_history_with_nonsense_in_it_is_read(client: Client, greet: Any, db: Any) -> None:
    task_id = client.submit_task(greet, name="a")
    for nonsense, left in (("[null, {}, 5]", [{}]), ("5", []), ('"x"', []), ("{}", [])):
        db.execute("UPDATE tasks SET history = %s::jsonb", [nonsense])
        found = client.get_task(task_id)
        assert found is not None
        assert found.history == left


def test_a_tasks_repr_says_which_it_is_and_not_what_is_in_it(client: Client, greet: Any) -> None:
    found = client.get_task(client.submit_task(greet, name="private", tags={"a": "private"}))
    assert found is not None
    assert repr(found).startswith(f"Task(id={found.id!r}, name='greet', queue='default', state='pending'")
    assert "private" not in repr(found) + str(found)


def test_the_model_stays_out_of_the_programs_own_tables() -> None:
    assert "tasks" not in SQLModel.metadata.tables

    class Base(SQLModel, registry=registry()):
        pass

    class Task(Base, table=True):
        __tablename__ = "tasks"
        id: int = Field(primary_key=True)

    assert Task.metadata.tables["tasks"].columns.keys() == ["id"]
    assert len(tasklib.Task.metadata.tables["tasks"].columns) > 20
