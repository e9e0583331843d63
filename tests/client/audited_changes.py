"""A call for each action of the audit, and the record it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg

from tasklib import Client, Flow, task
from tasklib.store.audit import Action


class Scene:
    """A database with something to change in it."""

    def __init__(self, client: Client, db: psycopg.Connection) -> None:
        self.client = client
        self.db = db

    def task(self, **columns: str) -> str:
        columns = {"name": "'work'", **columns}
        names, values = ", ".join(columns), ", ".join(columns.values())
        row = self.db.execute(f"INSERT INTO tasks ({names}) VALUES ({values}) RETURNING id".encode()).fetchone()
        assert row is not None
        return str(row[0])

    def dead_letter(self) -> str:
        return self.task(state="'dead_letter'", completed_at="now() - interval '1 s'", error="'ValueError: 1'")

    def schedule(self) -> str:
        """A schedule that has existed for some hours."""
        self.client.create_schedule("work", "@hourly", name="nightly", registered_elsewhere=True)
        return "nightly"

    def flow(self) -> str:
        """A flow of two tasks, one after the other."""
        work = task(lambda: None, name="work")
        flow = Flow("import")
        flow.add(work.s(), after=[flow.add(work.s())])
        return str(self.client.submit_flow(flow).id)

    def picture(self) -> list[Any]:
        """Everything an operator could have changed."""
        tables = ("tasks", "workers", "pauses", "limits", "breakers", "settings", "api_tokens", "schedules")
        tables += ("saved_searches", "replays")
        return [self.db.execute(f"SELECT t::text FROM {t} AS t ORDER BY 1".encode()).fetchall() for t in tables]


@dataclass
class Change:
    """A call that changes something, and the record it leaves."""

    call: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    target: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    """Among others."""

    def on(self, client: Any) -> Any:
        return getattr(client, self.call)(*self.args, **self.options)


def approve(scene: Scene) -> Change:
    task = scene.task(awaited_signals="ARRAY['approval:go']")
    asked = '{"value": {"title": "Go?", "role": "approver"}}'
    scene.db.execute(
        "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'approval', 'go', %s, 1)", [task, asked]
    )
    details = {"approval": "go", "approved": True, "comment": "fine"}
    return Change("approve", (task, "go"), {"comment": "fine"}, target=task, details=details)


def cancel_task(scene: Scene) -> Change:
    task = scene.task()
    return Change("cancel_task", (task,), target=task)


def replay_task(scene: Scene) -> Change:
    task = scene.dead_letter()
    return Change("replay_task", (task,), target=task)


def run_task_now(scene: Scene) -> Change:
    task = scene.task(scheduled_at="now() + interval '1 h'")
    return Change("run_task_now", (task,), target=task)


def edit_task(scene: Scene) -> Change:
    task = scene.task(kwargs="""'{"to": "a", "n": 1}'""")
    options = {"kwargs": {"to": "b", "n": 1}, "queue": "slow", "priority": 5}
    details = {"queue": "slow", "priority": 5, "arguments": ["to"], "was": {"queue": "default", "priority": 0}}
    return Change("edit_task", (task,), options, target=task, details=details)


def signal_on_record(scene: Scene) -> Change:
    id_ = scene.task()
    return Change("signal_on_record", (id_, "approved", {"by": "Ada"}), {"key": "once"}, target=id_)


def cancel_flow(scene: Scene) -> Change:
    flow = scene.flow()
    return Change("cancel_flow", (flow,), target=flow)


def replay_flow(scene: Scene) -> Change:
    flow = scene.flow()
    scene.client.cancel_flow(flow)
    return Change("replay_flow", (flow,), target=flow)


def cancel_tasks(scene: Scene) -> Change:
    for _ in range(2):
        scene.task(queue="'q'", tags="""'{"a": 1, "b": 2}'""")
    filters = {"queue": "q", "tags": {"a": 1}}
    return Change("cancel_tasks", options=filters, details={**filters, "count": 2})


def erase_tasks(scene: Scene) -> Change:
    for _ in range(2):
        scene.task(state="'completed'", completed_at="now()", tags="""'{"customer": 42}'""")
    filters = {"tags": {"customer": 42}}
    return Change("erase_tasks", options=filters, details={**filters, "count": 2})


def replay_chosen(scene: Scene) -> Change:
    ids = [scene.dead_letter(), scene.dead_letter()]
    return Change("replay_chosen", (ids,), details={"count": 2})


def replay_dead_letters(scene: Scene) -> Change:
    ids = [scene.dead_letter(), scene.dead_letter()]
    return Change("replay_dead_letters", options={"ids": ids}, details={"ids": ids, "count": 2})


def purge_dead_letters(scene: Scene) -> Change:
    scene.dead_letter()
    return Change("purge_dead_letters", options={"error": "valueerror"}, details={"error": "valueerror", "count": 1})


def save_search(_: Scene) -> Change:
    return Change("save_search", ("late", "queue:mail"), target="late", details={"search": "queue:mail"})


def delete_search(scene: Scene) -> Change:
    scene.client.save_search("late", "queue:mail")
    return Change("delete_search", ("late",), target="late")


def pause(_: Scene) -> Change:
    return Change("pause", options={"queue": "mail"}, target="queue:mail")


def resume(scene: Scene) -> Change:
    scene.client.pause(name="send")
    return Change("resume", options={"name": "send"}, target="name:send")


def drain_worker(scene: Scene) -> Change:
    worker = f"w-{uuid4()}"
    scene.db.execute("INSERT INTO workers (id) VALUES (%s)", [worker])
    return Change("drain_worker", (worker,), target=worker)


def change_settings(_: Scene) -> Change:
    changes = {"promote_to_high_after_seconds": 300}
    return Change("change_settings", options=changes, details=changes)


def create_schedule(_: Scene) -> Change:
    options = {"name": "nightly", "registered_elsewhere": True}
    return Change("create_schedule", ("work", "@daily"), options, target="nightly", details={"cron": ["@daily"]})


def change_schedule(scene: Scene) -> Change:
    name = scene.schedule()
    return Change("change_schedule", (name, "@weekly"), target=name, details={"cron": ["@weekly"]})


def pause_schedule(scene: Scene) -> Change:
    name = scene.schedule()
    return Change("pause_schedule", (name, "not today"), target=name, details={"note": "not today"})


def resume_schedule(scene: Scene) -> Change:
    name = scene.schedule()
    scene.client.pause_schedule(name)
    return Change("resume_schedule", (name,), target=name)


def run_schedule(scene: Scene) -> Change:
    name = scene.schedule()
    return Change("run_schedule", (name,), target=name, details={"count": 1})


def backfill_schedule(scene: Scene) -> Change:
    name = scene.schedule()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    options = {"start": start, "end": start + timedelta(hours=2)}
    return Change("backfill_schedule", (name,), options, target=name, details={"count": 3})


def delete_schedule(scene: Scene) -> Change:
    name = scene.schedule()
    return Change("delete_schedule", (name,), target=name)


def sync_schedules(scene: Scene) -> Change:
    scene.schedule()
    scene.db.execute("UPDATE schedules SET source = 'code', module = 'm', deployed_at = '1960-01-01'")
    return Change("sync_schedules", (), {"retire_others": True}, details={"count": 1})


def create_token(_: Scene) -> Change:
    granted = {"roles": ["worker"], "queues": ["mail"]}
    return Change("create_token", ("ci",), granted, details={"name": "ci", **granted})


def revoke_token(scene: Scene) -> Change:
    token = scene.client.create_token("old", roles="viewer").info
    details = {"name": "old", "prefix": token.prefix}
    return Change("revoke_token", (token.prefix,), target=str(token.id), details=details)


def bound_queue(_: Scene) -> Change:
    details = {"max_wait": 60.0}
    return Change("bound_queue", ("mail",), details, target="queue:mail", details=details)


def unbound_queue(scene: Scene) -> Change:
    scene.client.bound_queue("mail", max_pending=5)
    return Change("bound_queue", ("mail",), target="queue:mail")


def set_limit(_: Scene) -> Change:
    details = {"max_running": 5}
    return Change("set_limit", ("queue:mail",), details, target="limit:queue:mail", details=details)


def remove_limit(scene: Scene) -> Change:
    scene.client.set_limit("stripe", max_running=5)
    return Change("remove_limit", ("stripe",), target="limit:stripe")


def reset_limit(scene: Scene) -> Change:
    scene.db.execute("INSERT INTO limits (name, declared) VALUES ('reset', '{\"max_running\": 5}')")
    return Change("reset_limit", ("reset",), target="limit:reset")


def _breaker(scene: Scene) -> str:
    name = f"breaker {uuid4()}"
    scene.client.set_breaker(name)
    return name


def set_breaker(_: Scene) -> Change:
    name, details = f"breaker {uuid4()}", {"pause": 5.0, "probes": 3}
    return Change("set_breaker", (name,), {"pause": 5.0}, target=f"breaker:{name}", details=details)


def remove_breaker(scene: Scene) -> Change:
    name = _breaker(scene)
    return Change("remove_breaker", (name,), target=f"breaker:{name}")


def reset_breaker(scene: Scene) -> Change:
    name = _breaker(scene)
    declared = '{"failures": 0.5, "at_least": 1, "within": 1, "pause": 1, "probes": 1}'
    scene.db.execute("UPDATE breakers SET declared = %s WHERE name = %s", [declared, name])
    return Change("reset_breaker", (name,), target=f"breaker:{name}")


def open_breaker(scene: Scene) -> Change:
    name = _breaker(scene)
    return Change("open_breaker", (name,), target=f"breaker:{name}")


def close_breaker(scene: Scene) -> Change:
    name = _breaker(scene)
    scene.client.open_breaker(name)
    return Change("close_breaker", (name,), target=f"breaker:{name}")


def dead_name(scene: Scene) -> str:
    """A dead letter of a new name: the same dead letters are replayed by one job at a time."""
    name = f"work-{uuid4()}"
    scene.task(state="'dead_letter'", completed_at="now() - interval '1 s'", name=f"'{name}'")
    return name


def start_replay(scene: Scene) -> Change:
    options = {"name": dead_name(scene), "per_minute": 6.0}
    return Change("start_replay", (), options, details={**options, "canary": True, "count": 1})


def replay_of(scene: Scene) -> str:
    return str(scene.client.start_replay(name=dead_name(scene)).id)


def pause_replay(scene: Scene) -> Change:
    id_ = replay_of(scene)
    return Change("pause_replay", (id_,), target=id_)


def resume_replay(scene: Scene) -> Change:
    id_ = replay_of(scene)
    scene.client.pause_replay(id_)
    return Change("resume_replay", (id_,), {"per_minute": 3.0}, target=id_, details={"per_minute": 3.0})


def stop_replay(scene: Scene) -> Change:
    id_ = replay_of(scene)
    return Change("stop_replay", (id_,), target=id_)


CHANGES: dict[Action, Callable[[Scene], Change]] = {
    Action.CANCEL_TASK: cancel_task,
    Action.REPLAY_TASK: replay_task,
    Action.RUN_TASK_NOW: run_task_now,
    Action.EDIT_TASK: edit_task,
    Action.SIGNAL_TASK: signal_on_record,
    Action.ANSWER_APPROVAL: approve,
    Action.CANCEL_FLOW: cancel_flow,
    Action.REPLAY_FLOW: replay_flow,
    Action.CANCEL_TASKS: cancel_tasks,
    Action.ERASE_TASKS: erase_tasks,
    Action.REPLAY_TASKS: replay_chosen,
    Action.REPLAY_DEAD_LETTERS: replay_dead_letters,
    Action.PURGE_DEAD_LETTERS: purge_dead_letters,
    Action.SAVE_SEARCH: save_search,
    Action.DELETE_SEARCH: delete_search,
    Action.START_REPLAY: start_replay,
    Action.PAUSE_REPLAY: pause_replay,
    Action.RESUME_REPLAY: resume_replay,
    Action.STOP_REPLAY: stop_replay,
    Action.PAUSE: pause,
    Action.RESUME: resume,
    Action.DRAIN_WORKER: drain_worker,
    Action.BOUND_QUEUE: bound_queue,
    Action.UNBOUND_QUEUE: unbound_queue,
    Action.SET_LIMIT: set_limit,
    Action.REMOVE_LIMIT: remove_limit,
    Action.RESET_LIMIT: reset_limit,
    Action.SET_BREAKER: set_breaker,
    Action.REMOVE_BREAKER: remove_breaker,
    Action.RESET_BREAKER: reset_breaker,
    Action.OPEN_BREAKER: open_breaker,
    Action.CLOSE_BREAKER: close_breaker,
    Action.CHANGE_SETTINGS: change_settings,
    Action.CREATE_SCHEDULE: create_schedule,
    Action.CHANGE_SCHEDULE: change_schedule,
    Action.PAUSE_SCHEDULE: pause_schedule,
    Action.RESUME_SCHEDULE: resume_schedule,
    Action.RUN_SCHEDULE: run_schedule,
    Action.BACKFILL_SCHEDULE: backfill_schedule,
    Action.DELETE_SCHEDULE: delete_schedule,
    Action.RETIRE_SCHEDULES: sync_schedules,
    Action.CREATE_TOKEN: create_token,
    Action.REVOKE_TOKEN: revoke_token,
}
ANEW_EACH_TIME = {
    *(Action.REPLAY_TASK, Action.CREATE_TOKEN, Action.RUN_SCHEDULE),
    # These refuse to be done again.
    *(Action.CREATE_SCHEDULE, Action.DELETE_SCHEDULE, Action.ANSWER_APPROVAL, Action.RUN_TASK_NOW),
    *(Action.START_REPLAY, Action.STOP_REPLAY),
}
