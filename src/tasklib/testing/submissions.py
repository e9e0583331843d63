"""`assert_submitted()`: which tasks were submitted, and how. Blocking calls, for sync and async tests."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any, Unpack

from tasklib.client.clients import Client
from tasklib.client.default import default_client
from tasklib.client.validation import MAX_PAGE
from tasklib.errors import TaskNotFound
from tasklib.tasks import registry
from tasklib.testing.expectations import Expectation, Expected
from tasklib.testing.inline_clients import InlineClient

if TYPE_CHECKING:
    from tasklib.models import Task

_MOST_SHOWN = 5


def submitted(task: Any, /, **expected: Unpack[Expected]) -> list[Task]:
    """The tasks of this task function (or name) that fit, oldest first.

    emails = submitted(send_email, queue="mail")

    Looks in the database of the module-level calls, at what is committed; in inline mode, at what was submitted
    there. `kwargs` and `tags` may name some of the entries; `scheduled_after` and `scheduled_before` include the
    moment itself.
    """
    client = default_client()
    expectation = Expectation.of(expected, _function(task), client.config)
    return [t for t in _tasks_named(client, _name(task)) if not expectation.mismatches(t)]


def assert_submitted(task: Any, /, *, count: int | None = None, **expected: Unpack[Expected]) -> list[Task]:
    """Fail unless such a task was submitted, or `count` of them, and return them, oldest first.

    assert_submitted(send_email, kwargs={"to": "a@example.com"}, priority="high", count=1)
    """
    __tracebackhide__ = True
    found = submitted(task, **expected)
    if len(found) != count if count is not None else not found:
        raise AssertionError(_complaint(task, expected, len(found), count))
    return found


def assert_not_submitted(task: Any, /, **expected: Unpack[Expected]) -> None:
    """Fail if such a task was submitted.

    assert_not_submitted(send_email, kwargs={"to": "b@example.com"})
    """
    __tracebackhide__ = True
    found = submitted(task, **expected)
    if found:
        expectation = Expectation.of(expected, _function(task), default_client().config)
        head = f"{_name(task)} was submitted {_times(len(found))}{expectation.described()}:"
        shown = [f"  {expectation.shown(t)}" for t in found[:_MOST_SHOWN]]
        raise AssertionError("\n".join([head, *shown, *_rest(found)]))


def _complaint(task: Any, expected: Expected, found: int, count: int | None) -> str:
    client, name = default_client(), _name(task)
    expectation = Expectation.of(expected, _function(task), client.config)
    wish = "" if count is None else f", expected {_times(count)}"
    head = f"{name} was {f'submitted {_times(found)}' if found else 'not submitted'}{expectation.described()}{wish}."
    tasks = _tasks_named(client, name)
    if not tasks:
        return f"{head}\n{_other_names(client, name)}"
    # The nearest first: the fewest mismatches, and of those the newest.
    ranked = sorted(reversed(tasks), key=lambda t: len(expectation.mismatches(t)))
    lines = [head, f"Submitted as {name} ({len(tasks)}), the nearest first:"]
    for t in ranked[:_MOST_SHOWN]:
        lines.append(f"  {expectation.shown(t)}")
        lines += [f"    {mismatch}" for mismatch in expectation.mismatches(t)]
    return "\n".join([*lines, *_rest(ranked)])


def _other_names(client: Client, name: str) -> str:
    names = Counter(t.name for t in _all_tasks(client))
    if not names:
        return "No task was submitted at all."
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"Submitted under other names: {', '.join(f'{n} ({c})' for n, c in names.most_common(10))}.{hint}"


def _tasks_named(client: Client, name: str) -> list[Task]:
    if isinstance(client, InlineClient):
        return [t.as_row() for t in client.inline.tasks if t.name == name]
    tasks = page = client.list_tasks(name=name, limit=MAX_PAGE)
    while len(page) == MAX_PAGE:
        page = client.list_tasks(name=name, limit=MAX_PAGE, after=page[-1])
        tasks = tasks + page
    return tasks[::-1]


def _all_tasks(client: Client) -> list[Task]:
    """The newest tasks under any name."""
    if isinstance(client, InlineClient):
        return [t.as_row() for t in client.inline.tasks]
    return client.list_tasks(limit=1000)


def _name(task: Any) -> str:
    return task if isinstance(task, str) else registry.find(task).name


def _function(task: Any) -> Any:
    try:
        return registry.find(task)
    except TaskNotFound:
        if isinstance(task, str):  # only another program has it
            return None
        raise


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _rest(tasks: list[Task]) -> list[str]:
    left = len(tasks) - _MOST_SHOWN
    return [f"  ... and {left} more"] if left > 0 else []
