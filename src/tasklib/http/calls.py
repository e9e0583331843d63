"""The calls about tasks over HTTP, one implementation for sync and async callers. The others are made of these."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.client import validation as checks
from tasklib.client.call_arguments import Alike
from tasklib.client.cursors import cursor
from tasklib.client.durable import checked_signal
from tasklib.client.effects import Call, Pause
from tasklib.client.explaining import Explanation, Position
from tasklib.client.submissions import Submitted, writer_of
from tasklib.errors import InvalidOption, PayloadUnreadable, TaskNotFound
from tasklib.events import CancelRequested, TaskReplayed, client_events
from tasklib.http import responses
from tasklib.http.approvals import HttpApprovalCalls
from tasklib.http.requests import API, Request, get, query_of
from tasklib.http.submitting import TaskToSend, around, edit_as_json, new_tasks, tell
from tasklib.http.transport import checked
from tasklib.states import TaskState, is_terminal
from tasklib.store.filters import TaskFilter, texts
from tasklib.store.lookup import Outcome
from tasklib.tasks import registry
from tasklib.tasks.blobs import is_pointer
from tasklib.tasks.options import Options
from tasklib.tasks.submitter import Submission

if TYPE_CHECKING:
    from tasklib.models import Task

WAIT_SECONDS = 25.0
"""How long one request waits for a result; shorter than most proxies wait."""
_QUICK_SECONDS, _PAUSE_SECONDS = 0.1, 0.5


class HttpCalls(HttpApprovalCalls):
    """The calls, carried out by a server."""

    def submit_each(self, items: Sequence[Submission], *, ids: Sequence[UUID] | None = None) -> Call[list[Submitted]]:
        if ids is not None:
            checks.check_ids(ids, len(items))
        return (yield from self._send(new_tasks(items, ids, self.defaults))) if items else []

    def get_task(self, task_id: UUID | str) -> Call[Task | None]:
        task_id = checks.as_id(task_id)
        try:
            return responses.task_of((yield from self._ask(get(f"/tasks/{task_id}", task_id=task_id))))
        except TaskNotFound:
            return None

    def _ended(self, task_id: UUID, timeout: float | None) -> Call[Outcome]:
        checked(super()._ended(task_id, timeout))
        deadline = None if timeout is None else time.monotonic() + timeout
        outages = checks.OutageTolerance(timeout)
        outcome: Outcome | None = None
        while True:
            began = time.monotonic()
            wait = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, max(0.0, deadline - began))
            with outages.survived(is_last=deadline is not None and began >= deadline):
                outcome = yield from self._outcome_within(task_id, wait)
                if is_terminal(outcome):
                    return outcome
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise checks.still_waiting(task_id, outcome, timeout)
            if now - began < _QUICK_SECONDS:  # a server that doesn't allow long polls
                yield Pause(_PAUSE_SECONDS if deadline is None else min(_PAUSE_SECONDS, deadline - now))

    def _with_result(self, ended: Outcome) -> Call[Outcome]:
        """The server has fetched it, unless it has no payload store itself."""
        if is_pointer(ended.result):
            raise PayloadUnreadable("the result is in a payload store that the server doesn't have.")
        yield from ()
        return ended

    def cancel_task(self, task_id: UUID | str) -> Call[TaskState]:
        task_id = checks.as_id(task_id)
        request = Request("DELETE", f"{API}/tasks/{task_id}", repeatable=True, about={"task_id": task_id})
        state = TaskState((yield from self._ask(request))["status"])
        client_events.emit_routine(CancelRequested(str(task_id), state, self.identity.actor))
        return state

    def replay_task(self, task_id: UUID | str) -> Call[None]:
        task_id = checks.as_id(task_id)
        yield from self._ask(Request("POST", f"{API}/tasks/{task_id}/replay", about={"task_id": task_id}))
        client_events.emit_routine(TaskReplayed(str(task_id), self.identity.actor))

    def run_task_now(self, task_id: UUID | str) -> Call[TaskState]:
        task_id = checks.as_id(task_id)
        request = Request("POST", f"{API}/tasks/{task_id}/run", about={"task_id": task_id})
        return TaskState((yield from self._ask(request))["status"])

    def edit_task(
        self,
        task_id: UUID | str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int | str | None = None,
        delay_seconds: float | None = None,
        scheduled_at: datetime | None = None,
        max_retries: int | None = None,
        timeout_seconds: int | None = None,
        tags: Mapping[str, Any] | None = None,
        required_capabilities: Iterable[str] | None = None,
    ) -> Call[TaskState]:
        task_id = checks.as_id(task_id)
        options = Options(
            delay_seconds, scheduled_at, max_retries, timeout_seconds, priority, tags, queue, required_capabilities
        )
        parameters = None
        if kwargs is not None:
            task = yield from self.get_task(task_id)
            if task is None:
                raise TaskNotFound.with_id(task_id)
            parameters = writer_of(registry.functions.get(task.name) or task.name)(kwargs)
        body = edit_as_json(options, parameters)
        # Not repeated: the second time, the task may have been changed by someone else.
        request = Request("PATCH", f"{API}/tasks/{task_id}", body=body, about={"task_id": task_id})
        return TaskState((yield from self._ask(request))["status"])

    def signal(
        self, task_id: UUID | str, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> Call[bool]:
        if connection is not None:
            raise InvalidOption("a signal over HTTP can't be part of a transaction: leave connection= out.")
        task_id, text = checks.as_id(task_id), checked_signal(name, payload, key)
        body = f'{{"name":{json.dumps(name)},"key":{json.dumps(key)},"payload":{text}}}'
        path, about = f"{API}/tasks/{task_id}/signals", {"task_id": task_id}
        request = Request("POST", path, body=body, repeatable=key is not None, about=about)
        return bool((yield from self._ask(request))["sent"])

    def explain_task(self, task_id: UUID | str) -> Call[Explanation]:
        task_id = checks.as_id(task_id)
        found = yield from self._ask(get(f"/tasks/{task_id}/explain", task_id=task_id))
        return responses.explanation_of(found)

    def queue_position(self, task_id: UUID | str) -> Call[Position | None]:
        return (yield from self.explain_task(task_id)).position

    def _list(self, chosen: TaskFilter, after: UUID | None, limit: int) -> Call[list[Task]]:
        if chosen.state == ():
            return []
        others = {**chosen.given(), "tags": None, "ids": None}
        query = [*query_of(**others, task_id=texts(chosen.ids)), *_tags(chosen.tags or {})]
        return (yield from self._tasks("/tasks", query, None if after is None else cursor("tasks", str(after)), limit))

    def _insert(self, items: Alike | Sequence[Submission], connection: Any) -> Call[list[UUID]]:
        if connection is not None:
            raise InvalidOption("connection= needs a database: over HTTP there is no transaction to join.")
        return [
            self.id_type(submitted.id) for submitted in (yield from self._send(new_tasks(items, None, self.defaults)))
        ]

    def _send(self, tasks: Sequence[TaskToSend]) -> Call[list[Submitted]]:
        with around(tasks) as trace:
            stored = yield from (self._send_one(tasks[0], trace) if len(tasks) == 1 else self._send_all(tasks, trace))
        if client_events.routine:
            tell(tasks, stored, self.identity.actor, trace)
        return stored

    def _send_one(self, task: TaskToSend, trace: Mapping[str, str] | None) -> Call[list[Submitted]]:
        query = query_of(queue_position=False)
        found = yield from self._ask(
            Request("POST", f"{API}/tasks", query, task.as_json(), repeatable=True, trace=trace)
        )
        return [Submitted(UUID(found["task_id"]), found["is_new"])]

    def _send_all(self, tasks: Sequence[TaskToSend], trace: Mapping[str, str] | None) -> Call[list[Submitted]]:
        body = f'{{"tasks":[{",".join(task.as_json() for task in tasks)}]}}'
        found = yield from self._ask(Request("POST", f"{API}/tasks/batch", (), body, repeatable=True, trace=trace))
        return [Submitted(UUID(item["task_id"]), item["is_new"]) for item in found["tasks"]]

    def _outcome_within(self, task_id: UUID, wait: float) -> Call[Outcome]:
        path = f"{API}/tasks/{task_id}/result"
        query = query_of(wait_seconds=wait)
        found = yield from self._ask(
            Request("GET", path, query, repeatable=True, extra_seconds=wait, about={"task_id": task_id})
        )
        error = found["error"]["traceback"] if found["error"] else None
        return Outcome(found["task_type"], found["status"], found["result"], error)


def _tags(tags: Mapping[str, Any]) -> list[tuple[str, str]]:
    for key in tags:
        if not key or "=" in key:
            raise InvalidOption(f"over HTTP, tasks can't be found by a tag whose name is {key!r}.")
    return [("tag", f"{key}={json.dumps(value)}") for key, value in tags.items()]
