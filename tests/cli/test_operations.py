"""The commands of those who operate the fleet: workers, pauses, settings, cancel, replay and the dead letter queue."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest

from tasklib import Client
from tests.cli.conftest import Run
from tests.cli.processes import Command

pytestmark = pytest.mark.usefixtures("url")


def insert(db: psycopg.Connection, name: str, **columns: str) -> str:
    names, values = ", ".join(["name", *columns]), ", ".join([f"'{name}'", *columns.values()])
    return str(db.execute(f"INSERT INTO tasks ({names}) VALUES ({values}) RETURNING id".encode()).fetchall()[0][0])


def die(db: psycopg.Connection, name: str, error: str = "ValueError: 1") -> str:
    return insert(db, name, state="'dead_letter'", completed_at="now() - interval '1 s'", error=f"$e${error}$e$")


def states(db: psycopg.Connection) -> dict[str, str]:
    return {str(i): s for i, s in db.execute("SELECT id, state FROM tasks")}


def lines(result: Any) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


# ---- workers ----


@pytest.fixture
def two_workers(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO workers "
        "(id, reported_status, started_at, queues, capabilities, capacity, current_load, version, host, pid) "
        "VALUES ('web-1-aaaa', 'active', now() - interval '1 h', NULL, '{}', 10, 3, '0.1.0', 'web', 1), "
        "('gpu-2-bbbb', 'draining', now(), '{mail,images}', '{gpu}', 2, 1, '0.1.0', 'gpu', 2)"
    )
    db.execute("INSERT INTO leadership (holder, expires_at) VALUES ('web-1-aaaa', now() + interval '1 min')")


@pytest.mark.usefixtures("two_workers")
def test_workers_led_by_a_server_are_listed_with_its_name(run: Run, db: psycopg.Connection) -> None:
    assert "led by" not in run("workers").stderr, "a worker leads, and is marked"
    db.execute("UPDATE leadership SET holder = 'server-web-7-cafe'")
    assert "led by server-web-7-cafe" in run("workers").stderr
    db.execute("UPDATE leadership SET expires_at = now()")
    assert "no worker and no server leads" in run("workers").stderr


@pytest.mark.usefixtures("two_workers")
def test_workers_are_listed_with_load_leader_and_heartbeat(run: Run) -> None:
    first, second = lines(run("workers"))
    assert first[:8] == ["web-1-aaaa", "active", "leader", "3/10", "all", "", "0.1.0", "web:1"]
    assert first[8].endswith(" ago")
    assert second[:6] == ["gpu-2-bbbb", "draining", "", "1/2", "mail,images", "gpu"]
    shown = [json.loads(line) for line in run("workers", "--json").stdout.splitlines()]
    assert [w["is_leader"] for w in shown] == [True, False]


@pytest.mark.usefixtures("two_workers")
def test_workers_are_a_table_in_a_terminal(command: Command, url: str) -> None:
    process = command("workers", terminal=True, TASKLIB_DATABASE_URL=url)
    assert process.exit_code() == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", process.said())
    assert re.search(r"id +status +leader +load +queues +capabilities +version +host:pid +heartbeat", shown)
    assert re.search(r"web-1-aaaa +active +leader +3/10 +all", shown)


@pytest.mark.usefixtures("two_workers")
def test_drain_asks_the_worker_whose_id_ends_so(run: Run, db: psycopg.Connection) -> None:
    result = run("workers", "drain", "aaaa")
    assert (result.exit_code, result.stderr) == (0, "asked web-1-aaaa to drain\n")
    assert lines(run("workers"))[0][1] == "asked to drain"
    nobody = run("workers", "drain", "web-1-aaab")
    assert nobody.exit_code == 1
    assert "no live worker has the id web-1-aaab" in nobody.stderr
    assert "Did you mean web-1-aaaa?" in nobody.stderr


# ---- pauses ----


def test_pause_shows_in_pauses_list_and_show_until_it_is_resumed(run: Run, db: psycopg.Connection) -> None:
    held, free = insert(db, "send", queue="'mail'"), insert(db, "other")
    assert run("pause", "--queue", "mail").stderr == "paused queue mail\n"
    assert run("pause", "--queue", "mail").stderr == "queue mail was paused already\n"
    assert run("pause", "--name", "x").stderr == "paused name x\n"
    assert [row[:2] for row in lines(run("pauses"))] == [["name", "x"], ["queue", "mail"]]
    assert json.loads(run("pauses", "--json").stdout.splitlines()[0])["kind"] == "name"
    assert {row[0]: row[9] for row in lines(run("list"))} == {held: "paused", free: ""}
    assert "pending, paused" in run("show", held).stdout
    assert json.loads(run("show", held, "--json").stdout)["paused"] is True
    assert run("resume", "--queue", "mail").stderr == "resumed queue mail\n"
    assert run("resume", "--queue", "mail").stderr == "queue mail was not paused\n"
    assert "paused" not in run("show", held).stdout


@pytest.mark.parametrize("args", [(), ("--queue", "a", "--name", "b")])
def test_pause_wants_a_queue_or_a_name(run: Run, args: tuple[str, ...]) -> None:
    for command in ("pause", "resume"):
        result = run(command, *args)
        assert result.exit_code == 2
        assert "give either --queue or --name" in result.stderr


# ---- settings and effective priority ----


def test_settings_are_shown_changed_and_given_back(run: Run, db: psycopg.Connection) -> None:
    assert lines(run("settings")) == [
        ["promote_to_medium_after_seconds", "600", "configuration"],
        ["promote_to_high_after_seconds", "1200", "configuration"],
    ]
    changed = run("settings", "set", "promote_to_high_after_seconds=300")
    assert lines(changed)[1] == ["promote_to_high_after_seconds", "300", "set for the fleet"]
    assert lines(run("settings", "show")) == lines(changed)
    assert json.loads(run("settings", "--json").stdout)["promote_to_high_after_seconds"] == 300
    run("settings", "set", "promote-to-high-after-seconds=")
    assert lines(run("settings"))[1][1:] == ["1200", "configuration"]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("promote_to_high_after_seconds=soon", 2, "is a number of seconds"),
        ("lock_timeout_seconds=5", 2, "is not NAME=VALUE with one of"),
        ("promote_to_high_after_seconds=-1", 1, "promote_to_high_after_seconds must be more than 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(run: Run, change: str, code: int, words: str) -> None:
    result = run("settings", "set", change)
    assert result.exit_code == code
    assert words in result.stderr


def test_list_and_show_say_how_high_a_task_stands_now(run: Run, db: psycopg.Connection) -> None:
    task = insert(db, "old", priority="-10", scheduled_at="now() - interval '700 s'")
    assert lines(run("list"))[0][8] == "0"
    assert "priority -10 → 0" in run("show", task).stdout
    run("settings", "set", "promote_to_high_after_seconds=60")
    assert json.loads(run("list", "--json").stdout)["effective_priority"] == 100


# ---- cancel and replay ----


def test_cancel_by_id_says_what_became_of_each(run: Run, db: psycopg.Connection) -> None:
    waiting = insert(db, "a")
    running = insert(db, "b", state="'running'", worker_id="'w'", locked_until="now() + interval '1 h'")
    assert lines(run("cancel", waiting, running[-8:])) == [[waiting, "cancelled"], [running, "asked to stop"]]
    finished = insert(db, "c", state="'completed'", completed_at="now()")
    result = run("cancel", finished)
    assert result.exit_code == 1
    assert result.stderr == "error: 1 task was finished already.\n"


def test_cancel_by_filter_needs_a_yes_without_a_terminal(run: Run, db: psycopg.Connection) -> None:
    insert(db, "mail")
    insert(db, "mail", state="'running'", worker_id="'w'", locked_until="now() + interval '1 h'")
    other = insert(db, "other")
    refused = run("cancel", "--name", "mail")
    assert refused.exit_code == 1
    assert "this would cancel 1 waiting task and ask 1 running one to stop. Add --yes" in refused.stderr
    looked = run("cancel", "--name", "mail", "--dry-run")
    assert looked.stdout == "would cancel 1 waiting task and ask 1 running one to stop\n"
    assert "cancelled" not in states(db).values()
    assert (
        run("cancel", "--name", "mail", "--yes").stdout == "cancelled 1 waiting task and asked 1 running one to stop\n"
    )
    assert sorted(states(db).values()) == ["cancelled", "pending", "running"]
    assert run("cancel", "--name", "mail").stdout == "cancelled 0 waiting tasks\n", "nothing to ask about"
    assert run("cancel", "--all", "-y").exit_code == 0
    assert states(db)[other] == "cancelled"


@pytest.mark.parametrize(("answer", "state"), [("y\n", "cancelled"), ("n\n", "pending")])
def test_cancel_asks_in_a_terminal(command: Command, url: str, db: psycopg.Connection, answer: str, state: str) -> None:
    task = insert(db, "mail")
    process = command("cancel", "--name", "mail", terminal=True, TASKLIB_DATABASE_URL=url)
    process.until("This will cancel 1 waiting task. Continue?")
    process.press(answer)
    assert process.exit_code() == (0 if state == "cancelled" else 1)
    assert states(db)[task] == state


def test_cancel_wants_ids_or_a_filter_and_not_both(run: Run) -> None:
    for args in ((), ("abcd1234", "--name", "x")):
        result = run("cancel", *args)
        assert result.exit_code == 2
        assert "give ids or filter options" in result.stderr


def test_replay_starts_finished_tasks_anew(run: Run, db: psycopg.Connection) -> None:
    one, two = die(db, "a"), insert(db, "b", state="'cancelled'", completed_at="now()")
    assert lines(run("replay", one, two[-8:])) == [[one, "pending"], [two, "pending"]]
    again = run("replay", one)
    assert again.exit_code == 1
    assert "is pending; only a completed, cancelled or dead_letter task can be replayed" in again.stderr


def test_run_now_makes_waiting_tasks_due(run: Run, db: psycopg.Connection) -> None:
    later = insert(db, "b", scheduled_at="now() + interval '1 h'")
    assert lines(run("run-now", later)) == [[later, "due now"]]
    again = run("run-now", later)
    assert again.exit_code == 1
    assert "is pending and doesn't wait for its time" in again.stderr


def test_edit_changes_a_waiting_task_and_leaves_the_rest(run: Run, db: psycopg.Connection) -> None:
    task_id = insert(db, "b", kwargs="""'{"to": "a", "n": 1}'""", tags="""'{"a": 1}'""")
    assert lines(run("edit", task_id, "to=b", "--queue", "slow", "--priority", "7", "--tag", "b=2")) == [
        [task_id, "pending"]
    ]
    found = db.execute("SELECT kwargs, queue, priority, tags FROM tasks WHERE id = %s", [task_id]).fetchone()
    assert found == ({"to": "b", "n": 1}, "slow", 7, {"a": 1, "b": 2})
    assert lines(run("edit", task_id, "--json", '{"to": "c"}')) == [[task_id, "pending"]]
    assert db.execute("SELECT kwargs FROM tasks WHERE id = %s", [task_id]).fetchone() == ({"to": "c"},)


def test_edit_says_why_it_changes_nothing(run: Run, db: psycopg.Connection) -> None:
    task_id, ended = insert(db, "b"), insert(db, "b", state="'cancelled'", completed_at="now()")
    late = run("edit", ended, "--queue", "slow")
    assert (late.exit_code, "is cancelled; only a task that waits can be edited" in late.stderr) == (1, True)
    wrong = run("edit", task_id, "--priority", "500")
    assert (wrong.exit_code, "priority must be from -10 to 100" in wrong.stderr) == (2, True)
    assert run("edit", task_id, "to=b", "--json", "{}").exit_code == 2
    assert run("edit", "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", "--queue", "slow").exit_code == 1


# ---- the dead letter queue ----


def test_dlq_list_and_show(run: Run, db: psycopg.Connection) -> None:
    first, second = die(db, "mail", "a\nOSError: full"), die(db, "resize")
    assert [(row[0], row[1], row[4]) for row in lines(run("dlq", "list", "--name", "mail"))] == [
        (first, "mail", "OSError: full")
    ]
    assert {row[0] for row in lines(run("dlq", "list"))} == {first, second}
    assert lines(run("dlq", "list", "--error", "FULL"))[0][0] == first
    assert run("dlq", "list", "--until", "1h").stdout == ""
    assert json.loads(run("dlq", "list", "--json", "--name", "resize").stdout)["id"] == second
    assert "OSError: full" in run("dlq", "show", first).stdout


def test_dlq_lists_the_verdict_on_a_poison_task_and_shows_what_led_to_it(run: Run, db: psycopg.Connection) -> None:
    verdict = "worker w-2 was lost in attempt 2; given up as poison after 2 crashes"
    poison = die(db, "mail", f"attempt 1, 2026-01-31T12:00:00+00:00, lost, worker w-1: gone\n{verdict}")
    assert [(row[0], row[4]) for row in lines(run("dlq", "list"))] == [(poison, verdict)]
    assert [row[-1] for row in lines(run("dlq", "groups"))] == [verdict]
    assert f"lost, worker w-1: gone\n{verdict}\n" in run("dlq", "show", poison).stdout


def test_failures_are_shown_by_cause_and_for_whom(run: Run, db: psycopg.Connection) -> None:
    for n in range(3):
        dead = die(db, "mail", f"Traceback\nTimeoutError: {n} s")
        db.execute("UPDATE tasks SET tags = %s WHERE id = %s", [json.dumps({"customer": "acme", "n": n}), dead])
    die(db, "resize", "OSError: full")
    insert(
        db, "mail", state="'failed'", next_retry_at="now() + interval '1 h'", error="'TimeoutError: 9 s'",
        started_at="now() - interval '1 min'", tags="""'{"customer": "acme"}'""",
    )  # fmt: skip
    first, second = lines(run("failures", "--since", "10m"))
    fingerprint, attempts, tasks, dead_letters, name, *_, whom, error = first
    assert (attempts, tasks, dead_letters, name) == ("4", "4", "3", "mail")
    assert (whom, error.partition(":")[0], second[4]) == ("customer=acme", "TimeoutError", "resize")
    [found] = [
        json.loads(line) for line in run("failures", "--fingerprint", fingerprint[:8], "--json").stdout.splitlines()
    ]
    assert (found["retrying"], found["is_new"], len(found["ids"])) == (1, None, 4)
    assert lines(run("failures", "--name", "resize", "--since", "10m"))[0][4] == "resize"
    assert run("failures", "--since", "10m", "--until", "9h").exit_code == 1
    assert lines(run("failures", "--queue", "none")) == []


def test_dlq_groups_lead_to_a_replay_of_one_cause(run: Run, db: psycopg.Connection) -> None:
    wanted = {die(db, "mail", f"KeyError: {n}") for n in range(3)}
    left = die(db, "mail", "OSError")
    (fingerprint, count, name, *_, error), _other = lines(run("dlq", "groups"))
    assert (count, name, error[:9]) == ("3", "mail", "KeyError:")
    assert json.loads(run("dlq", "groups", "--json").stdout.splitlines()[0])["count"] == 3
    looked = run("dlq", "replay", "--fingerprint", fingerprint[:8], "--dry-run")
    assert ({row[0] for row in lines(looked)}, looked.stderr) == (wanted, "would replay 3 dead letters\n")
    refused = run("dlq", "replay", "--fingerprint", fingerprint[:8])
    assert (refused.exit_code, states(db)[left]) == (1, "dead_letter")
    assert "this would replay 3 dead letters. Add --yes" in refused.stderr
    done = run("dlq", "replay", "--fingerprint", fingerprint[:8], "--yes", "--per-second", "1000")
    assert {row[0] for row in lines(done)} == wanted
    assert {i for i, s in states(db).items() if s == "pending"} == wanted


def test_dlq_replay_of_ids_needs_no_yes_and_purge_always_does(run: Run, db: psycopg.Connection) -> None:
    one, two = die(db, "a"), die(db, "b")
    assert lines(run("dlq", "replay", one)) == [[one]]
    assert run("dlq", "purge", two).exit_code == 1
    assert lines(run("dlq", "purge", two, "--yes")) == [[two]]
    assert states(db) == {one: "pending"}
    assert run("dlq", "purge", "--all", "--yes").stderr == "purged 0 dead letters\n"


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_dlq_wants_to_know_which(run: Run, verb: str) -> None:
    result = run("dlq", verb, "--yes")
    assert result.exit_code == 2
    assert "--all for every dead letter" in result.stderr


def test_dlq_pages_go_on_behind_a_task(run: Run, db: psycopg.Connection) -> None:
    for n in range(5):
        die(db, f"t{n}")
    first = lines(run("dlq", "list", "--limit", "3"))
    second = lines(run("dlq", "list", "--limit", "3", "--after", first[-1][0]))
    assert len({row[0] for row in first + second}) == 5


def test_hostile_names_and_errors_cant_forge_lines_or_colours(run: Run, url: str, db: psycopg.Connection) -> None:
    with Client(url) as client:
        client.submit_task("a\tb\x1b[31m\nc", registered_elsewhere=True)
    db.execute(
        "UPDATE tasks SET state = 'dead_letter', completed_at = now() - interval '1 s', error = E'x\\ty\\x1b[0m'"
    )
    for args in (("dlq", "list"), ("dlq", "groups")):
        [row] = lines(run(*args))
        assert "\x1b" not in "".join(row)
        assert len(row) == (5 if args[1] == "list" else 7)


def test_the_bounds_of_a_queue_are_set_listed_and_removed(run: Run, url: str) -> None:
    assert run("backpressure", "set", "mail", "--max-wait", "60", "--max-pending", "5000").exit_code == 0
    assert run("backpressure", "list").stdout.split()[-4:] == ["mail", "60", "s", "5,000"]
    assert json.loads(run("backpressure", "list", "--json").stdout)["max_pending"] == 5000
    assert "no bounds any more" in run("backpressure", "clear", "mail").stderr
    assert "had no bounds" in run("backpressure", "clear", "mail").stderr
    assert run("backpressure", "set", "mail").exit_code == 2
    assert run("backpressure", "set", "mail", "--max-wait", "0").exit_code == 2
