"""Every statement and every call has a declared route."""

from __future__ import annotations

from pathlib import Path

import pytest

import tasklib
from tasklib import Client, Config
from tasklib.client.calls import Calls
from tasklib.client.sharded_calls import ShardedCalls
from tasklib.db.query import Query
from tasklib.errors import ConfigError
from tasklib.sharding.routes import FOR_ONE_SHARD, ROUTES

SQL = Path(tasklib.__file__).parent / "sql"
STATEMENTS = {file.stem for file in SQL.rglob("*.sql") if file.parent.name not in ("fragments", "testing")}
BY_STATEMENTS = """
    get_task list_tasks search_tasks suggest saved_searches save_search delete_search wait_for wait_for_json
    wait_until_done cancel_task replay_task run_task_now edit_task signal_on_record steps_of approvals approval approve
    reject answer explain_task queue_position workers drain_worker pause resume pauses bound_queue queue_bounds
    bound_name name_bounds limits set_limit remove_limit reset_limit sync_limits breakers set_breaker remove_breaker
    reset_breaker open_breaker close_breaker sync_breakers settings change_settings cancel_found replay_found
    cancel_chosen replay_chosen count_states failures dead_letters dead_letter_groups latest_dead_letter_groups
    dead_letters_alike replays get_replay pause_replay resume_replay stop_replay flows get_flow node_results
    create_token tokens revoke_token audit
"""
"""Calls that go where their statements go."""
BY_ANOTHER = "submit submit_task submit_many"
"""Calls that another call carries out."""


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_") and callable(getattr(of, name))}


def test_each_statement_has_a_route_or_a_reason_to_have_none() -> None:
    alone = [name for names in FOR_ONE_SHARD.values() for name in names.split()]
    assert len(set(alone)) == len(alone)
    assert set(alone).isdisjoint(ROUTES)
    assert {*alone, *ROUTES} == STATEMENTS


def test_each_call_goes_by_its_statements_or_has_a_way_of_its_own() -> None:
    own = public(ShardedCalls) & set(dir(Calls))
    own = {name for name in own if getattr(ShardedCalls, name) is not getattr(Calls, name)}
    by_statements, by_another = set(BY_STATEMENTS.split()), set(BY_ANOTHER.split())
    assert own.isdisjoint(by_statements | by_another)
    assert own | by_statements | by_another == public(Calls)


def test_a_statement_for_one_shard_is_refused(client: Client) -> None:
    with pytest.raises(ConfigError, match=r"rescue is for one shard \(a worker or the leader runs it\)"):
        client.database.run(Query("rescue", {}, list))


def test_one_shard_alone_is_a_plain_client(config: Config) -> None:
    with Client(Config(shards=config.shards[3:])) as client:
        assert type(client.calls) is Calls
        assert client.config.shard == 3
        assert client.get_task(client.submit_task("work", registered_elsewhere=True)) is not None
