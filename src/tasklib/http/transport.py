"""Asking the server: again where that is safe, with growing pauses, until there is an answer or an error."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tasklib.client.calls import Calls
from tasklib.client.effects import Call, Pause
from tasklib.config import Config, Keys
from tasklib.errors import ServerUnavailable, TaskLibError, TaskNotFound
from tasklib.http import problems, responses
from tasklib.http.requests import Answer, NoAnswer, Query, Request, get
from tasklib.tasks.task_id import KnownId, TaskId

if TYPE_CHECKING:
    from tasklib.models import Task

T = TypeVar("T")
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.1, 2.0, 5.0
_LONGEST_ASKED_FOR = 30.0
"""A server that asks to be left alone for longer is not waited for."""


class Asking(Calls):
    """Calls whose arguments are checked here, and which a server carries out."""

    def __init__(
        self, place: str, retries: int, *, id_type: type[KnownId[Any]] = TaskId, keys: Keys | None = None
    ) -> None:
        # It is never connected to: a call with a database is only taken to where it would need one.
        deployed_at = os.environ.get("TASKLIB_DEPLOYED_AT") or None
        super().__init__(Config("postgresql://", deployed_at=deployed_at, **_keys(keys)), id_type=id_type)
        self._place_name = place
        self._retries = retries

    def _ask(self, request: Request) -> Call[Any]:
        """Send a request until it is answered, and return the JSON of the answer."""
        for pause in pauses(self._retries):
            answer: Answer | NoAnswer = yield request
            if isinstance(answer, Answer) and answer.status < 300 and (found := answer.json) is not None:
                return found
            if isinstance(answer, Answer) and answer.status == 204:
                return None
            error, again = self._judged(request, answer)
            asked_for = _asked_for(answer)
            if pause is None or not again or asked_for > _LONGEST_ASKED_FOR:
                raise error
            yield Pause(max(pause, asked_for))
        raise AssertionError("unreachable")

    def _judged(self, request: Request, answer: Answer | NoAnswer) -> tuple[TaskLibError, bool]:
        """What went wrong, and whether to try again."""
        match answer:
            case Answer():
                may_repeat = request.repeatable or problems.was_not_begun(answer)
                return problems.error_of(request, answer), may_repeat and problems.is_busy(answer)
            case NoAnswer(reason, was_sent=False):
                message = f"the server at {self._place_name} can't be reached: {reason}. Check that it runs."
                return ServerUnavailable(message), True
            case NoAnswer(reason):
                message = f"the server at {self._place_name} got the request, but its answer was lost: {reason}."
                if not request.repeatable:
                    message += " The request may or may not have taken effect."
                return ServerUnavailable(message), request.repeatable

    def _pages(
        self, path: str, key: str, query: Query, start: str | None, limit: int, read: Callable[[Any], T]
    ) -> Call[list[T]]:
        """Page after page, until there are as many as were asked for."""
        found: list[T] = []
        cursor = start
        while True:
            more = [("limit", str(limit - len(found))), *([("cursor", cursor)] if cursor else [])]
            page = yield from self._ask(get(path, [*query, *more]))
            found += map(read, page[key])
            cursor = page["next"]
            if cursor is None or len(found) >= limit:
                return found

    def _tasks(self, path: str, query: Query, start: str | None, limit: int) -> Call[list[Task]]:
        """The same of tasks. What a list leaves out because it is large is asked for one by one."""
        tasks: list[Task] = []
        pages: list[Any] = yield from self._pages(path, "tasks", query, start, limit, lambda found: found)
        for found in pages:
            task_id = found["task_id"]
            with suppress(TaskNotFound):  # deleted meanwhile
                if found.get("left_out"):
                    found = yield from self._ask(get(f"/tasks/{task_id}", task_id=task_id))
                tasks.append(responses.task_of(found))
        return tasks


def checked(call: Call[Any]) -> None:
    """Let a call with a database check its arguments: up to the first thing that it needs the database for."""
    with suppress(StopIteration):
        next(call)
    call.close()


def pauses(retries: int) -> Iterator[float | None]:
    """The pauses between tries; None after the last. With jitter, so that clients don't return in step."""
    pause = _FIRST_PAUSE
    for _ in range(retries):
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
    yield None


def _keys(given: Keys | None) -> dict[str, Any]:
    """The keys of sealed tasks: tasks are sealed here, before they are sent."""
    if given is not None:
        return {"keys": given}
    return {"keys": os.environ.get("TASKLIB_KEYS") or None, "keys_file": os.environ.get("TASKLIB_KEYS_FILE") or None}


def _asked_for(answer: Answer | NoAnswer) -> float:
    """How long the server asks to be left alone."""
    text = answer.headers.get("retry-after", "") if isinstance(answer, Answer) else ""
    return float(text) if text.isdecimal() else 0.0
