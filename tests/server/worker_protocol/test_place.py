"""`POST /internal/workers/{id}/place` and `place/leave`: room in limits for parts of running tasks."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from tests.server.worker_protocol.remote import Remote, completed, lease, submit
from tests.store.test_limited_claim import set_limit

TAKEN = {"outcome": "taken", "retry_in_seconds": None}
FULL = {"outcome": "full", "retry_in_seconds": None}


def ask(worker: Remote, task: dict[str, Any], block: int = 1, **body: Any) -> Any:
    answer = worker.say("place", {**lease(task), "limit": "stripe", "block": block, **body})
    return answer.json() if answer.status_code == 200 else answer.json()["code"]


def leave(worker: Remote, task: dict[str, Any], block: int = 1) -> None:
    answer = worker.say("place/leave", {**lease(task), "block": block})
    assert (answer.status_code, answer.json()) == (200, {"acknowledged": True})


def test_a_place_is_taken_once_for_a_block_and_free_again_when_the_block_or_the_attempt_ends(
    http: httpx.Client, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=1)
    submit(db, 3)
    worker = Remote(http)
    one, two, three = worker.poll(3)
    assert [ask(worker, one), ask(worker, one), ask(worker, two)] == [TAKEN, TAKEN, FULL]
    leave(worker, two)
    assert ask(worker, two) == FULL, "it had none to give back"
    leave(worker, one)
    assert [ask(worker, two), ask(worker, three)] == [TAKEN, FULL]
    worker.say("result", completed(two))
    assert ask(worker, three) == TAKEN


def test_each_key_has_places_of_its_own_and_a_rate_says_when_to_ask_again(
    http: httpx.Client, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=1)
    set_limit(db, "mailgun", rate=1, per=3600, burst=4)
    submit(db)
    worker = Remote(http)
    [task] = worker.poll()
    assert [ask(worker, task, key="ann"), ask(worker, task, 2, key="bob")] == [TAKEN, TAKEN]
    assert ask(worker, task, 3, limit="mailgun", cost=3) == TAKEN
    later = ask(worker, task, 4, limit="mailgun", cost=3)
    assert later["outcome"] == "later"
    assert 7190 < later["retry_in_seconds"] <= 7200


def test_a_limit_that_the_task_fills_itself_is_refused_and_so_is_one_that_is_not_there(
    http: httpx.Client, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=1)
    submit(db)
    worker = Remote(http)
    [task] = worker.poll()
    assert ask(worker, task) == TAKEN
    assert ask(worker, task, 2, nested=1)["outcome"] == "never"
    assert ask(worker, task, limit="strip")["outcome"] == "unknown"


def test_only_the_worker_that_holds_the_attempt_takes_and_gives_back(
    http: httpx.Client, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=1)
    submit(db, 2)
    mine, other = Remote(http), Remote(http)
    first, second = mine.poll(2)
    assert ask(other, first) == "stale_attempt"
    assert ask(mine, first) == TAKEN
    leave(other, first)
    assert ask(mine, second) == FULL
    assert ask(mine, {**second, "lease_token": 7}) == "stale_attempt"


@pytest.mark.parametrize("odd", [{"block": 0}, {"limit": ""}, {"cost": 0}, {"nested": -1}, {"key": "\x00"}, {"max": 5}])
def test_odd_requests_are_refused(http: httpx.Client, db: psycopg.Connection, odd: dict[str, Any]) -> None:
    submit(db)
    worker = Remote(http)
    [task] = worker.poll()
    assert ask(worker, task, **{"block": 1, **odd}) == "invalid_request"
