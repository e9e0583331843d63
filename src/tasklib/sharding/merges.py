"""How the answers of several shards become one: in the order of the list, cut to its limit; counts are summed.

Each takes the query and the answer of each shard by number. Where reading ends before everything was read, the merged
answer ends where the first shard stopped, and the next page goes on from there: no task is skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from tasklib.db.query import Query
from tasklib.store.approvals import OpenApproval
from tasklib.store.control import CancelCounts
from tasklib.store.dead_letters import DeadLetterGroup, DeadLetterPlace
from tasklib.store.failures import FailureCause, FailureField, FieldValue, Sampled
from tasklib.store.search import CappedCount, FoundTask, Matches

Answers = Mapping[int, Any]


def first(_: Query[Any], answers: Answers) -> Any:
    """That of the home shard."""
    return next(iter(answers.values()))


def any_of(_: Query[Any], answers: Answers) -> bool:
    return any(answers.values())


def all_of(_: Query[Any], answers: Answers) -> bool:
    return all(answers.values())


def most(_: Query[Any], answers: Answers) -> int:
    return int(max(answers.values()))


def total(_: Query[Any], answers: Answers) -> int:
    return sum(answers.values())


def texts(_: Query[Any], answers: Answers) -> str | None:
    """A text that changes when the text of any shard changes; None if one shard has none."""
    found = [f"{number} {answer}" for number, answer in answers.items() if answer is not None]
    return ";".join(found) if len(found) == len(answers) else None


def lists(_: Query[Any], answers: Answers) -> list[Any]:
    return [each for answer in answers.values() for each in answer]


def sets(_: Query[Any], answers: Answers) -> set[Any]:
    return set().union(*answers.values())


def dicts(_: Query[Any], answers: Answers) -> dict[Any, Any]:
    return {key: value for answer in answers.values() for key, value in answer.items()}


def summed_dicts(_: Query[Any], answers: Answers) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for answer in answers.values():
        for key, value in answer.items():
            found[key] += value
    return dict(found)


def sums(_: Query[Any], answers: Answers) -> CancelCounts:
    return CancelCounts(sum(a.cancelled for a in answers.values()), sum(a.asked for a in answers.values()))


def newest(query: Query[Any], answers: Answers) -> list[Any]:
    """What has an id, the newest first."""
    return _cut(query, answers, id_of, latest_first=True)


def oldest(query: Query[Any], answers: Answers) -> list[Any]:
    return _cut(query, answers, id_of)


def approvals(query: Query[Any], answers: Answers) -> list[OpenApproval]:
    return _cut(query, answers, lambda a: (a.asked_at, a.task_id, a.name))


def latest_dead_letters(query: Query[Any], answers: Answers) -> list[Any]:
    return _cut(query, answers, _given_up, latest_first=True)


def recent_failures(query: Query[Any], answers: Answers) -> list[Any]:
    known = {number: [f for f in answer if f.at is not None] for number, answer in answers.items()}
    return _cut(query, known, lambda f: f.at, latest_first=True)


def recent_attempts(query: Query[Any], answers: Answers) -> list[Any]:
    return _cut(query, answers, lambda a: a.ended_at, latest_first=True)


def matches(query: Query[Any], answers: Answers) -> Matches:
    """A page of a search: newest first, older than a place, or those next to it that are newer."""
    limit, is_newer = query.parameters["limit"], query.name.endswith("_newer")
    ends = [a.ended_at for a in answers.values() if a.ended_at is not None]
    tasks: list[FoundTask] = sorted((t for a in answers.values() for t in a.tasks), key=id_of, reverse=True)
    if is_newer:
        end = min(map(as_uuid, ends), default=None)
        tasks = tasks if end is None else [t for t in tasks if as_uuid(t.id) <= end]
        page = tasks[-limit:]
    else:
        end = max(map(as_uuid, ends), default=None)
        tasks = tasks if end is None else [t for t in tasks if as_uuid(t.id) >= end]
        page = tasks[:limit]
    return Matches(page, None if len(page) == limit else end)


def newest_and_more(query: Query[Any], answers: Answers) -> tuple[list[FoundTask], bool]:
    tasks = sorted((t for found, _ in answers.values() for t in found), key=id_of, reverse=True)
    return tasks[: query.parameters["limit"]], any(more for _, more in answers.values())


def capped_counts(_: Query[Any], answers: Answers) -> dict[str, CappedCount]:
    found: dict[str, CappedCount] = {}
    for answer in answers.values():
        for state, counted in answer.items():
            known = found.get(state, CappedCount(0, is_capped=False))
            found[state] = CappedCount(known.count + counted.count, known.is_capped or counted.is_capped)
    return found


def suggestions(query: Query[Any], answers: Answers) -> list[tuple[str, int]]:
    counts: dict[str, int] = defaultdict(int)
    for value, count in lists(query, answers):
        counts[value] += count
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[: query.parameters["limit"]]


def dead_letter_groups(query: Query[Any], answers: Answers) -> Any:
    """By cause, the most frequent first; of the latest `look`, also how many were read."""
    look = query.parameters["look"]
    groups = {n: answer if look is None else answer[0] for n, answer in answers.items()}
    found: dict[str, DeadLetterGroup] = {}
    for group in lists(query, groups):
        known = found.get(group.fingerprint)
        found[group.fingerprint] = group if known is None else _both(known, group)
    page = sorted(found.values(), key=lambda g: (-g.count, g.fingerprint))[: query.parameters["limit"]]
    if look is None:
        return page
    looked = [answer[1] for answer in answers.values()]
    # Below `look` means: all were read.
    return page, sum(looked) if any(n >= look for n in looked) else min(sum(looked), look - 1)


def _both(one: DeadLetterGroup, other: DeadLetterGroup) -> DeadLetterGroup:
    latest = max(one, other, key=lambda g: g.last_seen)
    return replace(latest, count=one.count + other.count, first_seen=min(one.first_seen, other.first_seen))


def alike(query: Query[Any], answers: Answers) -> tuple[list[FoundTask], DeadLetterPlace | None]:
    limit = query.parameters["limit"]
    end = max((ended for _, ended in answers.values() if ended is not None), default=None)
    tasks = sorted((t for found, _ in answers.values() for t in found), key=_given_up, reverse=True)
    if end is not None:
        tasks = [t for t in tasks if _given_up(t) >= (end.completed_at, as_uuid(end.id))]
    return tasks[:limit], None if len(tasks) >= limit else end


def failure_causes(query: Query[Any], answers: Answers) -> Sampled:
    found: dict[str, FailureCause] = {}
    for answer in answers.values():
        for cause in answer.causes:
            known = found.get(cause.fingerprint)
            found[cause.fingerprint] = cause if known is None else _both_causes(known, cause, query)
    causes = sorted(found.values(), key=lambda c: (-c.attempts, c.fingerprint))[: query.parameters["limit"]]
    back_to = max((a.back_to for a in answers.values() if a.back_to is not None), default=None)
    return Sampled(causes, sum(a.attempts for a in answers.values()), back_to)


def _both_causes(one: FailureCause, other: FailureCause, query: Query[Any]) -> FailureCause:
    latest = max(one, other, key=lambda c: c.last_seen)
    return replace(
        latest,
        attempts=one.attempts + other.attempts,
        tasks=one.tasks + other.tasks,
        dead_letters=one.dead_letters + other.dead_letters,
        retrying=one.retrying + other.retrying,
        first_seen=min(one.first_seen, other.first_seen),
        counts=tuple(map(sum, zip(one.counts, other.counts, strict=True))),
        ids=tuple(sorted({*one.ids, *other.ids}, reverse=True)[: query.parameters["most_ids"]]),
    )


def failure_values(query: Query[Any], answers: Answers) -> dict[str, list[FailureField]]:
    found: dict[str, dict[tuple[str, str], FailureField]] = {}
    for answer in answers.values():
        for fingerprint, fields in answer.items():
            of_cause = found.setdefault(fingerprint, {})
            for field in fields:
                known = of_cause.get((field.kind, field.key))
                of_cause[field.kind, field.key] = field if known is None else _both_fields(known, field, query)
    return {fingerprint: list(of_cause.values()) for fingerprint, of_cause in found.items()}


def _both_fields(one: FailureField, other: FailureField, query: Query[Any]) -> FailureField:
    counts: dict[str, int] = defaultdict(int)
    for value in (*one.values, *other.values):
        counts[value.text] += value.tasks
    values = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown = tuple(FieldValue(*value) for value in values[: query.parameters["most_values"]])
    return FailureField(
        one.kind, one.key, shown, max(one.different, other.different, len(values)), one.tasks + other.tasks
    )


def grouped(rows: Iterable[Any], key: Callable[[Any], Any], both: Callable[[Any, Any], Any]) -> list[Any]:
    """One of each key, in the order of their first."""
    found: dict[Any, Any] = {}
    for row in rows:
        found[key(row)] = row if key(row) not in found else both(found[key(row)], row)
    return list(found.values())


def id_of(row: Any) -> UUID:
    """The id of a task, a flow or a replay, with or without what surrounds it."""
    return as_uuid(row.task.id if hasattr(row, "task") and hasattr(row, "left_out") else row.id)


def as_uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


def _given_up(row: Any) -> tuple[Any, UUID]:
    task = row.task if hasattr(row, "left_out") else row
    return task.completed_at, as_uuid(task.id)


def _cut(query: Query[Any], answers: Answers, key: Callable[[Any], Any], *, latest_first: bool = False) -> list[Any]:
    return sorted(lists(query, answers), key=key, reverse=latest_first)[: query.parameters["limit"]]
