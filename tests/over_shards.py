"""`pytest --over-shards`: tests that know only a configuration run over four shards, on two servers.

Left out are tests that look into the one database they were given, and those in `LEFT_OUT`, each with the reason.
Those of flows are left out as a whole: most drain with `tasklib.testing.drain`, which takes one shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tasklib import Config, Shard
from tasklib.migrations import migrate
from tasklib.testing import databases
from tasklib.testing.databases import with_database
from tasklib.testing.reused_databases import ReusedDatabases

SHARDS = 4
_OF_ONE_DATABASE = frozenset({"db", "database_url", "empty_database_url", "template_database"})
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "is about one connection to one database": (
        "client/lookup/test_outages.py::test_wait_whose_time_is_up_in_an_outage_says_that_the_database_is_away",
        "client/test_silence.py::test_a_free_connection_is_not_waited_for_without_end",
        "client/test_silence.py::test_a_migration_may_take_as_long_as_it_takes",
        "client/test_silence.py::test_a_statement_on_a_silent_link_ends_with_an_error",
        "client/test_silence.py::test_the_time_of_a_statement_is_up_by_the_clock_and_not_by_how_often_it_was_looked_at",
        "worker/test_reconnecting.py::test_an_error_of_the_function_an_answer_is_handed_to_is_raised",
    ),
    "counts records, or connections, of which each shard has its own": (
        "client/test_audit.py::test_a_client_acts_on_behalf_of_others_on_the_same_connections",
        "client/test_audit.py::test_records_are_found_by_action_actor_and_target",
    ),
    "counts the round trips on one connection": (
        "client/test_submit_cost.py::test_a_large_batch_is_one_copy_in_large_pieces",
        "client/test_submit_cost.py::test_a_small_batch_is_one_statement",
        "client/test_submit_cost.py::test_the_first_task_is_one_round_trip_too",
        "client/test_submit_cost.py::test_without_prepared_statements_every_task_is_one_round_trip",
    ),
    "drains with tasklib.testing.drain, or connects itself, with the configuration of one shard": (
        "client/test_erasing.py::test_an_erased_task_that_is_replayed_is_a_dead_letter_at_once",
        "worker/test_durable.py::test_a_signal_is_waited_for_without_a_slot",
        "worker/test_durable.py::test_a_signal_that_comes_before_the_task_runs_is_kept",
        "worker/test_gather.py::test_a_cancelled_child_raises_with_the_reason",
        "worker/test_gather.py::test_a_failed_child_raises_once_all_have_ended_and_may_be_handled",
        "worker/test_gather.py::test_gathering_an_empty_group_waits_for_nothing",
        "worker/test_gather.py::test_settled_gives_states_and_errors",
        "worker/test_gather.py::test_sync_functions_gather_too",
        "worker/test_gather.py::test_waiting_for_another_task_in_a_running_one_is_refused_with_what_to_write",
        "worker/test_payload_store.py::test_arguments_that_replace_those_of_a_waiting_task_stay_in_the_table",
        "worker/test_payload_store.py::test_what_is_missing_or_changed_in_the_store_is_a_dead_letter_at_once",
        "worker/test_sealed.py::test_a_client_without_the_key_is_told_which_one",
        "worker/test_stats.py::test_the_first_worker_of_a_deploy_announces_it",
    ),
    "reaches into the worker, which has one of these parts for each shard": (
        "worker/test_fleet.py::test_worker_asked_to_drain_finishes_what_it_runs_and_stops",
        "worker/test_hooks.py::test_a_shutdown_hook_that_raises_is_reported_and_the_others_run",
        "worker/test_limit_wakeups.py::test_a_limit_that_is_changed_wakes_workers",
        "worker/test_processes.py::test_cancelled_child_is_killed",
        "worker/test_processes.py::test_time_of_an_attempt_runs_from_when_its_child_calls_the_function",
        "worker/test_progress.py::test_last_progress_of_a_cancelled_task_is_stored",
        "worker/test_shutdown.py::test_attempt_interrupted_before_its_first_step_is_given_back",
        "worker/test_shutdown.py::test_released_work_wakes_another_worker",
    ),
    "holds within a shard: of a block with limit(), of a limit that a task names when it runs": (
        "worker/test_limit_blocks.py::test_blocks_and_tasks_behind_the_same_limit_count_together",
        "worker/test_throttled.py::test_throttled_may_name_the_limit_and_one_without_a_row_is_held_too",
    ),
    "submits keys of several shards in one call, which is refused": (
        "worker/test_limits.py::test_a_limit_by_key_is_shared_by_the_functions_that_name_it",
        "worker/test_limits.py::test_serial_keys_keep_their_orders_beside_each_other",
    ),
    "elects a leader, which each shard has": (
        "worker/test_payload_store.py::test_the_leader_of_a_shard_leaves_the_payloads_of_other_shards",
    ),
    "gives one database another address": (
        "worker/test_startup.py::test_worker_does_not_wait_for_what_only_a_person_can_mend",
        "worker/test_startup.py::test_worker_gives_up_at_the_limit_and_names_it",
        "worker/test_startup.py::test_worker_started_in_an_outage_waits_says_so_and_works_when_it_is_over",
        "worker/test_startup.py::test_worker_without_a_limit_to_wait_fails_at_once",
    ),
}
"""Tests that say nothing over shards, by the reason."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--over-shards", action="store_true", help="run tests over four shards on two servers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("over_shards"):
        return
    chosen = [item for item in items if isinstance(item, pytest.Function) and _is_over_shards(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _is_over_shards(item: pytest.Function) -> bool:
    has_config = "config" in item.fixturenames and not _OF_ONE_DATABASE & set(item.fixturenames)
    name = item.nodeid.removeprefix("tests/").partition("[")[0]
    return has_config and not any(name in names for names in LEFT_OUT.values())


@pytest.fixture(scope="session")
def _shard_templates(server_url: str) -> Iterator[tuple[ReusedDatabases, ...]]:
    """A migrated database for each shard, half of them on a server of their own."""
    with ExitStack() as stack:
        servers = [server_url, stack.enter_context(databases.server())]
        reused = []
        for number in range(SHARDS):
            server = servers[number % len(servers)]
            template = stack.enter_context(databases.template(server))
            migrate(Config(with_database(server, template), shard=number))
            reused.append(stack.enter_context(closing(ReusedDatabases(server, template))))
        yield tuple(reused)


@pytest.fixture
def four_shards(_shard_templates: tuple[ReusedDatabases, ...]) -> Iterator[tuple[Shard, ...]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(reused.lend()) for reused in _shard_templates]
        yield tuple(Shard(number, url) for number, url in enumerate(urls))
