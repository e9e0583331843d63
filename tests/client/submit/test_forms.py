"""The ways to say what is submitted."""

from __future__ import annotations

from typing import Any

import tasklib
from tasklib import Client, task
from tests.client.conftest import Either
from tests.client.submit.stored import count, row, rows


async def test_a_function_its_task_and_its_name_are_the_same_task(either: Either, greet: Any, db: Any) -> None:
    for target in (greet, greet.function, "greet"):
        task_id = await either.submit_task(target, name="a", times=2)
        assert row(db, task_id)["name"] == "greet"
        assert row(db, task_id)["kwargs"] == {"name": "a", "times": 2}
        assert row(db, task_id)["state"] == "pending"


async def test_the_methods_of_a_task_function_submit_with_its_own_parameters(
    greet: Any, database_url: str, db: Any
) -> None:
    tasklib.init(database_url)
    ids = [
        await greet.submit("a", times=2),
        greet.submit_sync(name="a", times=2),
        await greet.options(queue="mail").submit(name="a", times=2),
        greet.options(queue="mail").submit_sync("a", 2),
    ]
    assert [row(db, i)["kwargs"] for i in ids] == [{"name": "a", "times": 2}] * 4
    assert [row(db, i)["queue"] for i in ids] == ["default", "default", "mail", "mail"]


async def test_the_module_level_functions_submit_in_both_colours(greet: Any, database_url: str, db: Any) -> None:
    tasklib.init(database_url)
    ids = [await tasklib.submit_task(greet, name="a"), tasklib.sync.submit_task(greet, name="b")]
    ids += await tasklib.submit_many(greet, [{"name": "c"}])
    ids += tasklib.sync.submit_many([greet.bind(name="d")])
    assert [r["kwargs"]["name"] for r in rows(db)] == ["a", "b", "c", "d"]
    assert [r["id"] for r in rows(db)] == ids


async def test_a_name_only_another_program_knows_is_submitted_unchecked(either: Either, db: Any) -> None:
    task_id = await either.submit_task("elsewhere.work", registered_elsewhere=True, anything=[1, {"a": None}])
    assert row(db, task_id)["kwargs"] == {"anything": [1, {"a": None}]}
    ids = await either.submit_many("elsewhere.work", [{"n": 1}, {"n": 2}], registered_elsewhere=True)
    assert [row(db, i)["kwargs"]["n"] for i in ids] == [1, 2]


def test_calling_a_task_function_just_calls_it(db: Any) -> None:
    @task
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, b=2) == 3
    assert count(db) == 0


async def test_a_default_stays_out_of_the_row_so_that_the_one_of_the_day_it_runs_applies(
    either: Either, greet: Any, db: Any
) -> None:
    task_id = await either.submit_task(greet, name="a")
    assert row(db, task_id)["kwargs"] == {"name": "a"}


async def test_open_keywords_are_arguments_too(either: Either, db: Any) -> None:
    @task
    def anything(a: int, **rest: Any) -> None: ...

    task_id = await either.submit_task(anything, a="1", b=[2], c=None)
    assert row(db, task_id)["kwargs"] == {"a": 1, "b": [2], "c": None}


def test_arguments_may_have_any_name_python_allows(client: Client, db: Any) -> None:
    @task
    def odd(self: int, cls: int, args: int, task: int, _private: int, model_config: int, copy: int) -> None: ...

    given: dict[str, Any] = {"self": 1, "cls": 2, "args": 3, "task": 4, "_private": 5, "model_config": 6, "copy": 7}
    assert row(db, client.submit_task(odd, **given))["kwargs"] == given
