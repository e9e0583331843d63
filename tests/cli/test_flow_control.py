"""`tasklib breaker`, `tasklib replays` and the bounds of task names: what they change, show and refuse."""

from __future__ import annotations

import json

import psycopg
import pytest

from tasklib import Client
from tests.cli.conftest import Run
from tests.cli.test_operations import die, lines

pytestmark = pytest.mark.usefixtures("url")


@pytest.fixture(autouse=True)
def _nothing_left(db: psycopg.Connection) -> None:
    for table in ("breakers", "backpressure", "replays"):
        db.execute(f"DELETE FROM {table}".encode())


def test_a_breaker_is_set_opened_closed_and_removed(run: Run) -> None:
    assert lines(run("breaker", "list")) == []
    set_ = ("breaker", "set", "charge", "--failures", "0.25", "--at-least", "8", "--within", "30s", "--pause", "2m")
    assert run(*set_).stderr == "breaker charge is set\n"
    assert run(*set_).stderr == "breaker charge was set that way already\n"
    [row] = lines(run("breaker", "list"))
    assert (row[0], row[1], row[3], row[4]) == ("charge", "closed", "0", "api")
    assert run("breaker", "open", "charge").stderr == "breaker charge is open\n"
    assert run("breaker", "open", "charge").stderr == "breaker charge was open already, or there is none\n"
    shown = json.loads(run("breaker", "list", "--json").stdout)
    assert (shown["state"], shown["until"], shown["failures"], shown["within"]) == ("open", None, 0.25, 30.0)
    assert run("breaker", "close", "charge").stderr == "breaker charge is closed\n"
    assert run("breaker", "close", "charge").stderr == "breaker charge was closed already, or there is none\n"
    assert run("breaker", "reset", "charge").stderr == "breaker charge has nothing to reset\n"
    assert run("breaker", "remove", "charge").stderr == "breaker charge is removed\n"
    assert run("breaker", "remove", "charge").stderr == "there is no breaker charge\n"


def test_a_breaker_that_is_opened_for_a_time_says_until_when(run: Run) -> None:
    run("breaker", "set", "charge")
    run("breaker", "open", "charge", "--for", "2h")
    shown = json.loads(run("breaker", "list", "--json").stdout)
    assert shown["state"] == "open"
    assert shown["until"] is not None


@pytest.mark.parametrize(
    "options", [("--failures", "2"), ("--at-least", "0"), ("--within", "soon"), ("--pause", "-1s"), ("--probes", "0")]
)
def test_a_breaker_with_odd_terms_is_refused(run: Run, options: tuple[str, str]) -> None:
    assert run("breaker", "set", "charge", *options).exit_code == 2
    assert lines(run("breaker", "list")) == []


def test_a_replay_is_begun_shown_paused_resumed_and_stopped(run: Run, db: psycopg.Connection, url: str) -> None:
    assert lines(run("replays", "list")) == []
    for _ in range(3):
        die(db, "charge")
    die(db, "other")
    begun = run("replays", "start", "--name", "charge", "--per-minute", "30", "--yes")
    assert begun.stderr == "replaying 3 dead letters, one of them first\n"
    replay = begun.stdout.strip()
    [row] = lines(run("replays", "list"))
    assert row[:7] == [replay, "running", "0", "3", "0", "0", "0"]
    assert row[-1] == "name=charge"
    assert lines(run("replays", "show", replay))[0][:2] == [replay, "running"]
    assert lines(run("replays", "pause", replay))[0][1] == "paused"
    assert lines(run("replays", "resume", replay, "--per-minute", "5"))[0][1] == "running"
    assert json.loads(run("replays", "show", replay, "--json").stdout)["per_minute"] == 5
    assert lines(run("replays", "stop", replay))[0][1] == "stopped"
    with Client(url) as client:
        assert [r.action for r in client.audit(limit=4)] == [
            "replay.stop",
            "replay.resume",
            "replay.pause",
            "replay.start",
        ]


def test_a_replay_of_everything_or_without_a_canary_has_to_be_asked_for(run: Run, db: psycopg.Connection) -> None:
    die(db, "charge")
    refused = run("replays", "start", "--yes")
    assert refused.exit_code == 2
    assert "--all" in refused.stderr
    begun = run("replays", "start", "--all", "--no-canary", "--yes")
    assert begun.stderr == "replaying 1 dead letter\n"
    assert json.loads(run("replays", "show", begun.stdout.strip(), "--json").stdout)["canary"] is None


def test_an_unknown_replay_is_an_error_of_one_line(run: Run) -> None:
    result = run("replays", "show", "00000000-0000-7000-8000-000000000000")
    assert result.exit_code != 0
    assert len(result.stderr.splitlines()) == 1


def test_the_bounds_of_a_task_name_are_set_listed_and_removed(run: Run) -> None:
    assert run("backpressure", "set", "send", "--name", "--max-pending", "5000").stderr == "name send is bounded\n"
    assert run("backpressure", "set", "send", "--max-wait", "60").stderr == "queue send is bounded\n"
    assert lines(run("backpressure", "list")) == [["queue send", "60 s", ""], ["name send", "", "5,000"]]
    shown = [json.loads(line) for line in run("backpressure", "list", "--json").stdout.splitlines()]
    assert [(each.get("queue"), each.get("name"), each["max_pending"]) for each in shown] == [
        ("send", None, None),
        (None, "send", 5000),
    ]
    assert run("backpressure", "clear", "send", "--name").stderr == "name send has no bounds any more\n"
    assert run("backpressure", "clear", "send", "--name").stderr == "name send had no bounds\n"
    assert lines(run("backpressure", "list")) == [["queue send", "60 s", ""]]
    assert run("backpressure", "set", "send", "--name", "--max-pending", "0").exit_code == 2
