"""Which duties there are, and how often each is due."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.maintenance.breakers import EVERY_SECONDS, move_breakers
from tasklib.maintenance.dead_letters import expire_dead_letters
from tasklib.maintenance.dead_workers import bury_dead_workers
from tasklib.maintenance.duties import Duty
from tasklib.maintenance.gates import sweep_gates
from tasklib.maintenance.idempotency import expire_keys
from tasklib.maintenance.orphans import rescue_orphans
from tasklib.maintenance.overdue import fail_overdue
from tasklib.maintenance.payloads import sweep_payloads
from tasklib.maintenance.replays import INTERVAL_SECONDS, work_replays
from tasklib.maintenance.retention import delete_expired
from tasklib.maintenance.snapshot import take_snapshot
from tasklib.maintenance.stats import fold_stats


def duties_of(config: Config) -> Sequence[Duty]:
    """The leader's duties, in the order of a round: recovery often, upkeep now and then."""
    often, now_and_then = config.sweep_interval_seconds, config.upkeep_interval_seconds
    stored = [Duty("payloads", now_and_then, sweep_payloads)] if config.payload_store is not None else []
    return [
        Duty("replays", min(INTERVAL_SECONDS, often), work_replays),
        Duty("dead workers", often, bury_dead_workers),
        Duty("orphans", often, rescue_orphans),
        Duty("overdue", often, fail_overdue),
        Duty("gates", often, sweep_gates),
        Duty("snapshot", often, take_snapshot),
        Duty("stats", often, fold_stats),
        Duty("breakers", min(EVERY_SECONDS, often), move_breakers),
        Duty("idempotency", now_and_then, expire_keys),
        Duty("dead letters", now_and_then, expire_dead_letters),
        Duty("retention", now_and_then, delete_expired),
        *stored,
    ]
