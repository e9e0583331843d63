"""Commands over shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tasklib import Client, Config, Shard
from tasklib.cli.app import app
from tasklib.doctor.run import examine
from tests.shards.conftest import GONE, without
from tests.shards.test_growing import write

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, shards: tuple[Shard, ...], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on these shards, or on others."""
    file = tmp_path / "shards.toml"
    monkeypatch.setenv("TASKLIB_SHARDS_FILE", str(file))
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)

    def invoke(*args: str, on: tuple[Shard, ...] = shards) -> Any:
        write(file, *on)
        return CliRunner().invoke(app, list(args), catch_exceptions=False)

    return invoke


def test_commands_work_over_all_shards(run: Run, client: Client) -> None:
    for n in range(8):
        client.submit_task("work", n=n, registered_elsewhere=True)
    assert len(run("list").stdout.splitlines()) == 8
    first = str(client.list_tasks()[0].id)
    assert run("show", first).exit_code == 0
    assert run("explain", first[-12:]).exit_code == 0
    assert "8" in run("cancel", "--all", "--yes").stdout
    assert run("audit").exit_code == 0
    assert run("pause", "--queue", "mail").exit_code == 0
    assert len(client.pauses()) == 1


def test_a_list_says_in_one_line_which_shards_it_is_without(run: Run, shards: tuple[Shard, ...]) -> None:
    found = run("list", on=(*shards[:3], Shard(3, GONE, "two")))
    assert found.exit_code == 0
    assert "shard 3 could not be reached; what is on it is missing from this answer" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_the_findings_of_a_client_over_shards_say_which_shard_they_are_about(config: Config) -> None:
    with Client(without(config, 3)) as client:
        findings = examine(client)
    assert {f.details["shard"] for f in findings} == {0, 1, 2, 3}
    assert [f.code for f in findings if f.details["shard"] == 3] == ["database_unavailable"]
    assert all(f.seen.startswith(f"Shard {f.details['shard']}: ") for f in findings)
