"""Circuit breakers: the leader opens them after failures, lets exact numbers of probes pass, and closes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Breaker, Config, Worker, task
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import BreakerMoved
from tasklib.maintenance.breakers import move_breakers
from tasklib.maintenance.stats import fold_stats
from tasklib.store import breakers, fleet, settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.fleet import Term
from tasklib.store.settle import Completion, Failure
from tests.store.test_limited_claim import Limited

SERVED = Served(["pay", "mail"])


class Leader:
    """A leader with a breaker of `pay`: half of 4 attempts, then 2 probes."""

    def __init__(self, config: Config, db: psycopg.Connection[Any], connection: ReconnectingConnection) -> None:
        self.config, self.db, self.connection = config, db, connection
        self.limited = Limited(config)
        self.term: Term | None = None

    async def begin(self) -> None:
        self.term = await self.connection.run(fleet.lead("leader", 600))
        self.db.execute(
            "INSERT INTO breakers (name, failures, at_least, within, pause, probes) VALUES ('pay', 0.5, 4, 60, 30, 2)"
        )

    async def moves(self) -> list[tuple[str, str]]:
        assert self.term is not None
        events = await move_breakers(self.connection, self.config, self.term)
        return [(event.name, event.state) for event in events if isinstance(event, BreakerMoved)]

    async def fold(self) -> None:
        assert self.term is not None
        await fold_stats(self.connection, self.config, self.term)

    def report(self, outcome: str, count: int, reason: str = "", ago: int = 0, name: str = "pay") -> None:
        self.db.execute(
            "INSERT INTO stats_deltas (at, name, queue, level, outcome, reason, count) "
            "VALUES (now() - make_interval(secs => %s), %s, 'default', 'medium', %s, %s, %s)",
            (ago, name, outcome, reason, count),
        )

    def tasks(self, count: int, name: str = "pay") -> None:
        self.db.execute("INSERT INTO tasks (name) SELECT %s FROM generate_series(1, %s)", (name, count))

    def take(self) -> list[Claimed]:
        """All that a worker gets now, by both statements of the claim."""
        return self.limited.claim(SERVED, 10, "w1") + self.limited.take(10, SERVED)

    def time_is_over(self) -> None:
        self.db.execute("UPDATE breakers SET until = now() - interval '1 s'")

    def state(self) -> str:
        row = self.db.execute("SELECT state FROM breakers WHERE name = 'pay'").fetchone()
        assert row is not None
        return str(row[0])

    def fail(self, claimed: Claimed, outcome: str = "error") -> None:
        self.limited.run(settle.fail([Failure(claimed, "boom", outcome, 3600.0)], "w1", 3))

    def complete(self, claimed: list[Claimed]) -> None:
        self.limited.run(settle.complete([Completion(t, "{}") for t in claimed], "w1"))


@pytest.fixture
def connected(config: Config, db: psycopg.Connection[Any]) -> Iterator[Leader]:
    leader = Leader(config, db, ReconnectingConnection(config, "maintenance"))
    yield leader
    leader.limited.connection.close()


@pytest.fixture
async def leader(connected: Leader) -> Leader:
    await connected.begin()
    return connected


async def opened(leader: Leader) -> Leader:
    leader.report("failed", 4, "error")
    assert await leader.moves() == [("pay", "open")]
    return leader


async def test_it_opens_at_the_share_of_failures_and_tasks_of_the_name_wait(leader: Leader) -> None:
    leader.tasks(2)
    leader.tasks(1, "mail")
    leader.report("completed", 2)
    leader.report("failed", 1, "timeout")
    assert await leader.moves() == [], "three attempts are not enough"
    leader.report("dead_letter", 1, "error")
    assert await leader.moves() == [("pay", "open")]
    assert [claimed.name for claimed in leader.take()] == ["mail"]
    assert leader.db.execute("SELECT retry_count, state FROM tasks WHERE name = 'pay'").fetchall() == [
        (0, "pending"), (0, "pending"),
    ]  # fmt: skip


async def test_attempts_count_across_folding_and_not_once_they_are_older_than_the_window(leader: Leader) -> None:
    leader.db.execute("UPDATE breakers SET since = now() - interval '1 hour'")
    leader.report("failed", 3, "crash", ago=70)
    leader.report("failed", 3, "error", ago=50)
    await leader.fold()
    assert await leader.moves() == []
    leader.report("failed", 1, "error")
    assert await leader.moves() == [("pay", "open")]
    assert leader.db.execute("SELECT seen_attempts, seen_failures FROM breakers").fetchall() == [(4, 4)]


async def test_what_a_task_asked_for_itself_is_no_failure(leader: Leader) -> None:
    for reason in ("retry", "rejected", "throttled", "lost"):
        leader.report("failed", 10, reason)
        leader.report("released", 10, reason)
    leader.report("failed", 10, "error", name="mail")
    assert await leader.moves() == []


async def test_after_its_time_it_lets_exactly_its_probes_pass_and_closes_when_all_were_successful(
    leader: Leader,
) -> None:
    await opened(leader)
    leader.tasks(10)
    assert await leader.moves() == []
    leader.time_is_over()
    assert await leader.moves() == [("pay", "probing")]
    probes = leader.take()
    assert len(probes) == 2
    assert leader.take() == []
    leader.complete(probes[:1])
    assert await leader.moves() == []
    assert leader.take() == [], "one was successful, one is under way: that is all"
    leader.complete(probes[1:])
    assert await leader.moves() == [("pay", "closed")]
    assert len(leader.take()) == 8


async def test_a_probe_that_fails_opens_it_again_and_its_retry_waits(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(3)
    leader.time_is_over()
    await leader.moves()
    first, second = leader.take()
    leader.fail(first)
    assert await leader.moves() == [("pay", "open")]
    leader.complete([second])
    leader.db.execute("UPDATE tasks SET next_retry_at = now() WHERE state = 'failed'")
    assert leader.take() == [], "neither the failed probe nor the others begin"
    assert await leader.moves() == []
    leader.time_is_over()
    assert await leader.moves() == [("pay", "probing")]
    assert len(leader.take()) == 2


async def test_probes_of_an_earlier_time_are_none_when_it_probes_again(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(6)
    leader.time_is_over()
    await leader.moves()
    (failing,) = leader.limited.take(1, SERVED)
    leader.fail(failing)
    assert await leader.moves() == [("pay", "open")], "and the other probe was not even begun"
    leader.db.execute("UPDATE tasks SET next_retry_at = now() - interval '1 hour' WHERE state = 'failed'")
    leader.db.execute(
        "UPDATE tasks SET scheduled_at = now() + interval '1 hour' WHERE lane <> '' AND state = 'pending'"
    )
    leader.time_is_over()
    assert await leader.moves() == [("pay", "probing")]
    leader.db.execute("UPDATE tasks SET scheduled_at = now() - interval '1 hour' WHERE state = 'pending'")
    assert len(leader.take()) == 2


async def test_a_probe_that_was_given_back_or_lost_is_no_verdict(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(2)
    leader.db.execute(
        "UPDATE tasks SET state = 'failed', next_retry_at = now() - interval '1 s', lease_token = 7, "
        """history = '[{"token": 7, "outcome": "error"}]'"""
    )
    leader.time_is_over()
    await leader.moves()
    probes = leader.take()
    leader.limited.run(settle.release(probes, "w1"))
    assert await leader.moves() == []
    assert (leader.state(), len(leader.take())) == ("probing", 2)


async def test_a_probe_that_asks_for_a_retry_is_a_success(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(2)
    leader.time_is_over()
    await leader.moves()
    for probe in leader.take():
        leader.fail(probe, "throttled")
    assert await leader.moves() == [("pay", "closed")]


async def test_a_probe_that_no_worker_takes_goes_back_and_another_is_chosen(leader: Leader) -> None:
    await opened(leader)
    leader.db.execute("INSERT INTO tasks (name, required_capabilities) VALUES ('pay', '{gpu}'), ('pay', '{gpu}')")
    leader.time_is_over()
    await leader.moves()
    leader.tasks(5)
    assert leader.take() == []
    leader.db.execute("UPDATE breakers SET probed_at = now() - interval '61 s'")
    leader.db.execute("UPDATE tasks SET scheduled_at = now() - interval '1 hour' WHERE required_capabilities = '{}'")
    await leader.moves()
    assert len(leader.take()) == 2
    assert leader.db.execute(
        "SELECT count(*) FROM tasks WHERE required_capabilities = '{gpu}' AND lane LIKE '%%breaker:%%'"
    ).fetchone() == (0,)


async def test_probes_keep_their_shares_and_limits(leader: Leader) -> None:
    await opened(leader)
    leader.db.execute("INSERT INTO limits (name, max_running) VALUES ('share', 1)")
    leader.db.execute("INSERT INTO tasks (name, lane) SELECT 'pay', E'\\x01sacme' FROM generate_series(1, 4)")
    leader.time_is_over()
    await leader.moves()
    first = leader.take()
    assert len(first) == 1, "the share runs one at a time, probes too"
    leader.complete(first)
    (second,) = leader.take()
    leader.complete([second])
    assert await leader.moves() == [("pay", "closed")]


async def test_an_operator_opens_it_until_it_is_closed_and_earlier_failures_do_not_count(leader: Leader) -> None:
    async with AsyncClient(leader.config) as client:
        assert await client.open_breaker("pay") is True
        leader.tasks(1)
        assert await leader.moves() == []
        assert leader.take() == []
        (info,) = await client.breakers()
        assert (info.state, info.until, info.opened) == ("open", None, 1)
        leader.report("failed", 9, "error")
        assert await client.close_breaker("pay") is True
        assert await client.close_breaker("pay") is False
        assert await leader.moves() == []
        assert len(leader.take()) == 1
        assert await client.open_breaker("unknown") is False


async def test_removing_an_open_breaker_lets_its_tasks_run(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(1)
    async with AsyncClient(leader.config) as client:
        assert await client.remove_breaker("pay") is True
    assert len(leader.take()) == 1
    assert leader.db.execute("SELECT count(*) FROM pauses").fetchone() == (0,)


async def test_the_moves_of_the_leader_are_in_the_audit(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(2)
    leader.time_is_over()
    await leader.moves()
    leader.complete(leader.take())
    assert await leader.moves() == [("pay", "closed")]
    found = leader.db.execute("SELECT actor, action, target, details -> 'failures' FROM audit ORDER BY id").fetchall()
    assert found == [("leader", "breaker.open", "breaker:pay", 4), ("leader", "breaker.close", "breaker:pay", None)]


async def test_explain_says_that_the_breaker_is_open_and_until_when(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(3)
    async with AsyncClient(leader.config) as client:
        (row,) = leader.db.execute("SELECT id FROM tasks ORDER BY scheduled_at DESC, id DESC LIMIT 1").fetchall()
        (reason, *_) = (await client.explain_task(row[0])).reasons
        assert reason.code == "breaker_open"
        assert "4 of 4 attempts failed" in reason.sentence
        leader.time_is_over()
        await leader.moves()
        (reason, *_) = (await client.explain_task(row[0])).reasons
        assert reason.code == "breaker_probing"


async def test_breakers_of_other_names_stay_as_they_are(leader: Leader) -> None:
    leader.db.execute(
        'INSERT INTO breakers SELECT (jsonb_populate_record(b, \'{"name": "mail"}\')).* FROM breakers AS b'
    )
    await opened(leader)
    leader.tasks(3)
    leader.tasks(3, "mail")
    leader.time_is_over()
    assert await leader.moves() == [("pay", "probing")]
    found = leader.db.execute("SELECT name, state, cardinality(probe_ids) FROM breakers ORDER BY name").fetchall()
    assert found == [("mail", "closed", 0), ("pay", "probing", 2)]


async def test_only_due_tasks_of_queues_that_are_not_paused_are_probes(leader: Leader) -> None:
    await opened(leader)
    assert leader.term is not None
    leader.tasks(1)
    assert await leader.connection.run(breakers.probe(leader.term)) == 0, "it is open"
    leader.db.execute("INSERT INTO pauses (kind, value) VALUES ('queue', 'mail')")
    leader.db.execute("UPDATE tasks SET scheduled_at = now() + interval '1 hour'")
    leader.db.execute("INSERT INTO tasks (name, queue) VALUES ('pay', 'mail')")
    leader.time_is_over()
    await leader.moves()
    assert leader.db.execute("SELECT state, probe_ids FROM breakers").fetchall() == [("probing", [])]


async def test_without_the_lead_nothing_moves(leader: Leader) -> None:
    leader.report("failed", 4, "error")
    leader.db.execute(
        "INSERT INTO breaker_counts (name, at, attempts, failed) VALUES ('pay', now() - interval '1 d', 1, 1)"
    )
    leader.db.execute("UPDATE leadership SET term = term + 1")
    assert await leader.moves() == []
    assert leader.state() == "closed"
    assert leader.db.execute("SELECT count(*) FROM breaker_counts").fetchone() == (1,)


async def test_without_the_lead_no_probe_is_chosen(leader: Leader) -> None:
    await opened(leader)
    leader.tasks(2)
    leader.db.execute("UPDATE breakers SET state = 'probing'")
    leader.db.execute("UPDATE leadership SET term = term + 1")
    assert leader.term is not None
    assert await leader.connection.run(breakers.probe(leader.term)) == 0
    assert leader.take() == []


async def test_a_worker_stores_what_the_code_declares_and_what_an_operator_changed_stays(config: Config) -> None:
    @task(breaker=Breaker(failures=0.25, at_least=8))
    async def charge() -> None: ...

    async with AsyncClient(config) as client:
        await Worker(config, burst=True).run()
        (info,) = await client.breakers()
        assert (info.name, info.source, info.failures, info.at_least, info.probes) == ("charge", "code", 0.25, 8, 3)
        await client.set_breaker("charge", failures=0.75)
        await client.sync_breakers()
        assert [(i.source, i.failures) for i in await client.breakers()] == [("api", 0.75)]
        assert await client.reset_breaker("charge") is True
        assert [(i.source, i.failures) for i in await client.breakers()] == [("code", 0.25)]
        assert await client.remove_breaker("charge") is True
        await client.sync_breakers()
        assert [(i.source, i.failures) for i in await client.breakers()] == [("api", None)]
