"""Schedules at run time: made, shown, changed, paused, run by hand. Calls for sync and async callers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from tasklib.client import schedule_reasons, validation
from tasklib.client.call_arguments import Target, target_of
from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.client.submissions import Defaults, writer_of
from tasklib.config import Config
from tasklib.db.failures import MOST_CONFLICTS
from tasklib.errors import DatabaseUnavailable, InvalidOption, ScheduleNotFound
from tasklib.schedules import PreviewedSlot, Schedule, Skipped, describe, lost, next_slot, preview, slots_between
from tasklib.store import schedules
from tasklib.store.audit import Action
from tasklib.store.schedules import Declared, ScheduleInfo, SlotFate
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.ids import Ids
from tasklib.tasks.options import MAX_NAME_BYTES, Options, is_name, options_of, require_aware
from tasklib.tasks.origins import source_file
from tasklib.tasks.task_id import KnownId

MAX_PAGE = 1000
BACKFILL_LIMIT = 1000
MOST_BACKFILLED = 10_000
_LOWEST_PRIORITY = -10


@dataclass(frozen=True, slots=True)
class Preview:
    """What a schedule would do."""

    description: str
    """One line of plain English."""
    slots: list[PreviewedSlot]


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill did, or would do."""

    count: int
    """How many slots there are in the stretch."""
    slots: list[datetime]
    task_ids: list[UUID]
    """The tasks that are new; none of a dry run. A slot that was run before is not run again."""


@dataclass(frozen=True, slots=True)
class Sync:
    """What became of the schedules of a program: their names."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """A deploy that is not older has another version of it, or a schedule of this name was made at run time."""
    retired: list[str] = field(default_factory=list)


class ScheduleCalls(OnBehalf):
    """What an operator, or a program, does with schedules."""

    defaults: Defaults
    id_type: type[KnownId[Any]]

    def create_schedule(
        self,
        task: Any,
        schedule: Schedule | str,
        /,
        *,
        name: str | None = None,
        registered_elsewhere: bool = False,
    ) -> Call[ScheduleInfo]:
        """Let a task function run by itself, and return the schedule. Its first slot lies in the future.

        create_schedule(report, "0 3 * * *", name="nightly")
        create_schedule(report, Schedule(every=timedelta(hours=1), args={"full": False}))
        """
        declared = declare(self.defaults, task, schedule, name, registered_elsewhere=registered_elsewhere)
        now: datetime = yield schedules.now()
        first = _first_slot(declared.schedule, now)
        made: bool = yield schedules.create(declared, first, by=self.identity.actor)
        if not made:
            raise InvalidOption(
                f"there is a schedule named {declared.name!r} already. Give this one another name, or change that one."
            )
        return (yield from self.get_schedule(declared.name))

    def schedules(
        self,
        *,
        after: str | None = None,
        task: str | None = None,
        source: str | None = None,
        paused: bool | None = None,
        retired: bool | None = None,
        limit: int = 100,
    ) -> Call[list[ScheduleInfo]]:
        """One page of schedules by name; for the next page pass the last name as `after`."""
        validation.check_limit(limit, MAX_PAGE)
        found: list[ScheduleInfo] = yield schedules.page(
            limit=limit, after=after, task=task, source=source, paused=paused, retired=retired
        )
        return found

    def get_schedule(self, name: str) -> Call[ScheduleInfo]:
        """The schedule with this name; ScheduleNotFound if there is none."""
        found: ScheduleInfo | None = yield schedules.get(_checked_name(name))
        if found is None:
            raise ScheduleNotFound(name)
        return found

    def change_schedule(
        self, name: str, schedule: Schedule | str | None = None, /, **changes: Any
    ) -> Call[ScheduleInfo]:
        """Change a schedule and return it: give a new one, or what is to be different. It never runs at once.

        change_schedule("nightly", "0 4 * * *")
        change_schedule("nightly", overlap="skip", args={"full": True})
        """
        if (schedule is None) == (not changes):
            raise InvalidOption("say what to change: a schedule, or fields such as cron=, timezone= and args=.")
        for _ in range(MOST_CONFLICTS):
            known = yield from self.get_schedule(name)
            wanted = _changed(known.spec, changes) if schedule is None else Schedule.of(schedule)
            declared = self._redeclared(known, replace(wanted, name=None))
            same = known.unreadable is None and declared.schedule == known.schedule
            if same and declared.template == known.template:
                return known
            gone = _lost(known, "changed")
            following = next_slot(declared.schedule, known.read_at, known.last_slot)
            if (yield schedules.change(known, declared, following, gone, by=self.identity.actor)):
                return (yield from self.get_schedule(name))
        raise _in_the_way(name)

    def pause_schedule(self, name: str, note: str | None = None) -> Call[ScheduleInfo]:
        """Let a schedule run no more until it is resumed. Slots that pass meanwhile are not made up for."""
        if note is not None and (not isinstance(note, str) or len(note) > 1000):
            raise InvalidOption("note must be a text of at most 1,000 characters.")
        yield schedules.pause(_checked_name(name), note, by=self.identity.actor)
        return (yield from self.get_schedule(name))

    def resume_schedule(self, name: str) -> Call[ScheduleInfo]:
        """Let a paused schedule go on. Its next slot lies in the future."""
        for _ in range(MOST_CONFLICTS):
            known = yield from self.get_schedule(name)
            if known.paused_at is None:
                return known
            following = next_slot(known.schedule, known.read_at, known.last_slot)
            if (yield schedules.resume(known, following, _lost(known, "paused"), by=self.identity.actor)):
                return (yield from self.get_schedule(name))
        raise _in_the_way(name)

    def run_schedule(self, name: str) -> Call[KnownId[Any]]:
        """Run a schedule's task now, whatever its slots and pauses are, and return the task's id. It moves nothing."""
        known = yield from self.get_schedule(name)
        [id_] = Ids(1).first(1)
        yield schedules.run(
            known.name,
            [(id_, None)],
            by=self.identity.actor,
            action=Action.RUN_SCHEDULE,
            submitted_by=self.identity.submitted_by,
            details={"task_id": str(id_)},
        )
        return self.id_type(id_)

    def delete_schedule(self, name: str) -> Call[None]:
        """Delete a schedule. Its tasks stay."""
        if not (yield schedules.delete(_checked_name(name), by=self.identity.actor)):
            raise ScheduleNotFound(name)

    def backfill_schedule(
        self,
        name: str,
        *,
        start: datetime,
        end: datetime,
        limit: int = BACKFILL_LIMIT,
        priority: int | None = None,
        dry_run: bool = False,
    ) -> Call[Backfill]:
        """Run the slots of a stretch that has passed, both ends included, except those that have been run.

        The tasks have a lower priority than others of the schedule, unless `priority` says which. More slots than
        `limit` are refused. `dry_run=True` only shows the slots.
        """
        known = yield from self.get_schedule(name)
        found = _to_backfill(known, start, end, limit)
        if dry_run:
            return Backfill(len(found), found, [])
        lowered = max(known.template["priority"] - 10, _LOWEST_PRIORITY) if priority is None else priority
        Options(priority=lowered)  # checks it
        ids = Ids(len(found)).first(len(found)) if found else []
        made: list[UUID] = yield schedules.run(
            known.name,
            list(zip(ids, found, strict=True)),
            by=self.identity.actor,
            action=Action.BACKFILL_SCHEDULE,
            priority=lowered,
            submitted_by=self.identity.submitted_by,
            details={"start": start, "end": end},
        )
        return Backfill(len(found), found, made)

    def preview_schedule(self, schedule: Schedule | str, *, count: int = 20) -> Call[Preview]:
        """What a schedule, a cron expression or the schedule with this name means: in words, and its next times."""
        validation.check_limit(count, MAX_PAGE)
        if isinstance(schedule, str) and not is_expression(schedule):
            known = yield from self.get_schedule(schedule)
            return Preview(describe(known.schedule), preview(known.schedule, known.read_at, count))
        wanted = Schedule.of(schedule)
        now: datetime = yield schedules.now()
        return Preview(describe(wanted), preview(wanted, now, count))

    def explain_schedule(self, name: str, at: datetime | None = None) -> Call[list[str]]:
        """Sentences: whether a schedule runs and when next; with `at`, first what became of that slot."""
        if at is not None:
            require_aware("at", at)
        info = yield from self.get_schedule(name)
        fate: SlotFate = yield schedules.slot_fate(info.name, at)
        said = [] if at is None else [schedule_reasons.of_slot(info, at, fate)]
        return [*said, *schedule_reasons.of_schedule(info, fate)]

    def sync_schedules(self, *, retire_others: bool = False) -> Call[Sync]:
        """Store the schedules that this program's task functions declare with `@task(schedule=...)`.

        Only a newer deploy changes what is stored (`Config.deployed_at`); a pause stays. Schedules that have left the
        modules of this program's task functions are retired; with `retire_others=True` those of any module.
        """
        deployed_at = deploy_stamp(self.config)
        declared = [
            replace(
                declare(self.defaults, function, schedule), module=function.function.__module__, deployed_at=deployed_at
            )
            for function in list(registry.functions.values())
            for schedule in function.schedules
        ]
        done = Sync()
        left = {each.name: each for each in declared}
        for _ in range(MOST_CONFLICTS):
            left = yield from self._sync_some(left, deployed_at, done)
            if not left:
                break
        else:
            raise _in_the_way(next(iter(left)))
        modules = None if retire_others else sorted({f.function.__module__ for f in list(registry.functions.values())})
        names = [each.name for each in declared]
        stored: list[ScheduleInfo] = yield schedules.in_code()
        # Only if there is something to write: a worker's role may read schedules, and may not change them.
        if any(_has_left(info, names, modules, deployed_at) for info in stored):
            done.retired.extend((yield schedules.retire(names, modules, deployed_at, by=self.identity.actor)))
        return done

    def _sync_some(self, wanted: dict[str, Declared], deployed_at: datetime, done: Sync) -> Call[dict[str, Declared]]:
        """Returns those that were changed by others in between: another deploy, an operator, the leader."""
        stored: list[ScheduleInfo] = yield schedules.in_code()
        known = {info.name: info for info in stored}
        left, unchanged = {}, {}
        for name, each in wanted.items():
            outcome = yield from self._sync(each, known.get(name))
            if outcome is None:
                left[name] = each
            elif outcome == "unchanged" and (known[name].deployed_at or deployed_at) < deployed_at:
                unchanged[name] = known[name].revision
            else:
                getattr(done, outcome).append(name)
        if unchanged:
            kept: list[str] = yield schedules.deployed(unchanged, deployed_at)
            done.unchanged.extend(name for name in unchanged if name in kept)
            left |= {name: wanted[name] for name in unchanged if name not in kept}
        return left

    def _sync(self, wanted: Declared, known: ScheduleInfo | None) -> Call[str | None]:
        """What became of one schedule: the name of a field of `Sync`; None if it was changed since it was read."""
        assert wanted.deployed_at is not None
        if known is None:
            now: datetime = yield schedules.now()
            made: bool = yield schedules.create(wanted, next_slot(wanted.schedule, now), by=self.identity.actor)
            if made:
                return "created"
            taken: ScheduleInfo | None = yield schedules.get(wanted.name)
            return "refused" if taken is not None and taken.source == "api" else None
        stored = (known.task, known.template, known.module) == (wanted.task, wanted.template, wanted.module)
        same = stored and known.retired_at is None and known.unreadable is None and known.schedule == wanted.schedule
        if same:
            return "unchanged"
        if known.deployed_at is not None and known.deployed_at >= wanted.deployed_at:
            return "refused"
        following = next_slot(wanted.schedule, known.read_at, known.last_slot)
        changed: bool = yield schedules.change(
            known, wanted, following, _lost(known, "changed"), by=self.identity.actor
        )
        return "changed" if changed else None

    def _redeclared(self, known: ScheduleInfo, wanted: Schedule) -> Declared:
        """A changed schedule of the same function. If that is not known here, its own options are kept."""
        if (function := registry.functions.get(known.task)) is not None:
            return replace(declare(self.defaults, function, wanted, known.name), module=None, deployed_at=None)
        terms = self.defaults.terms(known.task, options_of(wanted.options))
        given = {name: value for name, value in _template(terms, wanted.args).items() if name in wanted.options}
        template = {**known.template, **given, "kwargs": dict(wanted.args)}
        return Declared(known.name, known.task, wanted, template)


def _has_left(info: ScheduleInfo, names: Sequence[str], modules: Sequence[str] | None, deployed_at: datetime) -> bool:
    """Whether a schedule of an older deploy is no longer in these modules (None: in any)."""
    if info.retired_at is not None or info.name in names or (modules is not None and info.module not in modules):
        return False
    return info.deployed_at is not None and info.deployed_at < deployed_at


def deploy_stamp(config: Config) -> datetime:
    """When this program was deployed: as configured, else when the files of its task functions were last changed."""
    if config.deployed_at is not None:
        return datetime.fromisoformat(config.deployed_at)
    changed = [os.path.getmtime(file) for f in list(registry.functions.values()) if (file := source_file(f.function))]
    return datetime.fromtimestamp(max(changed, default=0.0), UTC)


def declare(
    defaults: Defaults,
    task: Any,
    schedule: Schedule | str,
    name: str | None = None,
    *,
    registered_elsewhere: bool = False,
) -> Declared:
    """A schedule of a task function, checked: its name, its arguments, and what its tasks are submitted with."""
    target: Target = target_of(task, registered_elsewhere)
    wanted = Schedule.of(schedule)
    of_task = target.name if isinstance(target, TaskFunction) else target
    terms = defaults.terms(target, options_of(wanted.options))
    arguments = json.loads(writer_of(target)(wanted.args))
    stored = replace(wanted, name=None, args=arguments)
    stored.to_json()  # what can't be stored is said here
    chosen = _checked_name(name or wanted.name or of_task)
    return Declared(chosen, of_task, stored, _template(terms, arguments))


def _template(terms: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "queue": terms.queue,
        "kwargs": dict(arguments),
        "max_retries": terms.max_retries,
        "timeout_seconds": terms.timeout_seconds,
        "priority": terms.priority,
        "tags": json.loads(terms.tags),
        "required_capabilities": list(terms.required_capabilities),
    }


def _first_slot(schedule: Schedule, now: datetime) -> datetime:
    first = next_slot(schedule, now)
    if first is None:
        raise InvalidOption("the schedule has no slot from now on. Change its ends_at, or what it excludes.")
    return first


def _lost(known: ScheduleInfo, reason: str) -> list[Skipped]:
    """What passed without being decided; while the schedule was paused, for that reason."""
    why: Any = "paused" if known.paused_at is not None else reason
    if known.unreadable is None:
        passed = lost(known.schedule, why, known.next_slot, known.read_at)
    elif known.next_slot is not None and known.next_slot <= known.read_at:
        passed = Skipped(why, 1, known.next_slot, known.next_slot)  # which others there were can't be told
    else:
        passed = None
    waited = [] if known.waiting_slot is None else [Skipped(why, 1, known.waiting_slot, known.waiting_slot)]
    return [*waited, *([passed] if passed else [])]


def _changed(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> Schedule:
    if unknown := sorted(set(changes) - set(Schedule.__dataclass_fields__)):
        known = ", ".join(sorted(Schedule.__dataclass_fields__))
        raise InvalidOption(f"a schedule has no {', '.join(unknown)}; its fields are {known}.")
    if "cron" in changes and "every" not in changes:
        changes = {"every": None, "anchor": None, **changes}
    elif "every" in changes and "cron" not in changes:
        changes = {"cron": None, **changes}
    return Schedule.from_json({**spec, **changes})


def _to_backfill(known: ScheduleInfo, start: datetime, end: datetime, limit: int) -> list[datetime]:
    require_aware("start", start)
    require_aware("end", end)
    validation.check_limit(limit, MOST_BACKFILLED)
    if start > end:
        raise InvalidOption(f"start ({start}) is later than end ({end}). Exchange them.")
    if end > known.read_at:
        raise InvalidOption(f"end ({end}) has not passed yet; the schedule itself runs what is to come.")
    after = start.astimezone(UTC) - timedelta.resolution
    found = list(islice(slots_between(known.schedule, after, end), limit + 1))
    if len(found) > limit:
        raise InvalidOption(
            f"there are more than {limit:,} slots between start and end. Choose a shorter stretch, "
            f"or a limit of up to {MOST_BACKFILLED:,}."
        )
    return found


def is_expression(text: str) -> bool:
    """True for a cron expression, False for the name of a schedule."""
    return text.startswith("@") or len(text.split()) >= 5


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not is_name(name):
        raise InvalidOption(f"a schedule's name is a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
    return name


def _in_the_way(name: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the schedule {name!r} is being changed by others all the time. Try again.")
