"""Take each guard out and run the tests until one turns red: `make mutants`.

python -m proof.mutants.run                     all, and write proof/results/mutants.json
python -m proof.mutants.run --only complete     those of one file
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from proof.mutants.guards import Guard, guards, path, source, without
from tasklib.testing import databases

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "proof" / "results" / "mutants.json"
# From those that look at the statements themselves to those that see a difference from afar.
TESTS = (
    "tests/store/test_transitions.py tests/store/test_poison.py tests/store/test_lost_attempts.py "
    "tests/store/test_cancel_races.py",
    "tests/proof/test_interleavings.py",
    "tests/client/test_dead_letters.py tests/client/test_operations.py tests/client/test_ownership.py "
    "tests/client/test_idempotency.py tests/client/test_tokens.py",
    "tests/maintenance tests/worker/test_fleet_duties.py tests/worker/test_recovery.py tests/worker/test_cancel.py "
    "tests/backends/test_sleep.py tests/backends/test_guess.py tests/worker/test_shutdown.py",
    "tests/store",
)
_CLAIMS = ("tests/store/test_claim.py tests/store/test_claim_capabilities.py tests/store/test_order.py",)
_ENDS = ("tests/store/test_guards.py",)
_LOST = ("tests/store/test_lost_attempts.py",)
_CANCELS = ("tests/store/test_cancel_races.py tests/client/test_operations.py tests/client/test_ownership.py",)
_MERGES = ("tests/client/submit/test_unique.py tests/client/submit/test_unique_races.py",)
_SCHEDULES = (
    "tests/store/test_schedule_guards.py tests/maintenance/test_schedules.py tests/schedules/test_operations.py",
)
_DUTIES = (
    "tests/store/test_fleet_guards.py tests/maintenance/test_leader.py tests/maintenance/test_duties.py "
    "tests/worker/test_fleet_duties.py",
)
_FLOWS = (
    "tests/flows/test_guards.py tests/flows/test_gates.py tests/flows/test_parents.py tests/flows/test_races.py "
    "tests/flows/test_spawn.py tests/flows/test_corners.py tests/flows/test_operations.py",
    "tests/flows/test_flows.py tests/flows/test_runs.py tests/worker/test_gather.py tests/worker/test_durable.py "
    "tests/client/test_ownership.py tests/schedules/test_backfills.py",
)
_LIMITS = (
    "tests/store/test_limited_claim.py tests/worker/test_throttled.py tests/maintenance/test_breakers.py",
    "tests/worker/test_limit_blocks.py tests/client/test_backpressure.py",
    "tests/proof/test_interleavings.py -k limit",
)
_LIMIT_GUARDS = (
    "tests/store/test_limit_guards.py",
    "tests/worker/test_throttled.py tests/worker/test_limit_blocks.py tests/worker/test_limit_wakeups.py",
)
FIRST = {
    "0007_initial": _LIMITS,
    **dict.fromkeys(("fold", "reported", "unreported", "steps_replayed", "spawn", "adopt", "forget_flows"), _FLOWS),
    **dict.fromkeys(("flow_cancel", "flow_cancel_tasks", "flow_cancel_rest", "gates_with_arrivals"), _FLOWS),
    **dict.fromkeys(("flow_replay", "flow_replay_tasks", "flow_node_results"), _FLOWS),
    **dict.fromkeys(("flows_to_cancel", "to_cancel", "members_after"), ("tests/flows/test_members.py", *_FLOWS)),
    "schedule_run_one_by_one": ("tests/schedules/test_backfills.py",),
    **dict.fromkeys(("take", "lanes", "claim", "our_name"), _CLAIMS),
    **dict.fromkeys(
        ("complete", "complete_reporting", "complete_unlocked", "fail", "release", "stop", "extend", "progress"), _ENDS
    ),
    **dict.fromkeys(("settled", "still_held"), _ENDS),
    **dict.fromkeys(("begin", "begun", "held", "may_have_begun"), _LOST),
    **dict.fromkeys(("cancel", "cancellable", "cancel_batch", "owned"), _CANCELS),
    **dict.fromkeys(("rescue", "fail_overdue", "taken_back"), (*_LOST, *_DUTIES)),
    **dict.fromkeys(("bury_workers", "leader", "lead", "resign", "retain"), _DUTIES),
    **dict.fromkeys(("expire_keys", "expire_dead_letters"), _DUTIES),
    **dict.fromkeys(("replay_dead_letters", "purge_dead_letters"), ("tests/client/test_dead_letters.py",)),
    **dict.fromkeys(("token_usable", "token_revoke"), ("tests/store/test_tokens.py tests/client/test_tokens.py",)),
    **dict.fromkeys(("worker_heartbeat", "worker_drain"), ("tests/store/test_fleet_guards.py",)),
    **dict.fromkeys(("schedule_fire", "schedule_skips_recorded", "forget_skips", "schedule_change"), _SCHEDULES),
    **dict.fromkeys(("schedule_pause", "schedule_retire", "schedule_deployed", "has_unfinished_run"), _SCHEDULES),
    **dict.fromkeys(("place_take", "place_leave", "throttled", "pass_on"), _LIMIT_GUARDS),
    "claim_limited": ("tests/store/test_limited_claim.py",),
    **dict.fromkeys(("breakers_judge", "breakers_probe"), ("tests/maintenance/test_breakers.py",)),
    "replay": ("tests/store/test_transitions.py tests/client/test_ownership.py",),
    **dict.fromkeys(("record_steps", "consume_signal", "suspend"), ("tests/store/test_durable.py",)),
    "claim_next": ("tests/store/test_claim_next.py",),
    **dict.fromkeys(("merging", "merged", "same_merge_key", "submit_replacing", "replayed"), _MERGES),
    "set_apart": ("tests/store/test_set_apart.py",),
    "submit_once": ("tests/client/test_idempotency.py tests/client/submit/test_keys.py",),
}
"""Where a statement's guards are most likely to be missed."""
_HELD_RUNS = "a task with a worker runs: the table's own check, tasks_running_has_lease, says so"
EQUIVALENT: dict[str, str] = {
    **{f"{name}: {{still_running}}": _HELD_RUNS for name in ("complete", "fail", "release", "stop", "extend")},
    **{
        f"{name}: {{still_running}}": _HELD_RUNS
        for name in ("complete_unlocked", "complete_reporting", "still_held", "progress", "begin")
    },
    "held: state = 'running'": _HELD_RUNS,
    "rescue: state = 'running'": _HELD_RUNS,
    **{f"{name}: {{still_running}}": _HELD_RUNS for name in ("record_steps", "consume_signal", "suspend")},
    **{f"{name}: {{still_running}}": _HELD_RUNS for name in ("spawn", "adopt")},
    "consume_signal: signal.task = next.task": "the numbers of signals are unique among all tasks",
    "rescue: {still_running}": _HELD_RUNS,
    "fail_overdue: state = 'running'": _HELD_RUNS,
    "fail_overdue: {still_running}": "matters to a task that ends between the snapshot and the lock of this one "
    "statement, where no test can step in",
    **dict.fromkeys(
        (
            "held: worker_id IN (SELECT worker_id FROM concerned)",
            "rescue: workers.id = task.worker_id",
            "fail_overdue: started_at + make_interval(secs => timeout_seconds + %(grace)s) < now()",
        ),
        "more workers would be looked at, each by itself; the condition below chooses the tasks",
    ),
    "bury_workers: reported_status = 'dead'": "a worker that lives would be changed twice by one statement, once each "
    "way: PostgreSQL carries out one of them and doesn't promise which",
    "cancellable: task.cancel_requested_at IS NULL": "these are cancelled one by one, by a statement that checks it",
    "expire_keys: idempotency_key IS NOT NULL": "without a key there is no end of it; the condition is the index's",
    "leader: holder = %(holder)s": "no two holders have the same term",
    **dict.fromkeys(
        ("schedule_retire: source = 'code'", "schedule_deployed: schedule.source = 'code'"),
        "a schedule that was made at run time has no stamp of a deploy, and none is older than that",
    ),
    "submit_once: inserted.name = known.name": "a task that was known under the same key and another name would not "
    "come back; the caller asks again for what is missing, and gets it",
    **dict.fromkeys(
        (
            "take: due <= until",
            "take: {include in_lane}",
            "take: ({due}, id) > (since, since_id)",
            "take: {due} <= until",
        ),
        "a band would be listed that has no task, and nothing be taken from it",
    ),
    "throttled: ended.lane >= E'\\x01'": "an empty lane has no parts, and names no limit",
    "breakers_probe: probes - passed > cardinality(probe_ids)": "a breaker that has all its probes is given none more",
    "breakers_probe: COALESCE(task.state, '') IN ('pending', 'failed')": "matters to a task that is claimed between "
    "the snapshot and the lock of this one statement, where no test can step in",
    **dict.fromkeys(
        (
            "breakers_judge: failures IS NOT NULL",
            "breakers_judge: state = 'closed'",
            "breakers_judge: state = 'closed' (2)",
        ),
        "what is counted is compared with the bounds of a closed breaker only, and one that is off has none",
    ),
    "breakers_judge: watched.state = 'probing'": "no other breaker has probes",
    "breakers_judge: COALESCE(task.state, '') IN ('pending', 'failed')": "a late probe is in one of these states, "
    "unless it is claimed between the snapshot and the lock of this one statement",
    "take: groups.bands > 1": "one band would be merged with itself, which only takes longer",
}
"""Conditions without which nothing can be seen to differ, and why they stand all the same. Only --again tries them."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.mutants.run", description=__doc__)
    parser.add_argument("--only", default="", help="the guards whose name begins so")
    parser.add_argument("--again", action="store_true", help="also those that were caught before")
    parser.add_argument("--first", action="store_true", help="only by the tests that are most likely to miss them")
    given = parser.parse_args()
    known: dict[str, str] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known = {guard.name: known[guard.name] for guard in guards() if guard.name in known}
    with databases.server() as server:
        for guard in guards():
            if guard.name.startswith(given.only) and (given.again or not known.get(guard.name)):
                is_tried = given.again or guard.name not in EQUIVALENT
                known[guard.name] = caught_by(guard, server, all_tests=not given.first) if is_tried else ""
                print(
                    f"{guard.name}\n    {known[guard.name] or EQUIVALENT.get(guard.name) or 'NOT CAUGHT'}", flush=True
                )
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n")
    escaped = [name for name, test in known.items() if not test and name not in EQUIVALENT]
    print(f"{len(known)} guards, {len(escaped)} not caught")
    sys.exit(bool(escaped))


def caught_by(guard: Guard, server: str | None = None, *, all_tests: bool = True) -> str:
    """The test that turns red without this guard; empty if none does. `server` spares each run one of its own."""
    with tempfile.TemporaryDirectory(prefix="tasklib-mutant-") as directory:
        copy = Path(directory) / "src"
        shutil.copytree(ROOT / "src", copy)
        (copy / path(guard.file).relative_to(ROOT / "src")).write_text(without(guard, source(guard.file)))
        for group in (*FIRST.get(guard.file, ()), *(TESTS if all_tests else ())):
            red_anyway: list[str] = []
            while test := _red(copy, server, [*group.split(), *red_anyway]):
                if not _red(ROOT / "src", server, [test]):
                    return test
                # Whatever ails it, it isn't the missing guard.
                red_anyway += ["--deselect", test]
    return ""


def _red(src: Path, server: str | None, tests: list[str]) -> str:
    """The first test that fails. Slowness is no verdict: the time-out is far beyond what any of these tests takes."""
    environment = {**os.environ, "PYTHONPATH": f"{src}:{ROOT}"}
    if server is not None:
        environment["TASKLIB_TEST_DATABASE_URL"] = server
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout", "600", *tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    if found := first_red(done.stdout):
        return found
    raise RuntimeError(f"the tests could not run: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def first_red(said: str) -> str:
    """The first test in pytest's summary. What is in its brackets may hold the dash that stands before the reason."""
    found = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\])?)(?: - |$)", said, re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    main()
