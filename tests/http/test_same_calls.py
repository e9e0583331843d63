"""Clients over HTTP have the calls of clients with a database, or say that there is no route."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tasklib import AsyncClient, Client
from tasklib.errors import ConfigError, InvalidOption
from tasklib.http import AsyncHttpClient, HttpClient
from tests.http import test_same_answers, test_same_flows
from tests.http.comparing import UNKNOWN

# What the dashboard asks of its own server, and what needs a client with a database.
WITHOUT_A_ROUTE: dict[str, Any] = {
    "search_tasks": ["state:failed"],
    "suggest": ["state:f"],
    "cancel_found": ["state:failed"],
    "replay_found": ["state:dead_letter"],
    "cancel_chosen": [[UNKNOWN]],
    "replay_chosen": [[UNKNOWN]],
    "count_states": [],
    "latest_dead_letter_groups": [],
    "dead_letters_alike": ["abcdef"],
    "signal_on_record": [UNKNOWN, "approved"],
    "steps_of": [UNKNOWN],
    "sync_limits": [],
    "sync_breakers": [],
    "approval": [UNKNOWN],
}


def public_calls(kind: type) -> dict[str, inspect.Signature]:
    names = [n for n, f in vars(kind).items() if inspect.isfunction(f) and not n.startswith("_")]
    return {name: inspect.signature(getattr(kind, name)) for name in names}


def test_the_table_has_every_call() -> None:
    source = inspect.getsource(test_same_answers) + inspect.getsource(test_same_flows)
    apart = {"on_behalf_of", "on_shard", "perform", "close", "asynchronous", *WITHOUT_A_ROUTE}
    apart.add("answer")  # what approve() and reject() do
    assert [name for name in public_calls(AsyncClient) if name not in apart and f".{name}(" not in source] == []


@pytest.mark.parametrize("name", WITHOUT_A_ROUTE)
def test_what_has_no_route_says_so(name: str) -> None:
    with (
        HttpClient("http://localhost:1") as client,
        pytest.raises(InvalidOption, match="needs a client with"),
    ):
        getattr(client, name)(*WITHOUT_A_ROUTE[name])


@pytest.mark.parametrize("kind", [HttpClient, AsyncHttpClient])
def test_a_client_over_http_has_no_shards(kind: Any) -> None:
    with pytest.raises(ConfigError, match="has no shards"):
        kind("http://localhost:1").on_shard(0)


@pytest.mark.parametrize(("over_http", "plain"), [(HttpClient, Client), (AsyncHttpClient, AsyncClient)])
def test_the_calls_and_their_signatures_are_the_same(over_http: type, plain: type) -> None:
    calls = over_http.__init__.__globals__["HttpCalls"]  # type: ignore[misc]
    for name, signature in public_calls(plain).items():
        assert inspect.signature(getattr(over_http, name)).parameters == signature.parameters or name == "asynchronous"
        if own := vars(calls).get(name):
            wanted, given = inspect.signature(getattr(plain, name)).parameters, inspect.signature(own).parameters
            assert {n: (p.kind, p.default) for n, p in given.items()} == {
                n: (p.kind, p.default) for n, p in wanted.items()
            }
