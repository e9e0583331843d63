"""A misspelt option or setting is named, with the one that was meant."""

from __future__ import annotations

import ast
from dataclasses import fields
from inspect import getsource, signature
from typing import Any, get_type_hints

import pytest

import tasklib
from tasklib import Client, SubmitOptions, task
from tasklib.client import signatures
from tasklib.client.calls import Calls
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


def test_every_signature_of_submit_task_has_the_options_in_one_order() -> None:
    order = [field.name for field in fields(Options)]
    assert [name for name in signature(Calls.submit_task).parameters if name in OPTION_NAMES] == order
    tree = ast.walk(ast.parse(getsource(signatures)))
    calls = [node.args.kwonlyargs for node in tree if isinstance(node, ast.FunctionDef) and node.name == "__call__"]
    typed = [[a.arg for a in args if a.arg in OPTION_NAMES] for args in calls]
    assert [names for names in typed if names] == [order, order], "those of SubmitTask and SyncSubmitTask"
