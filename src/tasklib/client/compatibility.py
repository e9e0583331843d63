"""Whether the code of this program can run the stored tasks that are unfinished, and the runs of schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tasklib.client.effects import Call
from tasklib.errors import TaskExecutionError
from tasklib.store import schedules, stored_payloads
from tasklib.tasks import registry
from tasklib.tasks.versions import capability

if TYPE_CHECKING:
    from tasklib.store.schedules import ScheduleInfo
    from tasklib.store.stored_payloads import StoredArguments
    from tasklib.tasks.function import TaskFunction

PAGE = 1000


@dataclass(slots=True)
class Incompatibility:
    """Tasks, or schedules, that this code can't run for the same reason."""

    kind: str
    """unknown_name, version or arguments."""
    name: str
    payload_version: int | None
    sentence: str
    count: int = 0
    sample: str = ""
    """The id of one of the tasks, or the name of one of the schedules."""
    what: str = "task"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Compatibility:
    """What was compared, and what a deploy of this code would break."""

    tasks: int = 0
    schedules: int = 0
    unchecked: int = 0
    """Tasks whose arguments can't be read here: they are sealed, or in a payload store, or of an older version and
    results of other tasks of a flow, which are not known yet."""
    problems: dict[tuple[str, ...], Incompatibility] = field(default_factory=dict)

    def add(self, problem: Incompatibility, sample: str) -> None:
        key = (problem.what, problem.kind, problem.name, str(problem.payload_version), problem.sentence)
        known = self.problems.setdefault(key, problem)
        known.count += 1
        known.sample = known.sample or sample


def check() -> Call[Compatibility]:
    """Read the arguments of all unfinished tasks and of all schedules as a worker with this code would."""
    found = Compatibility()
    after = stored_payloads.FIRST
    while page := (yield stored_payloads.unfinished(after, PAGE)):
        for row in page:
            _check_task(row, found)
        after = page[-1].id
    name: str | None = None
    while several := (yield schedules.page(after=name, retired=False, limit=PAGE)):
        for schedule in several:
            _check_schedule(schedule, found)
        name = several[-1].name
    return found


def _check_task(row: StoredArguments, found: Compatibility) -> None:
    found.tasks += 1
    function = registry.functions.get(row.name)
    versions = None if function is None else function.versions
    if function is not None and (function.sealing is not None or row.kwargs.startswith('{"$')):
        found.unchecked += 1
        return
    if row.later and versions is not None and versions.version_of(row.payload_version) != versions.current:
        found.unchecked += 1
        return
    problem = _problem(function, row.name, row.payload_version, row.kwargs, frozenset(row.later))
    if problem is not None:
        found.add(problem, row.id)


def _check_schedule(info: ScheduleInfo, found: Compatibility) -> None:
    found.schedules += 1
    template: Mapping[str, Any] = info.template
    function = registry.functions.get(info.task)
    problem = _problem(
        function, info.task, template.get("payload_version"), json.dumps(template["kwargs"]), frozenset()
    )
    if problem is not None:
        problem.what = "schedule"
        found.add(problem, info.name)


def _problem(
    function: TaskFunction[Any, Any] | None, name: str, version: int | None, kwargs: str, later: frozenset[str]
) -> Incompatibility | None:
    if function is None:
        return Incompatibility("unknown_name", name, version, "no function here has this name, nor an alias of it")
    versions = function.versions
    if version is not None and (versions is None or version not in versions.readable):
        needed = f"they wait for a worker that offers {capability(name, version)}"
        read = (
            "the function has no versions" if versions is None else f"the function reads {_listed(versions.readable)}"
        )
        return Incompatibility("version", name, version, f"{read}, so {needed}")
    try:
        if versions is None:
            function.arguments.without(later).from_json(kwargs)
        else:
            versions.read(function.arguments.without(later), kwargs, version)
    except TaskExecutionError as e:
        return Incompatibility("arguments", name, version, str(e))
    return None


def _listed(versions: range) -> str:
    return ", ".join(map(str, versions))
