"""Versions of arguments: the chain of upcasts, what a function reads, aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from tasklib import task
from tasklib.errors import InvalidTaskFunction, TaskExecutionError
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.testing import read_samples

Made = TaskFunction[..., Any, Any, ...]


def with_three_versions() -> Made:
    @task(name="mail.send", version=3)
    def send(recipients: list[str], subject: str) -> None: ...

    @send.upcast(1)
    def _(old: dict[str, Any]) -> dict[str, Any]:
        return {"recipients": [old["to"]]}

    @send.upcast(2)
    def _(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "subject": "(none)"}

    return send


def read(function: Made, text: str, version: int | None) -> dict[str, Any]:
    assert function.versions is not None
    return function.versions.read(function.arguments, text, version)


def test_arguments_of_every_version_become_those_of_the_newest() -> None:
    send = with_three_versions()
    newest = {"recipients": ["a"], "subject": "(none)"}
    assert read(send, '{"to": "a"}', 1) == newest
    assert read(send, '{"recipients": ["a"]}', 2) == newest
    assert read(send, '{"recipients": ["a"], "subject": "x"}', 3) == {**newest, "subject": "x"}


def test_a_row_without_a_version_is_of_the_first_if_that_is_read_and_else_as_declared_now() -> None:
    assert read(with_three_versions(), '{"to": "a"}', None)["recipients"] == ["a"]

    @task(version=2)
    def later(n: int) -> None: ...

    assert read(later, '{"n": 1}', None) == {"n": 1}


def test_a_worker_offers_what_it_reads_under_each_name() -> None:
    send = with_three_versions()
    assert send.versions is not None
    assert send.versions.capabilities("mail.send") == ["mail.send@1", "mail.send@2", "mail.send@3"]
    assert send.versions.capabilities("old")[0] == "old@1"


def test_a_version_that_is_newer_or_has_no_upcast_is_refused_with_the_versions_that_are_read() -> None:
    with pytest.raises(TaskExecutionError, match="of version 4, and this code reads versions 1 to 3"):
        read(with_three_versions(), "{}", 4)

    @task(version=2)
    def fresh(n: int) -> None: ...

    with pytest.raises(TaskExecutionError, match="of version 1, from which there is no upcast"):
        read(fresh, "{}", 1)


def test_an_upcast_that_raises_or_returns_no_dict_names_itself() -> None:
    with pytest.raises(TaskExecutionError, match="the upcast from version 1 raised KeyError: 'to'"):
        read(with_three_versions(), "{}", 1)

    @task(version=2)
    def odd(n: int) -> None: ...

    odd.upcast(1)(lambda old: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(TaskExecutionError, match="the upcast from version 1 returned NoneType, not a dict"):
        read(odd, "{}", 1)


def test_a_broken_chain_is_found_before_anything_is_claimed() -> None:
    @task(version=4)
    def gap(n: int) -> None: ...

    gap.upcast(1)(lambda old: old)
    gap.upcast(3)(lambda old: old)
    assert gap.versions is not None
    with pytest.raises(InvalidTaskFunction, match="an upcast from 1, but none from 2"):
        _ = gap.versions.readable


def test_secrets_reach_an_upcast_without_their_marks_and_the_function_as_secrets() -> None:
    @task(version=2)
    def login(password: SecretStr) -> None: ...

    login.upcast(1)(lambda old: {"password": old["word"]})
    found = read(login, '{"word": {"$secret": "hunter2"}}', 1)
    assert found["password"].get_secret_value() == "hunter2"


@pytest.mark.parametrize("version", [0, -1, 1.5, True, "2", 40_000])
def test_what_is_no_version_is_refused(version: Any) -> None:
    with pytest.raises(InvalidTaskFunction, match="version must be a whole number"):
        task(version=version)(lambda: None)


def test_an_upcast_needs_versions_one_place_and_a_function() -> None:
    @task
    def plain(n: int) -> None: ...

    with pytest.raises(InvalidTaskFunction, match="plain has no versions to upcast to"):
        plain.upcast(1)
    send = with_three_versions()
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: send.upcast(3)(dict), "a version before the current one, 3"),
        (lambda: send.upcast(1)(dict), "two upcasts from version 1"),
        (lambda: send.upcast(2)("x"), "decorates a function"),  # type: ignore[type-var]
    ]
    for refused, words in refusals:
        with pytest.raises(InvalidTaskFunction, match=words):
            refused()


def test_a_renamed_function_is_found_by_all_its_names_and_listed_once() -> None:
    @task(name="mail.deliver", aliases=["mail.send", "send"])
    def deliver() -> None: ...

    assert {registry.find(name) for name in ("mail.deliver", "mail.send", "send")} == {deliver}
    assert registry.names() == ["mail.deliver", "mail.send", "send"]
    assert registry.distinct() == [deliver]


@pytest.mark.parametrize(
    ("aliases", "words"), [("a", "a list of names"), ([""], "an alias is"), (["f"], "another name")]
)
def test_what_is_no_alias_is_refused(aliases: Any, words: str) -> None:
    with pytest.raises(InvalidTaskFunction, match=words):
        task(name="f", aliases=aliases)(lambda: None)


def test_an_alias_that_another_function_has_is_refused_and_nothing_is_registered() -> None:
    @task(name="taken")
    def one() -> None: ...

    def two() -> None: ...

    with pytest.raises(InvalidTaskFunction, match="two functions want the task name 'taken'"):
        task(name="new", aliases=["taken"])(two)
    assert registry.names() == ["taken"]


def test_stored_samples_of_every_version_are_read() -> None:
    send = with_three_versions()
    newest = {"recipients": ["a"], "subject": "s"}
    read = read_samples(send, {1: [{"to": "a"}], 2: [{"recipients": ["b"]}], 3: [newest]})
    assert [read[v][0]["recipients"] for v in (1, 2, 3)] == [["a"], ["b"], ["a"]]
    with pytest.raises(AssertionError, match="reads version 2, of which there is no sample"):
        read_samples(send, {1: [{"to": "a"}], 3: [newest]})
    with pytest.raises(AssertionError, match=r"sample 1 of version 2: .*recipients: is missing"):
        read_samples(send, {1: [{"to": "a"}], 2: [{"recipients": ["b"]}, {"to": 1}], 3: [newest]})
