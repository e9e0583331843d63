"""The guards: the conditions of every statement that changes a task, a worker, the lead or a token."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tasklib
from tasklib.sql import fragments, statements

GUARDED = (
    *(
        "complete",
        "complete_reporting",
        "complete_unlocked",
        "still_held",
        "fail",
        "release",
        "stop",
        "extend",
        "progress",
        "settled",
    ),
    *("begin", "begun", "held", "may_have_begun"),
    *("cancel", "cancellable", "cancel_batch", "replay", "replay_dead_letters", "purge_dead_letters"),
    *("rescue", "fail_overdue", "taken_back", "bury_workers", "leader", "lead", "resign"),
    *("take", "claim", "claim_next", "lanes", "our_name", "set_apart"),
    *("expire_keys", "expire_dead_letters", "retain", "owned", "submit_once"),
    *("merging", "merged", "same_merge_key", "submit_replacing", "replayed"),
    *("record_steps", "consume_signal", "suspend"),
    *("fold", "reported", "unreported", "steps_replayed", "spawn", "adopt", "forget_flows", "gates_with_arrivals"),
    *("flow_cancel", "flow_cancel_tasks", "flow_cancel_rest", "flow_replay", "flow_replay_tasks"),
    *("flows_to_cancel", "to_cancel", "members_after"),
    *("place_take", "place_leave", "throttled", "claim_limited", "pass_on", "breakers_judge", "breakers_probe"),
    *("flow_node_results", "schedule_run_one_by_one"),
    *("worker_heartbeat", "worker_drain", "token_usable", "token_revoke"),
    *("has_unfinished_run", "schedule_fire", "schedule_skips_recorded", "forget_skips"),
    *("schedule_change", "schedule_pause", "schedule_retire", "schedule_deployed"),
)
SCHEMA = Path(tasklib.__file__).parent / "migrations" / "versions" / "0007_initial.sql"
_SCHEMA = SCHEMA.stem
CHOSEN = (_SCHEMA,)
"""Files of which only the guards in EXPRESSIONS are taken out: the schema, for its functions."""
EXPRESSIONS = (
    # tasklib_admit
    (_SCHEMA, "IF met_blocked[place] IS NOT NULL THEN", "IF false THEN"),
    (_SCHEMA, "met_places[place] < 1 AND NOT (bursting AND use_names[i] = 'share')", "false"),
    # tasklib_take_place
    (_SCHEMA, "IF known.blocked_until > moment THEN", "IF false THEN"),
    (_SCHEMA, "IF running >= bound.max_running THEN", "IF false THEN"),
    (_SCHEMA, "/ each_seconds < cost - 0.000001 THEN", "/ each_seconds < -1 THEN"),
    (_SCHEMA, "COALESCE(runs.lease_token = p.token AND runs.state = 'running', false)", "true"),
    # tasklib_has_room
    (_SCHEMA, "found.oldest_age > found.max_wait OR", ""),
    (_SCHEMA, "OR found.pending >= found.max_pending", ""),
    ("begun", "COALESCE(task.begun_token = task.lease_token, false)", "true"),
    ("held", "ORDER BY started_at, {due}, id", "ORDER BY started_at DESC, {due} DESC, id DESC"),
    ("may_have_begun", "{include begun}", "false"),
    ("may_have_begun", "task.crash_count > 0", "false"),
    ("may_have_begun", "held.place <= COALESCE(held.may_begin, held.place)", "true"),
    ("rescue", "OR {include begun} AND (at_most_once IS TRUE", "OR true AND (at_most_once IS TRUE"),
    ("rescue", "(at_most_once IS TRUE OR crash_count + 1", "(crash_count + 1"),
    ("taken_back", "(attempt.begun AND NOT known)::int", "1"),
    ("taken_back", "(known AND NOT ends)::int", "1"),
    ("fail_overdue", "OR {include begun} AND (at_most_once IS TRUE", "OR true AND (at_most_once IS TRUE"),
    ("fail_overdue", "(at_most_once IS TRUE OR retry_count", "(retry_count"),
    ("fail", "OR ({include begun} AND task.at_most_once IS TRUE)", ""),
    ("breakers_judge", "attempts >= at_least AND", ""),
    ("breakers_judge", "AND failed > 0 AND", "AND"),
    ("breakers_judge", "AND failed >= failures * attempts THEN", "THEN"),
    ("breakers_judge", "WHEN state = 'open' AND until <= now() THEN", "WHEN state = 'open' THEN"),
    ("breakers_judge", "passed + newly_passed >= watched.probes", "passed + newly_passed > 0"),
    ("breakers_judge", "AND task.history -> -1 -> 'token' > to_jsonb(probe.token)", ""),
    ("breakers_judge", "AND task.lease_token > probe.token AND", "AND"),
    ("breakers_judge", "AND probed_at < now() - make_interval(secs => greatest(pause, 60))", ""),
    (_SCHEMA, "probed.name = w.name AND w.id = ANY (probed.probe_ids)", "true"),
    ("replayed", "merge_key = NULL,", "merge_key = merge_key,"),
    ("replayed", "merge_while = NULL,", "merge_while = merge_while,"),
    ("suspend", "cardinality(given.signals) > 0 AND task.signals_sent IS DISTINCT FROM given.seen", "false"),
    ("fold", "opened_at IS NOT NULL AND kind <> 'flow'", "false"),
    ("fold", "AND sealed AND completed + failed >= expected", "AND completed + failed >= expected"),
    ("fold", "failed > excused", "failed > 0"),
    ("fold", "AND sealed AND completed + excused >= expected", "AND completed + excused >= expected"),
    ("fold", "AND sealed AND completed >= needed", "AND completed >= needed"),
    ("fold", "AND sealed AND expected - failed < needed", "AND expected - failed < needed"),
    ("fold", "GREATEST(task.scheduled_at, now())", "task.scheduled_at"),
    ("fold", "CASE WHEN told.waits THEN now() ELSE task.scheduled_at END", "task.scheduled_at"),
    ("fold", "CASE WHEN is_all THEN failed_at IS NOT NULL AND verdict = 'open'", "CASE WHEN is_all THEN false"),
    ("fold", "OR id IN (SELECT gate FROM counted_here)", ""),
    ("fold", "WHEN NOT moved.is_all THEN moved.failed_at END", "END"),
    ("fold", "released = moved.verdict IS NOT NULL AND moved.is_all", "released = moved.verdict IS NOT NULL"),
    ("spawn", "(gate.kind = 'flow' OR parent.node = ANY (gate.nodes))", "true"),
    ("merging", "FOR KEY SHARE OF task", ""),
    ("submit_replacing", "FOR NO KEY UPDATE OF task", ""),
)
"""Guards that are no condition of a WHERE, because they decide what becomes of a row: file, text, the text instead."""
INLINED = ("lock_held",)
"""Fragments whose guards are taken out of each statement that includes them, one statement at a time."""
_JOIN = re.compile(
    r"[\w.]*\bid (= ([\w.]*\bid|%\(id\)s.*|ANY \(ARRAY\[[\w.]*\bid\]\))|BETWEEN [\w.]*\bid AND [\w.]*\bid)"
)
"""Which row is meant is no guard: without it nothing works at all."""
_IN_MIDST = re.compile(r" (AS|THEN) ")
"""The end of a longer expression."""


@dataclass(frozen=True)
class Guard:
    """One condition in one file."""

    file: str
    condition: str
    line: int
    occurrence: int
    """1 for the first time that the file says so."""
    instead: str = "true"

    @property
    def name(self) -> str:
        again = f" ({self.occurrence})" if self.occurrence > 1 else ""
        instead = f" -> {self.instead or 'nothing'}" if self.instead != "true" else ""
        return f"{self.file}: {' '.join(self.condition.split())}{again}{instead}"


def guards() -> list[Guard]:
    """All of them, in the order of the files."""
    return [
        *(guard for name in GUARDED for guard in (*_chosen(name, source(name)), *_conditions(name, source(name)))),
        *(guard for name in CHOSEN for guard in _chosen(name, source(name))),
    ]


def source(name: str) -> str:
    text = path(name).read_text(encoding="utf-8")
    for part in INLINED:
        text = text.replace(f"{{include {part}}}", path(part).read_text(encoding="utf-8").rstrip())
    return text


def path(name: str) -> Path:
    """The file of a statement or fragment, or the schema."""
    if name == SCHEMA.stem:
        return SCHEMA
    return Path(str({**fragments(), **statements()}[name]))


def without(guard: Guard, text: str) -> str:
    """The statement without this condition."""
    lines = text.splitlines(keepends=True)
    lines[guard.line] = lines[guard.line].replace(guard.condition, guard.instead, 1)
    return "".join(lines)


def _chosen(name: str, text: str) -> Iterator[Guard]:
    for file, condition, instead in EXPRESSIONS:
        if file == name:
            number = next(n for n, line in enumerate(text.splitlines()) if condition in line.partition("--")[0])
            yield Guard(name, condition, number, 1, instead)


def _conditions(name: str, text: str) -> Iterator[Guard]:
    seen: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines()):
        code = line.partition("--")[0]
        match = re.match(r"\s*(?:WHERE|AND|WHERE NOT|ON CONFLICT .* WHERE)\s+(.*)", code)
        if not match or match[1].endswith("DO NOTHING"):  # which index is meant is no guard
            continue
        for condition in _conjuncts(match[1].rstrip()):
            if (
                condition
                and not _JOIN.fullmatch(condition)
                and _is_whole(condition)
                and not _IN_MIDST.search(condition)
            ):
                seen[condition] += 1
                yield Guard(name, condition, number, seen[condition])


def _conjuncts(text: str) -> list[str]:
    """Split at each AND that is not inside parentheses or a BETWEEN."""
    parts, depth, begin = [], 0, 0
    for found in re.finditer(r"[()]|\bAND\b", text):
        if found[0] == "(":
            depth += 1
        elif found[0] == ")":
            depth -= 1
        elif depth == 0 and "BETWEEN" not in text[begin : found.start()]:
            parts.append(text[begin : found.start()].strip())
            begin = found.end()
    return [*parts, text[begin:].strip()]


def _is_whole(text: str) -> bool:
    """Not the beginning of a condition that goes on in the next line."""
    if len(re.findall(r"\bCASE\b", text)) != len(re.findall(r"\bEND\b", text)):
        return False
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0
