"""`tasklib keys`: new keys, how much each seals, and rotation with what it left."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner, Result

from tasklib import Config, task
from tasklib.cli.app import app
from tasklib.client.clients import Client
from tasklib.client.sealing import opened_task

KEYS = {name: f"{name}:{b64encode(bytes([n] * 32)).decode()}" for n, name in enumerate(("old", "new", "lost"))}


def run(config: Config, *arguments: str, keys: str | None) -> Result:
    environment = {"TASKLIB_KEYS": keys, "TASKLIB_KEYS_FILE": None}
    return CliRunner().invoke(app, ["keys", *arguments, "--database-url", config.database_url], env=environment)


@pytest.fixture
def sealed(config: Config, db: psycopg.Connection) -> Config:
    @task(name="pay", sealed=True)
    async def pay(iban: str) -> None: ...

    for key, count in (("old", 3), ("lost", 1)):
        with Client(config.with_changes(keys=KEYS[key])) as client:
            for n in range(count):
                client.submit_task(pay, iban=f"DE{n}")
    return config


def test_a_new_key_is_printed_in_the_form_that_the_setting_takes() -> None:
    done = CliRunner().invoke(app, ["keys", "new", "2026-11"])
    name, _, encoded = done.stdout.strip().partition(":")
    assert (done.exit_code, name, len(b64decode(encoded))) == (0, "2026-11", 32)
    assert CliRunner().invoke(app, ["keys", "new", "2026-11"]).stdout != done.stdout
    assert CliRunner().invoke(app, ["keys", "new", "no spaces"]).exit_code != 0


def test_status_counts_tasks_by_key_and_says_which_may_go(sealed: Config) -> None:
    done = run(sealed, "status", "--json", keys=f"{KEYS['new']},{KEYS['old']}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(k["key_id"], k["tasks"], k["unfinished"], k["here"], k["state"]) for k in found] == [
        ("new", 0, 0, True, "seals new tasks"),
        ("old", 3, 3, True, "needed"),
        ("lost", 1, 1, False, "missing here"),
    ]


def test_rotation_seals_anew_and_then_the_old_key_may_go(sealed: Config, db: psycopg.Connection) -> None:
    keys = f"{KEYS['new']},{KEYS['old']}"
    done = run(sealed, "rotate", "old", keys=keys)
    assert (done.exit_code, done.stdout) == (0, "Sealed 3 tasks anew with new; 0 of old left.\n")
    assert db.execute("SELECT count(*) FROM tasks WHERE key_id = 'new'").fetchone() == (3,)
    status = run(sealed, "status", keys=keys).stdout
    assert [line.split("\t")[-1] for line in status.splitlines() if line.startswith("old")] == ["may go"]
    with Client(sealed.with_changes(keys=KEYS["new"])) as client:
        ids = [row[0] for row in db.execute("SELECT id FROM tasks WHERE key_id = 'new' ORDER BY id").fetchall()]
        opened = [opened_task(client.config, found) for id_ in ids if (found := client.get_task(id_))]
    assert [each.kwargs for each in opened] == [{"iban": f"DE{n}"} for n in range(3)]


def test_rotation_lists_what_it_can_not_open_and_ends_with_an_error(sealed: Config, db: psycopg.Connection) -> None:
    row = db.execute("SELECT min(id::text) FROM tasks WHERE key_id = 'old'").fetchone()
    assert row is not None
    db.execute('UPDATE tasks SET kwargs = \'{"$sealed": "AQNvbGQ="}\' WHERE id = %s', (UUID(row[0]),))
    done = run(sealed, "rotate", "old", keys=f"{KEYS['new']},{KEYS['old']}")
    assert done.exit_code == 1
    assert f"✗ {row[0]} can't be opened" in done.stdout
    assert "Sealed 2 tasks anew with new; 1 of old left." in done.stdout


@pytest.mark.parametrize(
    ("old", "keys", "said"),
    [
        ("old", None, "there are no keys here"),
        ("new", f"{KEYS['new']},{KEYS['old']}", "Put a new one before it"),
        ("lost", f"{KEYS['new']},{KEYS['old']}", "'lost' is not in this program's keyring"),
    ],
)
def test_a_rotation_that_can_not_be_is_refused_in_a_line(sealed: Config, old: str, keys: str | None, said: str) -> None:
    done = run(sealed, "rotate", old, keys=keys)
    assert done.exit_code != 0
    assert said in done.output + str(done.exception or "")
