"""`tasklib flow`: which flow is meant, and what is asked first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasklib import Client, chain, group, task
from tests.cli.conftest import Run


@task(name="flow_cli.part")
def part(n: int = 0) -> int:
    return n


@task(name="flow_cli.total")
def total(parts: list[int]) -> int:
    return sum(parts)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def test_a_flow_is_found_by_the_end_of_its_id(run: Run, client: Client) -> None:
    first = client.submit_flow(chain(part.s(), part.s()))
    client.submit_flow(group([part.s(1)]).then(total.s()))
    end = str(first.id)[-12:]
    for command in ("show", "graph"):
        shown = run("flow", command, end)
        assert shown.exit_code == 0, shown.output
        assert "flow_cli.total" not in shown.output
    assert str(first.id) in run("flow", "show", end).output
    assert client.get_flow(first.id).info.state == "running"


@pytest.mark.parametrize("text", ["nonsense", "ffffffffffff"])
def test_a_flow_that_is_not_found_is_named(run: Run, client: Client, text: str) -> None:
    failed = run("flow", "show", text)
    assert failed.exit_code != 0
    assert text in failed.output
    assert "flow" in failed.output


@pytest.mark.parametrize("command", ["cancel", "replay"])
def test_cancel_and_replay_ask_first(run: Run, client: Client, command: str) -> None:
    flow = client.submit_flow(chain(part.s(), part.s()))
    if command == "replay":
        client.cancel_flow(flow.id)
    before = client.get_flow(flow.id).info.state
    refused = run("flow", command, str(flow.id))
    assert refused.exit_code != 0
    assert f"this would {command} 2 tasks" in refused.output
    assert "--yes" in refused.output
    assert "--dry-run" not in refused.output, "there is no such option"
    assert client.get_flow(flow.id).info.state == before
    assert run("flow", command, str(flow.id)[-12:], "--yes").exit_code == 0
    assert client.get_flow(flow.id).info.state != before


def test_a_group_with_a_join_is_listed_as_a_group(run: Run, client: Client) -> None:
    client.submit_flow(group([part.s(1)]).then(total.s()))
    client.submit_flow(chain(group([part.s(1)]), total.s()))
    assert [info.name for info in client.flows()] == ["chain", "group"]
    listed = run("flow", "list").output
    assert "\tgroup\t" in listed
    assert "\tchain\t" in listed
