"""Schedules at run time: made, shown, changed, paused, run by hand. Calls for sync and async callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tasklib.client import backfills, schedule_reasons, validation
from tasklib.client.backfills import BACKFILL_LIMIT, Backfill, BackfillOverlap
from tasklib.client.effects import Call
from tasklib.client.schedule_sync import SyncCalls, checked_name, declare, in_the_way, lost_slots, template_of
from tasklib.client.submissions import Defaults
from tasklib.db.failures import MOST_CONFLICTS
from tasklib.errors import InvalidOption, ScheduleNotFound
from tasklib.schedules import PreviewedSlot, Schedule, check_year, describe, next_slot, preview
from tasklib.store import schedules
from tasklib.store.audit import Action
from tasklib.store.schedules import Declared, ScheduleInfo, SlotFate
from tasklib.tasks import registry
from tasklib.tasks.ids import new_id
from tasklib.tasks.options import options_of, require_aware
from tasklib.tasks.task_id import KnownId

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Preview:
    """What a schedule would do."""

    description: str
    """One line of plain English."""
    slots: list[PreviewedSlot]

    @classmethod
    def of(cls, schedule: Schedule, now: datetime, count: int) -> Preview:
        return cls(describe(schedule), preview(schedule, now, count))


class ScheduleCalls(SyncCalls):
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
        found: ScheduleInfo | None = yield schedules.get(checked_name(name))
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
            gone = lost_slots(known, "changed")
            following = next_slot(declared.schedule, known.read_at, known.last_slot)
            if (yield schedules.change(known, declared, following, gone, by=self.identity.actor)):
                return (yield from self.get_schedule(name))
        raise in_the_way(name)

    def pause_schedule(self, name: str, note: str | None = None) -> Call[ScheduleInfo]:
        """Let a schedule run no more until it is resumed. Slots that pass meanwhile are not made up for.

        Of one that is paused already, this changes the note.
        """
        if note is not None and (not isinstance(note, str) or len(note) > 1000):
            raise InvalidOption("note must be a text of at most 1,000 characters.")
        yield schedules.pause(checked_name(name), note, by=self.identity.actor)
        return (yield from self.get_schedule(name))

    def resume_schedule(self, name: str) -> Call[ScheduleInfo]:
        """Let a paused schedule go on. Its next slot lies in the future."""
        for _ in range(MOST_CONFLICTS):
            known = yield from self.get_schedule(name)
            if known.paused_at is None:
                return known
            following = next_slot(known.schedule, known.read_at, known.last_slot)
            if (yield schedules.resume(known, following, lost_slots(known, "paused"), by=self.identity.actor)):
                return (yield from self.get_schedule(name))
        raise in_the_way(name)

    def run_schedule(self, name: str) -> Call[KnownId[Any]]:
        """Run a schedule's task now, whatever its slots and pauses are, and return the task's id. It moves nothing."""
        known = yield from self.get_schedule(name)
        id_ = new_id(self.config.shard)
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
        if not (yield schedules.delete(checked_name(name), by=self.identity.actor)):
            raise ScheduleNotFound(name)

    def backfill_schedule(
        self,
        name: str,
        *,
        start: datetime,
        end: datetime,
        overlap: BackfillOverlap | None = None,
        limit: int = BACKFILL_LIMIT,
        priority: int | None = None,
        dry_run: bool = False,
    ) -> Call[Backfill]:
        """Run the slots of a stretch that has passed, both ends included, except those that have been run.

        With `overlap="allow"` all of them start as soon as workers have room; with `"one_by_one"` each waits until the
        run before it has ended. Without it the schedule decides: one by one if its own runs don't overlap. The tasks
        have a lower priority than others of the schedule, unless `priority` says which. More slots than `limit` are
        refused. `dry_run=True` only shows the slots.
        """
        backfills.check_overlap(overlap)
        known = yield from self.get_schedule(name)
        wanted = backfills.checked(known, start, end, overlap, limit, priority)
        return (
            yield from backfills.show(wanted) if dry_run else backfills.run(wanted, self.identity, self.config.shard)
        )

    def preview_schedule(self, schedule: Schedule | str, *, count: int = 20) -> Call[Preview]:
        """What a schedule, a cron expression or the schedule with this name means: in words, and its next times."""
        validation.check_limit(count, MAX_PAGE)
        if isinstance(schedule, str) and not is_expression(schedule):
            known = yield from self.get_schedule(schedule)
            return Preview.of(known.schedule, known.read_at, count)
        wanted = Schedule.of(schedule)
        now: datetime = yield schedules.now()
        return Preview.of(wanted, now, count)

    def explain_schedule(self, name: str, at: datetime | None = None) -> Call[list[str]]:
        """Sentences: whether a schedule runs and when next; with `at`, first what became of that slot."""
        if at is not None:
            require_aware("at", at)
            check_year("at", at)
        info = yield from self.get_schedule(name)
        fate: SlotFate = yield schedules.slot_fate(info.name, at)
        said = [] if at is None else [schedule_reasons.of_slot(info, at, fate)]
        return [*said, *schedule_reasons.of_schedule(info, fate)]

    def _redeclared(self, known: ScheduleInfo, wanted: Schedule) -> Declared:
        """A changed schedule of the same function. If that is not known here, its own options are kept."""
        if (function := registry.functions.get(known.task)) is not None:
            return replace(declare(self.defaults, function, wanted, known.name), module=None, deployed_at=None)
        terms = self.defaults.terms(known.task, options_of(wanted.options))
        said = {*wanted.options, *(["required_capabilities"] if "payload_version" in wanted.options else ())}
        given = {name: value for name, value in template_of(terms, wanted.args).items() if name in said}
        template = {**known.template, **given, "kwargs": dict(wanted.args)}
        return Declared(known.name, known.task, wanted, template)


def _first_slot(schedule: Schedule, now: datetime) -> datetime:
    first = next_slot(schedule, now)
    if first is None:
        raise InvalidOption("the schedule has no slot from now on. Change its ends_at, or what it excludes.")
    return first


def _changed(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> Schedule:
    if unknown := sorted(set(changes) - set(Schedule.__dataclass_fields__)):
        known = ", ".join(sorted(Schedule.__dataclass_fields__))
        raise InvalidOption(f"a schedule has no {', '.join(unknown)}; its fields are {known}.")
    if "cron" in changes and "every" not in changes:
        changes = {"every": None, "anchor": None, **changes}
    elif "every" in changes and "cron" not in changes:
        changes = {"cron": None, **changes}
    return Schedule.from_json({**spec, **changes})


def is_expression(text: str) -> bool:
    """True for a cron expression, False for the name of a schedule."""
    return text.startswith("@") or len(text.split()) >= 5
