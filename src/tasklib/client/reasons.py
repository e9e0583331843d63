"""Why a task is not running, in sentences: from what the tables say to what a person can do about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tasklib.client.fitting_workers import Fleet, ids_of
from tasklib.client.limit_reasons import behind
from tasklib.client.reason import NAMED, Reason, at, some
from tasklib.config import Config
from tasklib.formatting import count, duration, json_text, last_line, shell_option
from tasklib.states import TaskState
from tasklib.steps import APPROVAL, CHILDREN
from tasklib.store.explain import Position, Situation
from tasklib.store.fleet import WorkerInfo
from tasklib.store.limits import LimitOnTask


def reasons_of(
    task: Situation,
    workers: Sequence[WorkerInfo],
    position: Position | None,
    config: Config,
    limits: Sequence[LimitOnTask] = (),
) -> tuple[Reason, ...]:
    """Every reason that holds, the most decisive first."""
    match TaskState(task.state):
        case TaskState.RUNNING:
            return tuple(_running(task, workers, config))
        case TaskState.PENDING | TaskState.FAILED:
            return tuple(_waiting(task, workers, position, config, limits))
        case _:
            return (_finished(task),)


def _waiting(
    task: Situation,
    workers: Sequence[WorkerInfo],
    position: Position | None,
    config: Config,
    limits: Sequence[LimitOnTask],
) -> Iterator[Reason]:
    blockers = [*_gate(task), *_time(task), *_pauses(task), *_breaker(task), *behind(limits, task.now)]
    fleet = Fleet.of(workers, config)
    blocker = fleet.blocker(task)
    if blocker is not None:
        blockers.append(blocker)
    yield from blockers
    if not blockers:
        yield from _in_line(task, fleet.fitting(task), position, config)


def _gate(task: Situation) -> Iterator[Reason]:
    if task.gate is None:
        return
    gate = task.gate
    wanted = _wanted(gate["policy"])
    open_ = "" if gate["sealed"] else " A task that still runs may add more."
    yield Reason(
        "waits_for_gate",
        f"It waits at a gate of the flow {gate['flow']!r} {wanted}: of {count(gate['expected'], 'task')} of "
        f"{some(gate['nodes'])}, {gate['completed']} completed and {gate['failed']} failed or were cancelled.{open_}",
        f"See the flow: tasklib flow show {gate['flow_id']}",
        dict(gate),
    )


def _wanted(policy: Mapping[str, Any]) -> str:
    match policy:
        case {"kind": "all", "optional": [*optional]}:
            return f"until all have completed, of which {some(optional)} may fail"
        case {"kind": "all"}:
            return "until all have completed"
        case {"kind": "settled"}:
            return "until all have ended"
        case {"kind": "at_least", "share": share}:
            return f"until at least {share:.4g} of them have completed"
        case {"kind": "at_least", "count": number}:
            return f"until at least {number} of them have completed"
    return "until enough of them have completed"


def _time(task: Situation) -> Iterator[Reason]:
    if task.due <= task.now:
        return
    details = {"due": task.due.isoformat(), "seconds": (task.due - task.now).total_seconds()}
    if task.state == TaskState.FAILED:
        used = f"{task.retry_count} of {count(task.max_retries, 'retry', 'retries')}"
        yield Reason(
            "retry_scheduled",
            f"It waits for retry {used}, which is due at {at(task.due, task.now)}. "
            f"The last attempt failed: {last_line(task.error) or 'without a message'}",
            "No action needed, unless the error has to be fixed first.",
            {**details, "error": last_line(task.error), "retry": task.retry_count, "max_retries": task.max_retries},
        )
    elif task.awaited_signals is not None:
        yield _suspended(task, details)
    else:
        yield Reason("not_due", f"It is not due before {at(task.due, task.now)}.", "", details)


def _suspended(task: Situation, details: Mapping[str, Any]) -> Reason:
    """What a durable task waits for."""
    so_far = f" It has {count(task.steps, 'step')} on record."
    until = "" if task.due.year == 9999 else f" until {at(task.due, task.now)}"
    details = {**details, "signals": task.awaited_signals, "steps": task.steps}
    if not task.awaited_signals:
        return Reason("sleeping", f"It sleeps{until}.{so_far}", "", details)
    if CHILDREN in task.awaited_signals:
        flow = f"tasklib flow list shows the flow {task.name}.gather"
        return Reason("waits_for_children", f"It waits for the tasks that it gathers{until}.{so_far}", flow, details)
    asked = [name.removeprefix(APPROVAL) for name in task.awaited_signals if name.startswith(APPROVAL)]
    if asked:
        names = " and ".join(repr(name) for name in asked[:NAMED])
        hint = f"Answer it: tasklib approve {task.id} or tasklib reject {task.id}"
        what = "the approval" if len(asked) == 1 else "the approvals"
        return Reason("waits_for_approval", f"It waits for {what} {names}{until}.{so_far}", hint, details)
    names = " or ".join(repr(name) for name in task.awaited_signals[:NAMED])
    what = "the signal" if len(task.awaited_signals) == 1 else "one of the signals"
    return Reason(
        "waits_for_signal",
        f"It waits for {what} {names}{until}.{so_far}",
        f"Send it: tasklib signal {task.id} {shlex.quote(task.awaited_signals[0])}",
        details,
    )


def _pauses(task: Situation) -> Iterator[Reason]:
    for kind, value, since in (("queue", task.queue, task.queue_paused_at), ("name", task.name, task.name_paused_at)):
        if since is not None:
            what = f"Its queue {value!r} is" if kind == "queue" else f"Tasks named {value!r} are"
            yield Reason(
                f"{kind}_paused",
                f"{what} paused since {at(since, task.now)}.",
                f"Resume it: tasklib resume {shell_option(f'--{kind}', value)}",
                {kind: value, "since": since.isoformat()},
            )


def _breaker(task: Situation) -> Iterator[Reason]:
    found = task.breaker
    if found is None or (found["state"] == "probing" and found["is_probe"]):
        return
    why = f" after {found['failures']} of {found['attempts']} attempts failed" if found["attempts"] else ""
    what = f"The circuit breaker of {task.name!r} is {found['state']}{why}"
    close = f"Close it now: tasklib breaker close {shlex.quote(task.name)}"
    details = {key: value for key, value in found.items() if key != "is_probe"}
    if found["state"] == "probing":
        yield Reason("breaker_probing", f"{what}: other tasks of this name run first.", close, details)
    elif found["until"] is None:
        yield Reason("breaker_open", f"{what}, until an operator closes it. It uses no retry.", close, details)
    else:
        until = datetime.fromisoformat(found["until"])
        details["seconds"] = (until - task.now).total_seconds()
        yield Reason("breaker_open", f"{what}, until {at(until, task.now)}. It uses no retry.", close, details)


def _in_line(
    task: Situation, fitting: Sequence[WorkerInfo], position: Position | None, config: Config
) -> Iterator[Reason]:
    slots, taken = sum(w.capacity for w in fitting), sum(w.current_load for w in fitting)
    details = {"workers": ids_of(fitting), "slots": slots, "taken": taken}
    if taken >= slots:
        whose = (
            f"the {len(fitting)} workers that fit" if len(fitting) > 1 else f"the only fitting worker, {fitting[0].id},"
        )
        yield Reason(
            "workers_full",
            f"All slots are taken: by the last heartbeats, {whose} ran {taken} of at most {count(slots, 'task')}.",
            "Wait, add workers, or raise their --concurrency",
            details,
        )
    if position is not None and position.ahead:
        tasks = f"{'At least ' if position.is_capped else ''}{count(position.ahead, 'task')}"
        yield Reason(
            "in_line",
            f"{tasks} of its queue {task.queue!r} {'goes' if position.ahead == 1 else 'go'} before it. "
            f"It counts as priority {task.effective_priority}.",
            "A higher priority goes first; waiting raises the effective priority.",
            {"ahead": position.ahead, "is_capped": position.is_capped, "effective_priority": task.effective_priority},
        )
    elif taken < slots:
        yield Reason(
            "next",
            f"It is next, since {at(task.due, task.now)}, and {count(slots - taken, 'slot')} "
            f"{'is' if slots - taken == 1 else 'are'} free: a worker claims it at its next poll.",
            f"If this doesn't change within {duration(config.poll_interval_seconds * 2)}, look for an open transaction "
            "that has locked its row.",
            details,
        )


def _running(task: Situation, workers: Sequence[WorkerInfo], config: Config) -> Iterator[Reason]:
    assert task.started_at is not None
    assert task.locked_until is not None
    worker = next((w for w in workers if w.id == task.worker_id), None)
    where = f" ({worker.host}, process {worker.pid})" if worker and worker.host else ""
    progress = f" Progress: {json_text(task.progress)}." if task.progress is not None else ""
    yield Reason(
        "running",
        f"It is running, attempt {task.retry_count + task.crash_count + 1}, since {at(task.started_at, task.now)} "
        f"on {task.worker_id}{where}. Its lease ends {at(task.locked_until, task.now)}.{progress}",
        "",
        {
            "worker": task.worker_id,
            "since": task.started_at.isoformat(),
            "locked_until": task.locked_until.isoformat(),
            "progress": task.progress,
        },
    )
    yield from _trouble(task, worker, config)


def _trouble(task: Situation, worker: WorkerInfo | None, config: Config) -> Iterator[Reason]:
    """Problems of a running task."""
    assert task.started_at is not None
    assert task.locked_until is not None
    if task.cancel_requested_at is not None:
        asked = at(task.cancel_requested_at, task.now)
        hint = "Its worker stops it; a function in a thread can't be stopped and runs to its end."
        yield Reason("cancel_requested", f"A cancel was requested at {asked}.", hint, {"since": asked})
    if worker is not None and worker.status == "dead":
        silent = duration(worker.seconds_since_heartbeat)
        yield Reason(
            "worker_silent",
            f"Its worker has sent no heartbeat for {silent}.",
            "The leader releases it to other workers once its worker counts as dead.",
            {"seconds": worker.seconds_since_heartbeat},
        )
    if task.locked_until < task.now:
        hint = "The leader releases it at its next sweep; that needs one live worker or server."
        yield Reason("lease_ended", "Its lease has ended: its worker is lost.", hint)
    if task.timeout_seconds is not None:
        over = task.now - task.started_at - timedelta(seconds=task.timeout_seconds)
        if over > timedelta(0):
            yield Reason(
                "past_timeout",
                f"It is {duration(over.total_seconds())} past its timeout of {duration(task.timeout_seconds)}.",
                f"The leader fails it {duration(config.overdue_grace_seconds)} past the timeout if its worker doesn't.",
                {"timeout_seconds": task.timeout_seconds, "over_seconds": over.total_seconds()},
            )


def _finished(task: Situation) -> Reason:
    assert task.completed_at is not None
    ended = at(task.completed_at, task.now)
    took = f", after {duration((task.completed_at - task.started_at).total_seconds())}" if task.started_at else ""
    details = {"at": task.completed_at.isoformat()}
    again = f"Run it again: tasklib replay {task.id}"
    match TaskState(task.state):
        case TaskState.COMPLETED:
            result = task.result if task.result is not None else "null"
            return Reason(
                "completed", f"It completed at {ended}{took}. Its result: {result}", "", {**details, "result": result}
            )
        case TaskState.CANCELLED:
            return Reason("cancelled", f"It was cancelled at {ended}.", again, details)
    last = task.last_ended or ""
    attempts = int(last) if last.isdecimal() and len(last) < 10 else task.retry_count + 1
    error = last_line(task.error) or "without a message"
    return Reason(
        "dead_letter",
        f"It became a dead letter at {ended}, after {count(attempts, 'attempt')}: {error}",
        f"See the traceback: tasklib show {task.id}. {again}",
        {**details, "error": error, "attempts": attempts},
    )
