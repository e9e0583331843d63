"""A misspelt option or setting is named, with the one that was meant."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

import tasklib
from tasklib import Client, SubmitOptions, task
from tasklib.errors import InvalidOption, InvalidTaskFunction, TaskExecutionError
from tasklib.tasks.options import OPTION_NAMES, Options
from tests.client.submit.stored import count


def test_a_misspelt_option_of_a_task_function_is_named(greet: Any) -> None:
    with pytest.raises(InvalidOption, match=r"there is no option 'priorty'\. Did you mean 'priority'\?"):
        greet.options(priorty="high")
    with pytest.raises(InvalidOption, match=r"there is no option 'lane'\. The options are "):
        greet.options(queue="q").options(lane=3)


def test_a_misspelt_option_between_arguments_is_named(client: Client, greet: Any, db: Any) -> None:
    with pytest.raises(
        TaskExecutionError, match=r"priorty: is not a parameter of greet\. Did you mean 'priority'\?"
    ) as caught:
        client.submit_task(greet, name="a", priorty="high")
    assert caught.value.field == "priorty"
    with pytest.raises(TaskExecutionError, match=r"nmae: is not a parameter of greet\. Did you mean 'name'\?"):
        client.submit_task(greet, nmae="a")
    with pytest.raises(InvalidOption, match=r"Did you mean 'queue'\?"):
        client.submit_many(greet, [{"name": "a"}], quueue="q")  # type: ignore[call-overload]
    assert count(db) == 0


def test_a_misspelt_setting_of_a_task_is_named() -> None:
    settings: Any = {"max_retires": 5}
    with pytest.raises(InvalidTaskFunction, match=r"@task has no setting 'max_retires'\. Did you mean 'max_retries'\?"):
        task(**settings)


def test_type_checkers_know_the_options_that_there_are() -> None:
    assert set(SubmitOptions.__annotations__) == OPTION_NAMES
    known, checked = get_type_hints(SubmitOptions), get_type_hints(Options)
    choices = {"unique", "on_duplicate"}  # checkers know the words; anything may come from JSON, and is checked then
    assert {n: hint for n, hint in known.items() if n not in choices} == {
        n: hint for n, hint in checked.items() if n not in choices
    }
    shown = set(tasklib.task.__signature__.parameters)  # type: ignore[attr-defined]
    assert {"name", "executor", "transactional", "max_retries", "tags"} < shown
