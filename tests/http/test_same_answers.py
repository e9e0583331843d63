"""Over HTTP every call says what it says with a database: one table of calls, both clients, equal answers."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from tasklib import AsyncClient, Schedule, task
from tasklib.http import AsyncHttpClient
from tasklib.store.filters import DeadLetterFilter, TaskFilter
from tasklib.tasks import registry
from tasklib.tasks.ids import new_id
from tests.http.comparing import UNKNOWN, Comparable, failure, timeless
from tests.server.api import Api

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
NOT_BEFORE = datetime(2020, 1, 1, tzinfo=UTC)


class Point(BaseModel):
    x: int
    at: datetime


@pytest.fixture(autouse=True)
def functions() -> dict[str, Any]:
    @task(name="http.greet", queue="hello", tags={"from": "@task"}, max_retries=7)
    def greet(name: str, point: Point | None = None) -> Any: ...

    @task(name="http.shout", priority="high")
    def shout(name: str = "x") -> None: ...

    @task(name="http.plain")
    def plain(name: str) -> None: ...

    return {"greet": greet, "shout": shout, "plain": plain}


class Scene:
    """A client, and what a worker would have done."""

    def __init__(self, client: Any, api: Api, functions: dict[str, Any]) -> None:
        self.client, self.api = client, api
        self.greet, self.shout, self.plain = functions["greet"], functions["shout"], functions["plain"]

    async def task(self, state: str = "pending", **ended: Any) -> UUID:
        task_id: UUID = await self.client.submit_task(self.greet, name="a")
        if state == "running":
            self.api.begin(task_id)
        elif state != "pending":
            self.api.end(task_id, state, **ended)
        return task_id


TABLE: dict[str, Callable[[Scene], Awaitable[Any]]] = {}


def row(function: Callable[[Scene], Awaitable[Any]]) -> Callable[[Scene], Awaitable[Any]]:
    TABLE[function.__name__] = function
    return function


@row
async def submit_and_look(s: Scene) -> Any:
    at = datetime.now(UTC) + timedelta(hours=1)
    options: dict[str, Any] = {"priority": "low", "queue": "other", "tags": {"k": [1, {"é": None}]}, "max_retries": 0}
    ids = [
        await s.client.submit_task(s.greet, name="a"),
        await s.client.submit_task(s.greet, name="a\u2028\U0001f600", point={"x": 1, "at": NOT_BEFORE}, **options),
        await s.client.submit_task("http.greet", kwargs={"name": "a"}, timeout_seconds=5, trace_context=TRACE),
        await s.client.submit_task("other.program", n=1, registered_elsewhere=True, required_capabilities=["b", "a"]),
        await s.client.submit_task(s.shout, scheduled_at=at, idempotency_key="k"),
        await s.client.submit_task(s.shout, delay_seconds=1.5, idempotency_key="k"),
        await s.client.submit(s.greet.options(priority=50).bind("b")),
    ]
    return ids, [await s.client.get_task(str(i)) for i in ids], await s.client.get_task(UNKNOWN)


@row
async def merge_submissions(s: Scene) -> Any:
    unique = s.greet.options(unique="pending", merge_key=["name"])
    strict = s.greet.options(unique="unfinished", on_duplicate="raise")
    first = await s.client.submit(strict.bind("b"))
    return [
        first,
        [await s.client.submit(unique.bind("a")) for _ in range(2)],
        await s.client.submit_each([unique.bind("a"), unique.bind("c"), s.greet.bind("a")]),
        await s.client.submit_task(s.shout, throttle=60),
        await failure(s.client.submit(strict.bind("b"))),
        await failure(s.client.submit(unique.options(idempotency_key="k").bind("a"))),
    ]


@row
async def submit_many(s: Scene) -> Any:
    alike = await s.client.submit_many(s.greet, [{"name": str(n)} for n in range(5)], priority=3)
    mixed = await s.client.submit_many([s.greet.bind("a"), s.shout.options(tags={"t": 1}).bind()], queue="q")
    keyed = [s.shout.options(idempotency_key=str(n)).bind() for n in (1, 2, 1)]
    each = [await s.client.submit_each([*keyed, s.greet.bind("x")]) for _ in range(2)]
    nothing = [await s.client.submit_many(s.greet, []), await s.client.submit_each([])]
    return alike, mixed, each, nothing, await s.client.list_tasks()


@row
async def ids_of_ones_own(s: Scene) -> Any:
    first, second = new_id(), new_id()
    items = [s.greet.bind("a"), s.shout.options(idempotency_key="k").bind()]
    return [
        await s.client.submit_each(items, ids=[first, second]),
        await s.client.submit_each(items, ids=[first, second]),
        await s.client.submit_each(items[:1], ids=[first]),
        await s.client.submit_each(items[1:], ids=[new_id()]),
        await failure(s.client.submit_each([s.shout.options(idempotency_key="l").bind()], ids=[first])),
        await failure(s.client.submit_each([s.shout.bind()], ids=[first])),
        await failure(s.client.submit_each([s.shout.bind(), s.shout.bind()], ids=[new_id(), first])),
        await failure(s.client.submit_each(items, ids=[first, first])),
        await failure(s.client.submit_each(items, ids=[first])),
        len(await s.client.list_tasks()),
    ]


@row
async def refused_submissions(s: Scene) -> Any:
    return [
        await failure(s.client.submit_task("http.gret", name="a")),
        await failure(s.client.submit_task(s.greet)),
        await failure(s.client.submit_task(s.greet, name="a", point={"x": "?", "at": NOT_BEFORE})),
        await failure(s.client.submit_task(s.greet, "a")),
        await failure(s.client.submit_task(s.greet, name="a", priority="urgent")),
        await failure(s.client.submit_task(s.greet, name="a", priority=101)),
        await failure(s.client.submit_task(s.greet, name="a", delay_seconds=-1)),
        await failure(s.client.submit_task(s.greet, name="a", scheduled_at=datetime(2030, 1, 1))),
        await failure(s.client.submit_task(s.greet, name="a", tags={"f": float("nan")})),
        await failure(s.client.submit_task("other", registered_elsewhere=True, x=float("inf"))),
        await failure(s.client.submit_many(s.greet, [{"name": "a"}, {"nam": "b"}])),
        await failure(s.client.submit_many(s.greet, {"name": "a"})),
        len(await s.client.list_tasks()),
    ]


@row
async def listing(s: Scene) -> Any:
    for n in range(4):
        await s.client.submit_task(s.greet, name=str(n), tags={"n": n, "odd": bool(n % 2), "s": "1"}, queue=f"q{n % 2}")
    running = await s.task("running")
    done = await s.task("completed", value={"a": [1]})
    every = await s.client.list_tasks()
    a_moment = every[2].created_at
    return [
        every,
        await s.client.list_tasks(limit=2),
        await s.client.list_tasks(limit=2, after=every[1]),
        await s.client.list_tasks(after=str(every[4].id)),
        await s.client.list_tasks(state="running"),
        await s.client.list_tasks(state=iter(["running", "completed"])),
        await s.client.list_tasks(state=[]),
        await s.client.list_tasks(name="http.greet", queue="q1"),
        await s.client.list_tasks(tags={"odd": True, "s": "1"}),
        await s.client.list_tasks(tags={"n": 2}),
        await s.client.list_tasks(worker="w1"),
        await s.client.list_tasks(ids=[every[0].id, str(every[2].id), UNKNOWN]),
        await s.client.list_tasks(TaskFilter(name="http.greet", tags={"n": 2}), queue="q1"),
        await failure(s.client.list_tasks(ids=["?"])),
        len(await s.client.list_tasks(created_after=a_moment)),
        len(await s.client.list_tasks(created_before=a_moment)),
        await failure(s.client.list_tasks(limit=0)),
        await failure(s.client.list_tasks(state="gone")),
        await failure(s.client.list_tasks(created_after=datetime(2030, 1, 1))),
        await failure(s.client.list_tasks(after="?")),
        [running, done],
    ]


@row
async def waiting(s: Scene) -> Any:
    traceback = "Traceback (most recent call last):\n  ...\nValueError: no"
    return [
        await s.client.wait_for(await s.task("completed", value={"x": [1, None]}), timeout=10),
        await s.client.wait_for(await s.task("completed")),
        await failure(s.client.wait_for(await s.task("dead_letter", error=traceback))),
        await failure(s.client.wait_for(await s.task("cancelled"))),
        await failure(s.client.wait_for(await s.task(), timeout=0.05)),
        await failure(s.client.wait_for(await s.task("running"), timeout=0)),
        await failure(s.client.wait_for(UNKNOWN)),
        await failure(s.client.wait_for("?")),
        await failure(s.client.wait_for(UNKNOWN, timeout=-1)),
    ]


@row
async def cancel_and_replay(s: Scene) -> Any:
    waits, runs, done = await s.task(), await s.task("running"), await s.task("completed")
    return [
        [await s.client.cancel_task(i) for i in (waits, str(runs), done, waits, runs)],
        await failure(s.client.cancel_task(UNKNOWN)),
        await s.client.replay_task(done),
        await s.client.replay_task(waits),
        await failure(s.client.replay_task(done)),
        await failure(s.client.replay_task(UNKNOWN)),
        await failure(s.client.run_task_now(waits)),
        await failure(s.client.run_task_now(UNKNOWN)),
        await s.client.edit_task(waits, queue="slow", priority=7, tags={"a": 1}, max_retries=1, kwargs={"name": "b"}),
        await failure(s.client.edit_task(waits, priority=200)),
        await failure(s.client.edit_task(waits, kwargs={"x": object()})),
        await failure(s.client.edit_task(runs, queue="slow")),
        await failure(s.client.edit_task(UNKNOWN, queue="slow")),
        await failure(s.client.edit_task(UNKNOWN, kwargs={})),
        [await s.client.get_task(i) for i in (waits, runs, done)],
    ]


@row
async def signals(s: Scene) -> Any:
    waits, done = await s.task(), await s.task("completed")
    return [
        await s.client.signal(waits, "approved", {"by": "Ada"}),
        await s.client.signal(waits, "approved", key="once"),
        await s.client.signal(waits, "approved", key="once"),
        await s.client.signal(done, "approved"),
        await failure(s.client.signal(UNKNOWN, "approved")),
        await failure(s.client.signal(waits, "")),
    ]


@row
async def explaining(s: Scene) -> Any:
    first, second, done = await s.task(), await s.task(), await s.task("completed")
    await s.client.pause(queue="hello")
    paused = str(await s.client.explain_task(first))
    await s.client.resume(queue="hello")
    return [
        re.sub(r"\d+(\.\d+)? m?s", "some time", paused),
        [await s.client.queue_position(i) for i in (first, second, done)],
        [reason.code for i in (first, done) for reason in (await s.client.explain_task(i)).reasons],
        (await s.client.explain_task(second)).position,
        await failure(s.client.explain_task(UNKNOWN)),
        await failure(s.client.queue_position(UNKNOWN)),
    ]


@row
async def fleet(s: Scene) -> Any:
    s.api.db.execute(
        "INSERT INTO workers (id, reported_status, names, capabilities, capacity, version, host, pid) "
        "VALUES ('w/1 é', 'active', '{a}', '{gpu}', 5, '0.1', 'h', 7)"
    )
    before = await s.client.workers()
    return [
        [(w.id, w.status, w.names, w.capabilities, w.capacity, w.queues, w.drain_requested_at) for w in before],
        [await s.client.drain_worker("w/1 é") for _ in range(2)],
        [w.drain_requested_at is not None for w in await s.client.workers()],
        await failure(s.client.drain_worker("w/1 e")),
        await failure(s.client.drain_worker(7)),
    ]


@row
async def pauses(s: Scene) -> Any:
    return [
        [await s.client.pause(queue="q"), await s.client.pause(queue="q"), await s.client.pause(name="n é&=")],
        await s.client.pauses(),
        [await s.client.resume(queue="q"), await s.client.resume(queue="q"), await s.client.resume(name="n é&=")],
        await s.client.pauses(),
        await failure(s.client.pause()),
        await failure(s.client.resume(queue="a", name="b")),
    ]


@row
async def replays(s: Scene) -> Any:
    s.api.db.execute("DELETE FROM replays")
    s.api.db.execute("INSERT INTO tasks (name, state, completed_at) VALUES ('again', 'dead_letter', now())")
    begun = await s.client.start_replay(name="again", per_minute=6)
    found = await s.client.replays()
    return [
        [(r.id == begun.id, r.status, r.conditions, r.per_minute, r.canary, r.expected, r.waiting) for r in found],
        [type(value) for value in (begun.id, begun.created_at, begun.ended_at)],
        await s.client.replays(fingerprint="abcdef"),
        (await s.client.pause_replay(begun.id)).status,
        (await s.client.resume_replay(str(begun.id), per_minute=3)).per_minute,
        (await s.client.stop_replay(begun.id)).status,
        (await s.client.get_replay(begun.id)).ended_at is not None,
        await failure(s.client.get_replay(UNKNOWN)),
        await failure(s.client.start_replay(name="nothing")),
        await failure(s.client.start_replay()),
        await failure(s.client.resume_replay(begun.id, per_minute=0)),
    ]


@row
async def limits(s: Scene) -> Any:
    s.api.db.execute("DELETE FROM limits")
    return [
        await s.client.set_limit("queue:a é&=", max_running=0),
        await s.client.set_limit("stripe", rate=1.5, per=60, burst=7),
        [await s.client.set_limit("queue:ledger", serial=True) for _ in range(2)],
        await s.client.set_limit("share", max_running=2, weight=3, may_burst=True),
        [(i.name, i.max_running, i.rate, i.per, i.burst, i.serial, i.weight) for i in await s.client.limits()],
        [type(i.changed_at) for i in await s.client.limits()],
        [await s.client.remove_limit("queue:a é&=") for _ in range(2)],
        await s.client.reset_limit("stripe"),
        await failure(s.client.set_limit("stripe")),
        await failure(s.client.set_limit("queue", max_running=1)),
        await failure(s.client.set_limit("a\x01", max_running=1)),
        await failure(s.client.set_limit("stripe", rate=-1)),
    ]


@row
async def bounds(s: Scene) -> Any:
    s.api.db.execute("DELETE FROM backpressure")
    return [
        [await s.client.bound_queue("a é&=", max_wait=1.5) for _ in "12"],
        await s.client.bound_name("send é&=", max_wait=60, max_pending=7),
        [(b.queue, b.max_wait, b.max_pending, type(b.changed_at)) for b in await s.client.queue_bounds()],
        [(b.name, b.max_wait, b.max_pending, type(b.changed_at)) for b in await s.client.name_bounds()],
        [await s.client.bound_queue("a é&=") for _ in "12"],
        [await s.client.bound_name("send é&=") for _ in "12"],
        await s.client.queue_bounds(),
        await failure(s.client.bound_queue("a", max_wait=-1)),
        await failure(s.client.bound_queue("", max_wait=1)),
        await failure(s.client.bound_name("", max_wait=1)),
        await failure(s.client.bound_name("a", max_pending=True)),
    ]


@row
async def breakers(s: Scene) -> Any:
    s.api.db.execute("DELETE FROM breakers")
    return [
        [await s.client.set_breaker("a é&=", failures=0.25, at_least=3, within=5, pause=6.5, probes=2) for _ in "12"],
        [await s.client.open_breaker("a é&=", seconds) for seconds in (90.5, None, None)],
        [
            (i.name, i.state, i.until, i.opened, i.failures, i.at_least, i.within, i.pause, i.probes, i.source)
            for i in await s.client.breakers()
        ],
        [type(i.since) for i in await s.client.breakers()],
        [await s.client.close_breaker("a é&=") for _ in "12"],
        await s.client.reset_breaker("a é&="),
        [await s.client.remove_breaker("a é&=") for _ in "12"],
        await s.client.open_breaker("a é&="),
        await failure(s.client.set_breaker("a", failures=2)),
        await failure(s.client.set_breaker("")),
        await failure(s.client.open_breaker("a", -1)),
    ]


@row
async def saved_searches(s: Scene) -> Any:
    s.api.db.execute("DELETE FROM saved_searches")
    return [
        [await s.client.save_search("late é&=", "queue:mail due:<1h") for _ in range(2)],
        await s.client.save_search("late é&=", "queue:mail"),
        await s.client.save_search("dead", "state:dead_letter"),
        [(saved.name, saved.search, type(saved.saved_at)) for saved in await s.client.saved_searches()],
        [await s.client.delete_search("late é&=") for _ in range(2)],
        await failure(s.client.save_search("", "state:failed")),
        await failure(s.client.save_search("x", "state:fialed")),
        await failure(s.client.delete_search("n" * 101)),
    ]


@row
async def settings(s: Scene) -> Any:
    return [
        await s.client.settings(),
        await s.client.change_settings(promote_to_medium_after_seconds=5),
        await s.client.change_settings(promote_to_high_after_seconds=7.5),
        await s.client.change_settings(),
        await failure(s.client.change_settings(promote_to_high_after_seconds=-1)),
        await s.client.change_settings(promote_to_medium_after_seconds=None, promote_to_high_after_seconds=None),
    ]


@row
async def cancel_by_filter(s: Scene) -> Any:
    for n in range(3):
        await s.client.submit_task(s.greet, name="a", tags={"n": n})
    await s.task("running")
    return [
        await s.client.cancel_tasks(name="http.greet", dry_run=True),
        await s.client.cancel_tasks(tags={"n": 1}, created_after=NOT_BEFORE),
        await s.client.cancel_tasks(state=[]),
        await s.client.cancel_tasks(worker="w1"),
        await s.client.cancel_tasks(ids=[UNKNOWN]),
        await s.client.cancel_tasks(TaskFilter(state="pending"), queue="hello"),
        await s.client.cancel_tasks(everything=True),
        await s.client.erase_tasks(tags={"n": 1}, dry_run=True),
        await s.client.erase_tasks(name="http.greet", state="cancelled"),
        await s.client.erase_tasks(state=[]),
        await failure(s.client.erase_tasks()),
        await failure(s.client.erase_tasks(state="pending")),
        await failure(s.client.cancel_tasks()),
        await failure(s.client.cancel_tasks(state="completed")),
    ]


async def failures_of(s: Scene) -> Any:
    report = await s.client.failures(since=timedelta(days=3650), name="http.greet", values=2)
    # The range ends when the question is asked.
    return [report.attempts, report.fields, [replace(cause, counts=(sum(cause.counts),)) for cause in report.causes]]


@row
async def dead_letters(s: Scene) -> Any:
    for n in range(5):
        await s.task("dead_letter", error=f"Traceback\nValueError: no customer {n}")
    await s.task("dead_letter", error="Traceback\nOSError: gone")
    every = await s.client.dead_letters()
    [most, *_] = groups = await s.client.dead_letter_groups()
    return [
        every,
        groups,
        await failures_of(s),
        await failure(s.client.failures(since=NOT_BEFORE, until=NOT_BEFORE)),
        await failure(s.client.failures(limit=0)),
        await s.client.dead_letter_groups(error="OSError", limit=1),
        await s.client.dead_letters(limit=2, after=every[1]),
        await s.client.dead_letters(limit=2, after=every[1].id),
        await s.client.dead_letters(error="oserror", since=NOT_BEFORE),
        await s.client.dead_letters(DeadLetterFilter(name="http.greet"), ids=[every[0].id]),
        await s.client.dead_letter_groups(fingerprint=most.fingerprint),
        await failure(s.client.dead_letters(after=UNKNOWN)),
        await failure(s.client.dead_letters(after=await s.task())),
        await s.client.replay_dead_letters(ids=[every[0].id, str(every[1].id)], dry_run=True),
        await s.client.replay_dead_letters(ids=every[0].id),
        await s.client.replay_dead_letters(fingerprint=most.fingerprint[:8], limit=1),
        await s.client.replay_dead_letters(fingerprint=most.fingerprint, limit=2, per_second=1000),
        await s.client.purge_dead_letters(ids=[every[-1].id, UNKNOWN], dry_run=True),
        await s.client.purge_dead_letters(name="http.greet", limit=1),
        await s.client.purge_dead_letters(everything=True),
        await s.client.dead_letters(),
        await failure(s.client.replay_dead_letters()),
        await failure(s.client.purge_dead_letters()),
        await failure(s.client.replay_dead_letters(everything=True, per_second=0)),
        await failure(s.client.dead_letters(fingerprint="?")),
    ]


@row
async def tokens_and_audit(s: Scene) -> Any:
    new = await s.client.create_token("robot", roles="worker", queues=["a", "b"], expires_in=timedelta(days=1))
    plain = await s.client.create_token("plain", roles=["viewer", "submitter"])
    assert re.fullmatch(r"tasklib_[0-9a-f]{12}_[\w-]{43}", new.text)
    listed = {t.id: t for t in await s.client.tokens()}
    assert [listed[n.info.id] for n in (new, plain)] == [new.info, plain.info]
    revoked = [await s.client.revoke_token(new.text), await s.client.revoke_token(plain.info.prefix)]
    await s.client.pause(queue="q")
    records = await s.client.audit(limit=5)
    return [
        [(t.name, t.roles, t.queues, t.expires_at is None, t.created_by, t.is_usable) for t in (new.info, plain.info)],
        [(t.name, t.is_usable, t.revoked_at is not None) for t in revoked],
        [(r.actor, r.action, sorted(r.details)) for r in records],
        [r.action for r in await s.client.audit(limit=2, before=records[1])],
        [r.target for r in await s.client.audit(action="pause", target="queue:q", limit=1)],
        await failure(s.client.revoke_token(UNKNOWN)),
        await failure(s.client.revoke_token("?")),
        await failure(s.client.create_token("x", roles="king")),
        await failure(s.client.create_token("x", roles=["viewer"], queues=["a"])),
        await failure(s.client.audit(action="sleep")),
        await failure(s.client.audit(before=-1)),
    ]


@row
async def schedules(s: Scene) -> Any:
    rule = Schedule("0 3 * * *", timezone="Europe/Berlin", args={"name": "a"}, tags={"é": 1}, queue="hello")
    past = {"start": datetime(2026, 3, 28, tzinfo=UTC), "end": datetime(2026, 3, 30, 12, tzinfo=UTC)}
    slot = datetime(2026, 3, 29, 1, tzinfo=UTC)
    made = [
        await s.client.create_schedule(s.plain, rule, name="a/b é?"),
        await s.client.create_schedule("other.program", "@hourly", name="b", registered_elsewhere=True),
        await s.client.create_schedule(s.plain, Schedule(every=timedelta(hours=1), args={"name": "x"})),
    ]
    return [
        *made,
        await s.client.schedules(),
        await s.client.schedules(limit=2, after="a/b é?"),
        await s.client.schedules(task="http.plain", source="api", paused=False, retired=False, limit=1),
        await s.client.get_schedule("a/b é?"),
        await s.client.change_schedule("b", overlap="skip", jitter=timedelta(seconds=1.5), exclude=["2026-12-25"]),
        await s.client.change_schedule("b", every=timedelta(minutes=5), starts_at=NOT_BEFORE, pause_after=None),
        await s.client.change_schedule("b", "0 4 * * *"),
        await s.client.pause_schedule("b", "why"),
        await s.client.pause_schedule("b"),
        await s.client.schedules(paused=True),
        timeless((await s.client.explain_schedule("b", slot))[0]),
        await s.client.resume_schedule("b"),
        type(await s.client.run_schedule("b")).__name__,
        await s.client.backfill_schedule("a/b é?", **past, dry_run=True),
        await s.client.backfill_schedule("a/b é?", **past, priority=7),
        await s.client.backfill_schedule("a/b é?", **past, overlap="one_by_one"),
        await s.client.backfill_schedule("http.plain", start=slot, end=slot, overlap="one_by_one"),
        timeless((await s.client.explain_schedule("a/b é?", slot))[0]),
        [(task.schedule, task.slot) for task in await s.client.list_tasks()],
        [(p.description, [(x.utc, x.local.isoformat(), x.note) for x in p.slots]) for p in [
            await s.client.preview_schedule(Schedule("30 2 29 3 *", timezone="Europe/Berlin", starts_at=NOT_BEFORE)),
            await s.client.preview_schedule("a/b é?", count=2),
        ]],
        await s.client.delete_schedule("b"),
        await failure(s.client.get_schedule("b")),
        await failure(s.client.delete_schedule("b")),
        await failure(s.client.create_schedule(s.plain, rule, name="a/b é?")),
        await failure(s.client.create_schedule(s.plain, Schedule("@daily", args={"nam": 1}))),
        await failure(s.client.change_schedule("a/b é?")),
        await failure(s.client.change_schedule("a/b é?", moon="full")),
        await failure(s.client.change_schedule("a/b é?", timezone="Mars")),
        await failure(s.client.backfill_schedule("a/b é?", start=past["end"], end=past["start"])),
        await failure(s.client.backfill_schedule("a/b é?", **past, overlap="skip")),
        await failure(s.client.pause_schedule("a/b é?", "x" * 1001)),
        await failure(s.client.preview_schedule("61 * * * *")),
        await failure(s.client.explain_schedule("a/b é?", datetime(2026, 1, 1))),
    ]  # fmt: skip


@row
async def approvals(s: Scene) -> Any:
    form = {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}
    asked = json.dumps({"value": {"title": "Pay?", "details": {"to": "ACME"}, "role": "operator", "form": form}})
    paid, kept = await s.task(), await s.task()
    for id_ in (paid, kept):
        s.api.db.execute(
            "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'approval', 'pay', %s, 1)", [id_, asked]
        )
    shown = [(a.name, a.title, a.details, a.role, a.form) for a in await s.client.approvals(task_id=paid)]
    return [
        shown,
        len(await s.client.approvals()),
        await failure(s.client.approve(paid, form={"acount": "1"})),
        await s.client.approve(paid, form={"account": "DE02"}, comment="fine"),
        await s.client.reject(kept, "pay"),
        await s.client.approvals(),
        await failure(s.client.approve(paid)),
        await failure(s.client.reject(UNKNOWN)),
    ]


@row
async def schedules_in_code(s: Scene) -> Any:
    daily = Schedule("@daily", name="http.daily", args={"name": "é"}, jitter=1.5)
    weekly = Schedule("@weekly", name="http.weekly", args={"name": "b"})

    def declare(*schedules: Schedule) -> None:
        registry.functions.pop("http.scheduled", None)
        task(name="http.scheduled", schedule=schedules)(_scheduled)

    declare(daily, weekly)
    first = await s.client.sync_schedules()
    await s.client.pause_schedule("http.daily", "stays")
    made = await s.client.schedules(source="code")
    declare(daily)
    s.api.db.execute("UPDATE schedules SET deployed_at = deployed_at - interval '1 day'")
    await s.client.create_schedule("other.program", "@daily", name="c", registered_elsewhere=True)
    return [first, made, await s.client.sync_schedules(), await s.client.sync_schedules(retire_others=True)]


def _scheduled(name: str) -> None: ...


@pytest.fixture
def with_database(api: Api) -> Iterator[AsyncClient]:
    me = next(t for t in api.client.tokens() if str(t.id) == api.token_ids["admin"])
    client = AsyncClient(api.config)
    yield client.on_behalf_of(f"token:admin ({me.prefix})", submitted_by=str(me.id))
    client.close()


@pytest.mark.parametrize("name", TABLE)
async def test_both_clients_give_equal_answers(
    name: str, api: Api, with_database: AsyncClient, functions: dict[str, Any]
) -> None:
    expected = Comparable().of(await TABLE[name](Scene(with_database, api, functions)))
    api.clear()
    async with AsyncHttpClient(str(api.running), token=token_of(api)) as over_http:
        found = Comparable().of(await TABLE[name](Scene(over_http, api, functions)))
    assert found == expected


def token_of(api: Api, caller: str = "admin") -> str:
    return str(getattr(api, caller).headers["authorization"]).removeprefix("Bearer ")
