"""`tasklib shard`, and the commands that do the same in every shard."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasklib import Shard, task
from tasklib.cli import shard as command
from tasklib.cli.shards_file import changing, with_weight
from tasklib.errors import ConfigError
from tasklib.migrations.revisions import head
from tasklib.shards import PastWeight, read_shards
from tests.cli.conftest import Run
from tests.worker.sharded import Sharded, sharded

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
_NOWHERE = "postgresql://postgres@127.0.0.1:1/none"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path) -> Path:
    """The file of the shards, which the environment names, and does not exist yet."""
    file = tmp_path / "shards.toml"
    monkeypatch.setenv("TASKLIB_SHARDS_FILE", str(file))
    monkeypatch.setattr(command, "NOTICE_SECONDS", 0.0)
    return file


@pytest.fixture
def two(server_url: str, template_database: str, file: Path) -> Iterator[Sharded]:
    with sharded(server_url, template_database, (0, 1)) as made:
        with changing(file) as shards:
            shards += made.config.shards
        yield made


def test_what_is_written_is_read_again(file: Path) -> None:
    written = [
        Shard(0, "postgresql://app@db1/app", past=(PastWeight(NOON, 0.0), PastWeight(NOON + timedelta(hours=1), 2.5))),
        Shard(7, "host=db2 dbname=app", 'Odd "schema" \x7f', 0.0, listen_database_url="postgresql://db3/app"),
        Shard(9, "postgresql://me:pß@db9/app", weight=1e-7),
    ]
    with changing(file) as shards:
        shards += written
    assert read_shards(file) == tuple(written)


def test_a_change_keeps_the_mode_of_the_file_and_leaves_no_other(file: Path) -> None:
    with changing(file) as shards:
        shards.append(Shard(0, "postgresql://app@db1/app"))
    assert file.stat().st_mode & 0o777 == 0o600, "it may hold passwords"
    file.chmod(0o640)
    with changing(file) as shards:
        shards[0] = replace(shards[0], weight=3.0)
    assert file.stat().st_mode & 0o777 == 0o640
    assert set(os.listdir(file.parent)) == {file.name, "project"}


def test_a_change_that_fails_or_is_refused_leaves_the_file_as_it_was(file: Path) -> None:
    with changing(file) as shards:
        shards.append(Shard(0, "postgresql://app@db1/app"))
    before = file.read_text()
    with pytest.raises(ConfigError, match="all shards are closed"), changing(file) as shards:
        shards[0] = replace(shards[0], weight=0.0)
    with pytest.raises(IndexError), changing(file) as shards:
        del shards[0], shards[0]
    assert file.read_text() == before


def test_changes_at_the_same_time_are_all_made(file: Path) -> None:
    def add(number: int) -> None:
        with changing(file) as shards:
            shards.append(Shard(number, f"postgresql://app@db{number}/app"))

    threads = [threading.Thread(target=add, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [shard.number for shard in read_shards(file)] == list(range(8))


def test_a_new_weight_records_the_one_before_and_replaces_what_was_planned() -> None:
    shard = Shard(1, "postgresql://app@db1/app", weight=2.0)
    closed = with_weight(shard, 0.0, NOON)
    assert (closed.weight, closed.past) == (0.0, (PastWeight(NOON, 2.0),))
    soon = NOON - timedelta(seconds=1)
    assert with_weight(closed, 3.0, soon).past == (PastWeight(soon, 2.0),), "it was never closed"
    later = NOON + timedelta(days=1)
    assert with_weight(closed, 3.0, later).past == (PastWeight(NOON, 2.0), PastWeight(later, 0.0))


def test_add_makes_the_tables_and_the_file(run: Run, file: Path, empty_database_url: str) -> None:
    dry = run("shard", "add", "3", "--database-url", empty_database_url, "--dry-run")
    assert dry.stdout == f"would add shard 3, after running {head()}\n"
    assert not file.exists()
    done = run("shard", "add", "3", "--database-url", empty_database_url)
    assert (done.exit_code, done.stdout) == (0, "shard 3 is added with weight 1\n")
    assert read_shards(file) == (Shard(3, empty_database_url),)
    assert run("migrate", "--check").stdout == f"shard 3: up to date (revision {head()})\n"
    again = run("shard", "add", "3", "--database-url", empty_database_url)
    assert again.exit_code == 1
    assert "there is a shard 3 already" in again.stderr


def test_a_shard_that_is_added_to_others_had_no_keys_before(
    run: Run, two: Sharded, file: Path, database_url: str
) -> None:
    assert run("shard", "add", "2", "--database-url", database_url, "--weight", "2").exit_code == 0
    [past] = read_shards(file)[2].past
    assert (past.weight, read_shards(file)[2].weight) == (0.0, 2.0)


def test_a_schema_with_the_number_of_another_shard_is_not_added(run: Run, two: Sharded, file: Path) -> None:
    other = two.config.shards[1].database_url
    with changing(file) as shards:
        del shards[1]
    refused = run("shard", "add", "5", "--database-url", other)
    assert refused.exit_code == 1
    assert "is shard 1" in refused.stderr
    assert len(read_shards(file)) == 1


def test_close_and_open_change_the_weight_and_say_so(run: Run, two: Sharded, file: Path) -> None:
    before = file.read_text()
    assert run("shard", "close", "1", "--dry-run").stdout == "shard 1 would be closed, instead of weight 1\n"
    assert file.read_text() == before
    assert run("shard", "close", "1").stdout.startswith("shard 1 is closed from ")
    assert run("shard", "close", "1").stdout == "shard 1 is closed already\n"
    assert run("shard", "open", "1", "--weight", "0.5").stdout.startswith("shard 1 is open with weight 0.5 from ")
    shard = read_shards(file)[1]
    assert shard.weight == 0.5
    assert [past.weight for past in shard.past] == [1.0, 0.0]


def test_the_last_open_shard_can_not_be_closed_and_unknown_ones_are_named(run: Run, two: Sharded, file: Path) -> None:
    assert run("shard", "close", "1").exit_code == 0
    refused, unknown = run("shard", "close", "0"), run("shard", "close", "8")
    assert refused.exit_code == unknown.exit_code == 1
    assert "all shards are closed" in refused.stderr
    assert "there is no shard 8 in the file. Known: 0, 1." in unknown.stderr


def test_drain_closes_a_shard_and_waits_for_its_tasks(
    run: Run, two: Sharded, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task
    async def work() -> None: ...

    task_id = two.clients[1].submit_task(work)
    assert run("shard", "drain", "1", "--dry-run").stdout.splitlines()[1] == "would wait for 1 tasks of shard 1"
    assert run("shard", "drain", "1", "--timeout", "0").exit_code == 1
    assert not read_shards(file)[1].is_open

    def sleep(seconds: float) -> None:
        if seconds == command._LOOK_SECONDS:
            two.clients[1].cancel_task(task_id)

    monkeypatch.setattr(command.time, "sleep", sleep)
    done = run("shard", "drain", "1")
    assert done.stdout.splitlines()[1:] == ["shard 1: 1 tasks are not finished", "shard 1 is drained"]


def test_list_shows_each_shard_and_why_one_can_not_be_looked_at(run: Run, two: Sharded, file: Path) -> None:
    @task
    async def work() -> None: ...

    two.clients[1].submit_task(work)
    assert run("shard", "list").exit_code == 0
    with changing(file) as shards:
        shards.append(Shard(2, _NOWHERE, "jobs"))
    listed = run("shard", "list")
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    assert listed.exit_code == 1
    assert [(row[0], row[2], row[3], row[4]) for row in rows] == [
        ("0", "", "1", "0"),
        ("1", "", "1", "1"),
        ("2", "jobs", "1", "?"),
    ]
    assert [row[5] for row in rows[:2]] == ["ok", "ok"]
    assert "can't connect" in rows[2][5]


def test_migrate_goes_through_all_shards_and_names_those_that_fail(
    run: Run, two: Sharded, file: Path, empty_database_url: str
) -> None:
    with changing(file) as shards:
        shards += [Shard(2, _NOWHERE), Shard(3, empty_database_url)]
    done = run("migrate")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"shard 0: up to date (revision {head()})",
        f"shard 1: up to date (revision {head()})",
        f"shard 3: ran {head()}",
    ]
    assert done.stderr.startswith("shard 2:\nerror: can't connect")
    assert "leave TASKLIB_SHARDS_FILE out" in run("migrate", "--from-0.1").stderr


def test_doctor_looks_at_all_shards(run: Run, two: Sharded, file: Path) -> None:
    with changing(file) as shards:
        shards.append(Shard(2, _NOWHERE))
    found = run("doctor", "--json")
    assert found.exit_code == 2
    findings = json.loads(found.stdout)["findings"]
    assert {finding["shard"] for finding in findings} == {0, 1, 2}
    assert [f["code"] for f in findings if f["shard"] == 2] == ["database_unavailable"]
    for_people = run("doctor", "--quiet").stdout.splitlines()
    assert {"shard 0", "shard 1", "shard 2"} <= set(for_people)
