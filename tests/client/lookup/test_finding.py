"""One task by its id, and lists of tasks, page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasklib import Client, Task, TaskState
from tasklib.errors import InvalidOption
from tests.client.conftest import Either
from tests.client.lookup.states import SET_TO, put

# ---- get_task ----


async def test_get_task_reads_every_column_with_its_type(either: Either, greet: Any, db: Any) -> None:
    task_id = await either.submit_task(
        greet, name="a", tags={"t": [1]}, required_capabilities=["gpu"], idempotency_key="k", timeout_seconds=5
    )
    found = await either.get_task(task_id)
    assert isinstance(found, Task)
    assert found.model_dump().keys() == {d.name for d in db.execute("SELECT * FROM tasks").description}
    assert (found.id, found.name, found.state, found.kwargs) == (task_id, "greet", "pending", {"name": "a"})
    assert (found.tags, found.required_capabilities, found.timeout_seconds) == ({"t": [1]}, ["gpu"], 5)
    assert found.created_at.utcoffset() is not None
    assert found.idempotency_expires_at is not None
    assert found.idempotency_expires_at - found.created_at == timedelta(hours=24)
    assert (found.result, found.error, found.worker_id, found.completed_at) == (None, None, None, None)


async def test_get_task_takes_the_text_of_an_id(either: Either, greet: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    for text in (str(task_id), task_id.hex, f"{{{task_id}}}", str(task_id).upper()):
        assert (await either.get_task(text)).id == task_id


async def test_get_task_of_an_unknown_id_is_none(either: Either) -> None:
    assert await either.get_task(uuid4()) is None


@pytest.mark.parametrize("wrong", ["", "nonsense", 5, None, b"x", "0" * 33])
async def test_what_is_no_id_is_refused(wrong: Any, either: Either) -> None:
    with pytest.raises(InvalidOption, match="a task id is a UUID, not "):
        await either.get_task(wrong)
    with pytest.raises(InvalidOption, match="a task id is a UUID, not "):
        await either.wait_for(wrong)


# ---- list_tasks ----


@pytest.fixture
def listed(client: Client, db: Any) -> dict[str, UUID]:
    """Tasks that differ in one thing each."""
    submit = client.submit_task
    ids = {
        "plain": submit("a", registered_elsewhere=True),
        "other name": submit("b", registered_elsewhere=True),
        "other queue": submit("a", queue="slow", registered_elsewhere=True),
        "tagged": submit("a", tags={"team": "x", "n": 1, "deep": {"er": [1, 2]}}, registered_elsewhere=True),
        "tagged else": submit("a", tags={"team": "y"}, registered_elsewhere=True),
        "old": submit("a", registered_elsewhere=True),
    }
    ids |= {state: submit("a", registered_elsewhere=True) for state in SET_TO if state != "pending"}
    for state in SET_TO.keys() - {"pending"}:
        put(db, ids[state], state)
    db.execute("UPDATE tasks SET created_at = '2020-01-01 00:00+00' WHERE id = %s", [ids["old"]])
    return ids


PENDING = {"plain", "other name", "other queue", "tagged", "tagged else", "old"}
ALL = PENDING | (SET_TO.keys() - {"pending"})


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ALL),
        ({"state": "pending"}, PENDING),
        ({"state": "running"}, {"running"}),
        ({"state": TaskState.COMPLETED}, {"completed"}),
        ({"state": "failed"}, {"failed"}),
        ({"state": "cancelled"}, {"cancelled"}),
        ({"state": "dead_letter"}, {"dead_letter"}),
        ({"state": ["failed", TaskState.DEAD_LETTER]}, {"failed", "dead_letter"}),
        ({"state": {"completed"}}, {"completed"}),
        ({"state": []}, set()),
        ({"name": "b"}, {"other name"}),
        ({"name": "nobody"}, set()),
        ({"queue": "slow"}, {"other queue"}),
        ({"tags": {"team": "x"}}, {"tagged"}),
        ({"tags": {"deep": {"er": [2]}}}, {"tagged"}),
        ({"tags": {"team": "x", "n": 2}}, set()),
        ({"tags": {}}, ALL),
        ({"created_before": datetime(2021, 1, 1, tzinfo=UTC)}, {"old"}),
        ({"created_before": datetime(2020, 1, 1, tzinfo=UTC)}, set()),
        ({"created_after": datetime(2020, 1, 1, tzinfo=UTC)}, ALL),
        ({"created_after": datetime(2021, 1, 1, tzinfo=UTC)}, ALL - {"old"}),
        ({"state": "pending", "name": "a", "queue": "default", "tags": {"team": "y"}}, {"tagged else"}),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),
)
async def test_each_filter_finds_what_it_names(
    filters: dict[str, Any], expected: set[str], either: Either, listed: dict[str, UUID]
) -> None:
    found = await either.list_tasks(**filters)
    assert {t.id for t in found} == {listed[name] for name in expected}
    assert [t.id for t in found] == sorted((t.id for t in found), reverse=True), "newest first"


@pytest.mark.parametrize("size", [1, 7, 10, 25, 100])
async def test_pages_have_neither_gaps_nor_repeats_while_tasks_come_in(
    size: int, either: Either, client: Client, greet: Any
) -> None:
    before = client.submit_many(greet, [{"name": "a"}] * 25)
    seen: list[UUID] = []
    after = None
    while page := await either.list_tasks(limit=size, after=after, name="greet"):
        assert len(page) <= size
        seen += [t.id for t in page]
        assert len(seen) <= len(before), "pages repeat themselves"
        after = page[-1]
        client.submit_task(greet, name="newer than every page")
    assert seen == sorted(before, reverse=True)


async def test_a_page_starts_after_a_task_an_id_or_its_text(either: Either, client: Client, greet: Any) -> None:
    ids = client.submit_many(greet, [{"name": "a"}] * 4)
    middle = await either.get_task(ids[2])
    for after in (middle, ids[2], str(ids[2])):
        assert [t.id for t in await either.list_tasks(after=after)] == [ids[1], ids[0]]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"state": "done"}, "'done' is not a valid TaskState: a state is one of pending, running, completed, failed"),
        ({"state": ["pending", "dead"]}, "'dead' is not a valid TaskState"),
        ({"limit": 0}, "limit must be from 1 to 10000, not 0"),
        ({"limit": 10_001}, "limit must be from 1 to 10000, not 10001"),
        ({"limit": True}, "limit must be from 1 to 10000, not True"),
        ({"limit": 1.5}, "limit must be from 1 to 10000, not 1.5"),
        ({"created_after": datetime(2026, 1, 1)}, r"created_after is a naive datetime \(2026-01-01T00:00:00\)"),
        ({"created_before": datetime(2026, 1, 1)}, "created_before is a naive datetime"),
        ({"created_before": "today"}, "created_before must be a datetime, not 'today'"),
        ({"after": "nonsense"}, "a task id is a UUID, not 'nonsense'"),
        ({"tags": {"a": float("nan")}}, r"tags\.a is nan, which JSON doesn't have"),
        ({"tags": ["a"]}, r"tags must be a mapping such as \{'batch': 'daily'\}, not \['a'\]"),
        ({"name": "a\x00"}, r"name must be a string of 1 to 500 bytes, not 'a\\x00'"),
        ({"queue": 5}, "queue must be a string of 1 to 500 bytes, not 5"),
    ],
    ids=str,
)
async def test_a_filter_that_makes_no_sense_is_explained(filters: dict[str, Any], message: str, either: Either) -> None:
    with pytest.raises(InvalidOption, match=message):
        await either.list_tasks(**filters)
