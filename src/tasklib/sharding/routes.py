"""Of each statement that clients and servers run: which shards it concerns, and how their answers become one.

A statement that is not in `ROUTES` is for one shard alone: claims, results, the leader's duties, doctor's checks.
`tests/sharding/test_routes.py` fails while a function of `store` has neither a route nor a reason to have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tasklib.db.query import Query
from tasklib.sharding import merged_figures as figures
from tasklib.sharding import merges
from tasklib.sql import quoted

Merge: TypeAlias = Callable[[Query[Any], Mapping[int, Any]], Any]


@dataclass(frozen=True, slots=True)
class ById:
    """The shard that has this task or flow: the one that its id names; else whichever knows it."""

    parameter: str = "id"
    otherwise: Merge | None = None
    """Where the parameter is None: all shards, and this."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Every shard; those that can't be reached are named, and the answer is made of the others."""

    merge: Merge
    adapt: Callable[[Query[Any], str | None], Query[Any]] | None = None
    """The query for a shard in this schema, where it differs from that for one alone."""


@dataclass(frozen=True, slots=True)
class EveryShard:
    """A change for every shard, the home shard first. An error names those that it did not reach: repeat it."""

    merge: Merge


@dataclass(frozen=True, slots=True)
class Home:
    """The shard with the lowest number: what exists once."""


def in_schema(query: Query[Any], schema: str | None) -> Query[Any]:
    """The same with the index of this schema, whose name is quoted."""
    name = query.parameters["index"].rpartition(".")[2]
    return replace(query, parameters={"index": f"{quoted(schema)}.{name}" if schema else name})


Route: TypeAlias = ById | Everywhere | EveryShard | Home

_BY_ID = (
    "get get_within outcome cancel replay run_now edit_look edit explain position limits_of fingerprint steps_of "
    "send_signal send_signal_audited sealed_with answer_approval flow_task_ids flow_nodes flow_gates flow_cancel "
    "flow_cancel_tasks flow_cancel_rest flow_replay flow_replay_tasks replay_change"
)
_HOME = (
    "now settings audit_record saved_search_list saved_search_save saved_search_delete who_leads declared_limits "
    "token_find token_any_ever token_usable_of token_used token_create token_list token_get token_revoke "
    "schedule_get schedule_list schedule_create schedule_change schedule_pause schedule_delete schedule_run "
    "schedule_run_one_by_one schedule_taken schedule_running schedule_runs schedule_skipped schedule_coming "
    "schedule_counts schedule_slot schedule_retire schedule_deployed where_is_tasks encoding revision "
    "backpressure_list notify"
)
_FOR_ALL = (
    "pause resume backpressure_set backpressure_clear worker_drain limit_set limit_remove limit_reset "
    "breaker_set breaker_remove breaker_reset breaker_open breaker_close"
)
_SEARCHES = "search_newest search_newer search_aside search_aside_newer search_flows search_flows_newer search_ids"

ROUTES: Mapping[str, Route] = {
    **dict.fromkeys(_BY_ID.split(), ById()),
    **dict.fromkeys(_HOME.split(), Home()),
    **dict.fromkeys(_FOR_ALL.split(), EveryShard(merges.any_of)),
    **dict.fromkeys(_SEARCHES.split(), Everywhere(merges.matches)),
    "flow_node_results": ById("flow"),
    "flow_parent": ById("flow"),
    "flow_list": ById("id", merges.newest),
    "replay_list": ById("id", merges.newest),
    "approvals": ById("task", merges.approvals),
    "change_settings": EveryShard(merges.first),
    "limits_sync": EveryShard(merges.most),
    "breakers_sync": EveryShard(merges.most),
    "list": Everywhere(merges.newest),
    "watched": Everywhere(merges.dicts),
    "search_waiting": Everywhere(merges.newest_and_more),
    "search_indexed_args": Everywhere(merges.newest_and_more),
    "search_indexed_tags": Everywhere(merges.newest_and_more),
    "has_search_index": Everywhere(merges.all_of, in_schema),
    "count_states": Everywhere(merges.capped_counts),
    "suggest": Everywhere(merges.suggestions),
    "cancel_batch": Everywhere(merges.sums),
    "cancel_rest": Everywhere(merges.lists),
    "replay_tasks": Everywhere(merges.lists),
    "dead_letters": Everywhere(merges.latest_dead_letters),
    "dead_letter_groups": Everywhere(merges.dead_letter_groups),
    "dead_letters_alike": Everywhere(merges.alike),
    "failure_causes": Everywhere(merges.failure_causes),
    "failure_values": Everywhere(merges.failure_values),
    "recent_failures": Everywhere(merges.recent_failures),
    "recent_attempts": Everywhere(merges.recent_attempts),
    "running": Everywhere(merges.lists),
    "ended": Everywhere(merges.lists),
    "backlog": Everywhere(figures.backlog),
    "backlog_by_name": Everywhere(figures.backlog_by_name),
    "running_count": Everywhere(merges.total),
    "levels": Everywhere(figures.levels),
    "depth_series": Everywhere(figures.depths),
    "state_counts": Everywhere(figures.state_counts),
    "fleet_figures": Everywhere(figures.fleet_figures, figures.with_each_worker),
    "behind_looks": Everywhere(figures.looks),
    "worker_list": Everywhere(figures.workers),
    "deploys": Everywhere(figures.deploys),
    "pause_list": Everywhere(figures.pauses),
    "limit_list": Everywhere(figures.limits),
    "limit_keys": Everywhere(figures.limit_keys),
    "limit_holders": Everywhere(merges.lists),
    "limit_waiting": Everywhere(merges.summed_dicts),
    "shares": Everywhere(figures.shares),
    "breaker_list": Everywhere(figures.breakers),
    "stats_totals": Everywhere(figures.stats),
    "stats_series": Everywhere(figures.series),
    "stats_series_by": Everywhere(figures.series_by),
    "stats_by": Everywhere(figures.busiest),
    "top_running": Everywhere(figures.top_running),
    "top_load": Everywhere(merges.summed_dicts),
    "written": Everywhere(merges.texts),
    "doctor_lanes": Everywhere(merges.lists),
    "key_counts": Everywhere(figures.key_counts),
    "sealed_page": Everywhere(merges.oldest),
    "unfinished_payloads": Everywhere(merges.oldest),
    "reseal": Everywhere(merges.sets),
}
"""By the name of the statement."""

FOR_ONE_SHARD = {
    "a worker or the leader runs it": (
        "claim claim_next claim_limited name_lanes leases_of outlook set_apart pass_on next_writer "
        "cancel_requests cancel_requests_of place_take place_leave complete complete_unlocked "
        "complete_reporting fail begin release stop extend progress still_held settled retry_counts record_steps "
        "consume_signal suspend spawn adopt children_look flow_results fold gates_with_arrivals flows_to_cancel "
        "forget_flows schedule_look schedule_fire forget_skips worker_register worker_count worker_get worker_may_take "
        "worker_heartbeat worker_may_begin worker_sleeps worker_deregister lead resign bury_workers rescue "
        "fail_overdue expire_keys without_tasks expire_dead_letters retain take_snapshot remember_names replay_open "
        "replay_advance replay_outcomes forget_replays stats_add stats_reported stats_fold count_arrivals "
        "stats_coarsen breakers_judge breakers_probe"
    ),
    "a call that goes to chosen shards as a whole runs it": (
        "submit submit_simple submit_one submit_one_once submit_given submit_once submit_unique submit_replacing "
        "submit_copy submit_copy_simple flow_submit flow_new audit_list key_holders shards_here backpressure_look "
        "cancel_look erase_look erasable erase keyed_names dead_letter_look replay_dead_letters "
        "purge_dead_letters replay_start"
    ),
    "doctor runs it": (
        "doctor_settings doctor_sessions doctor_slots doctor_prepared doctor_tables doctor_indexes "
        "doctor_backlog doctor_leases doctor_finished doctor_plan_settings doctor_claim_plan doctor_usage doctor_clock "
        "doctor_tzdata doctor_schedules limit_full limit_missing shard"
    ),
}
"""Statements without a route, by the reason."""
