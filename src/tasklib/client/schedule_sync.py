"""Schedules in code: what a program declares is stored by its deploys, and retired when it has left the code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tasklib.client.call_arguments import Target, target_of
from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.client.submissions import Defaults, writer_of
from tasklib.db.failures import MOST_CONFLICTS
from tasklib.errors import DatabaseUnavailable, InvalidOption
from tasklib.schedules import Schedule, Skipped, lost, next_slot
from tasklib.store import schedules
from tasklib.store.schedules import Declared, ScheduleInfo
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import MAX_NAME_BYTES, is_name, options_of
from tasklib.tasks.origins import source_file


@dataclass(frozen=True, slots=True)
class Sync:
    """What became of the schedules of a program: their names."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """A deploy that is not older has another version of it, or a schedule of this name was made at run time."""
    retired: list[str] = field(default_factory=list)


class SyncCalls(OnBehalf):
    """What a deploy does with schedules."""

    defaults: Defaults

    def sync_schedules(self, *, retire_others: bool = False) -> Call[Sync]:
        """Store the schedules that this program's task functions declare with `@task(schedule=...)`.

        Only a newer deploy changes what is stored (`Config.deployed_at`); a pause stays. Schedules that have left the
        modules of this program's task functions are retired; with `retire_others=True` those of any module.
        """
        deployed_at = deploy_stamp(self.config.deployed_at)
        modules = None if retire_others else registered_modules()
        return (yield from self.sync_declared(declared_in_code(self.defaults), deployed_at, modules))

    def sync_declared(
        self, declared: Sequence[Declared], deployed_at: datetime, modules: Sequence[str] | None
    ) -> Call[Sync]:
        """Store what a program declares, and retire what it no longer has in these modules (None: in any)."""
        declared = [replace(each, deployed_at=deployed_at) for each in declared]
        done = Sync()
        left = {each.name: each for each in declared}
        for _ in range(MOST_CONFLICTS):
            left = yield from self._sync_some(left, deployed_at, done)
            if not left:
                break
        else:
            raise in_the_way(next(iter(left)))
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
            known, wanted, following, lost_slots(known, "changed"), by=self.identity.actor
        )
        return "changed" if changed else None


def _has_left(info: ScheduleInfo, names: Sequence[str], modules: Sequence[str] | None, deployed_at: datetime) -> bool:
    """Whether a schedule of an older deploy is no longer in these modules (None: in any)."""
    if info.retired_at is not None or info.name in names or (modules is not None and info.module not in modules):
        return False
    return info.deployed_at is not None and info.deployed_at < deployed_at


def declared_in_code(defaults: Defaults) -> list[Declared]:
    """The schedules of this program's task functions."""
    return [
        replace(declare(defaults, function, schedule), module=function.function.__module__)
        for function in registry.distinct()
        for schedule in function.schedules
    ]


def registered_modules() -> list[str]:
    """The modules of this program's task functions."""
    return sorted({function.function.__module__ for function in registry.distinct()})


def deploy_stamp(configured: str | None) -> datetime:
    """When this program was deployed: as configured, else when the files of its task functions were last changed."""
    if configured is not None:
        return datetime.fromisoformat(configured)
    changed = [os.path.getmtime(file) for f in registry.distinct() if (file := source_file(f.function))]
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
    if isinstance(target, TaskFunction) and target.sealing is not None:
        raise InvalidOption(
            f"{of_task} is sealed and can't have a schedule: arguments are sealed for one task. Let a scheduled "
            "function submit it."
        )
    # A function that is here says itself which version it writes, and its arguments are checked by that.
    said = {k: v for k, v in wanted.options.items() if k != "payload_version" or isinstance(target, str)}
    terms = defaults.terms(target, options_of(said))
    arguments = json.loads(writer_of(target)(wanted.args))
    stored = replace(wanted, name=None, args=arguments)
    stored.to_json()  # what can't be stored is said here
    chosen = checked_name(name or wanted.name or of_task)
    return Declared(chosen, of_task, stored, template_of(terms, arguments))


def template_of(terms: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "queue": terms.queue,
        "kwargs": dict(arguments),
        "max_retries": terms.max_retries,
        "timeout_seconds": terms.timeout_seconds,
        "priority": terms.priority,
        "tags": json.loads(terms.tags),
        "required_capabilities": list(terms.required_capabilities),
        "payload_version": terms.payload_version,
    }


def lost_slots(known: ScheduleInfo, reason: str) -> list[Skipped]:
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


def checked_name(name: object) -> str:
    if not isinstance(name, str) or not is_name(name):
        raise InvalidOption(f"a schedule's name is a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
    return name


def in_the_way(name: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the schedule {name!r} keeps being changed by other programs. Try again.")
