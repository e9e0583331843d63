"""Tasks that no live worker can run, paused tasks, and the number of lanes."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, note, ok, warning
from tasklib.formatting import count, duration, shell_option
from tasklib.store import doctor, fleet, pauses
from tasklib.store.doctor import WaitingLane
from tasklib.store.fleet import WorkerInfo
from tasklib.store.pauses import Paused

MOST_LANES = 500
"""A claim that begins anew costs about 20 µs for each."""
_READ_LANES = 2000
_COUNT_UP_TO = 2000
_NAMED = 5


def unserved(config: Config) -> Call[list[Finding]]:
    """Due tasks that no live worker may take."""
    known: list[WorkerInfo] = yield fleet.workers()
    takers = [w for w in known if w.status == "active" and w.drain_requested_at is None]
    lanes: list[WaitingLane] = yield doctor.lanes(_READ_LANES)
    held: list[Paused] = yield pauses.pauses()
    if not takers:
        return []  # there is no worker at all, which another check says
    alone = [
        lane
        for lane in lanes
        if lane.waited_seconds >= 0
        and not any(p.holds(lane.queue, lane.name) for p in held)
        and not any(w.may_take(lane.queue, lane.name, lane.required_capabilities) for w in takers)
    ]
    if not alone:
        return [ok("unserved_tasks", "Every waiting task is served by a live worker.")]
    number: int = yield doctor.backlog(alone, _COUNT_UP_TO)
    names = [_said(lane) for lane in alone[:_NAMED]]
    more = f" and {len(alone) - _NAMED} more" if len(alone) > _NAMED else ""
    return [
        warning(
            "unserved_tasks",
            f"{_at_least(number)}{count(number, 'due task')} can't be run by any live worker, the oldest for "
            f"{duration(max(lane.waited_seconds for lane in alone))}: {', '.join(names)}{more}.",
            "They wait until a worker with that name, queue and capabilities starts.",
            "Start one, or cancel them; for details: tasklib list "
            f"{shell_option('--name', alone[0].name)} {shell_option('--queue', alone[0].queue)}",
            count=number,
            lanes=[lane._asdict() for lane in alone[:50]],
        )
    ]


def paused(config: Config) -> Call[list[Finding]]:
    """Pauses, and what they hold back."""
    held: list[Paused] = yield pauses.pauses()
    if not held:
        return [ok("paused", "Nothing is paused.")]
    lanes: list[WaitingLane] = yield doctor.lanes(_READ_LANES)
    found = []
    for pause in held:
        behind = [lane for lane in lanes if lane.waited_seconds >= 0 and pause.holds(lane.queue, lane.name)]
        number: int = (yield doctor.backlog(behind, _COUNT_UP_TO)) if behind else 0
        what = f"The {pause.kind} {pause.value!r} is paused since {pause.paused_at:%Y-%m-%d %H:%M %Z}"
        action = f"To end the pause: tasklib resume {shell_option(f'--{pause.kind}', pause.value)}"
        details = {"kind": pause.kind, "value": pause.value, "count": number}
        if number:
            seen = f"{what}, and holds back {_at_least(number)}{count(number, 'due task')}."
            found.append(warning("paused", seen, "Workers don't start them.", action, **details))
        else:
            found.append(note("paused", f"{what}.", "", action, **details))
    return found


def lanes(config: Config) -> Call[list[Finding]]:
    """How many lanes hold tasks."""
    there: list[WaitingLane] = yield doctor.lanes(_READ_LANES)
    number = len({(lane.queue, lane.lane, *lane.required_capabilities, lane.priority) for lane in there})
    if number <= MOST_LANES:
        return [ok("lanes", f"{count(number, 'lane')} with waiting tasks.", lanes=number)]
    return [
        warning(
            "too_many_lanes",
            f"{_at_least(number, _READ_LANES)}{count(number, 'lane')} hold tasks: "
            f"{count(len({lane.queue for lane in there}), 'queue')}, "
            f"{count(len({lane.lane for lane in there} - {''}), 'name')} in lanes of their own, "
            f"{count(len({lane.priority for lane in there}), 'priority', 'priorities')}.",
            f"A claim looks at the head of each: about {number * 0.02:,.0f} ms for each scan of all lanes.",
            "Don't create a queue per customer: put the customer into the arguments or tags. Lanes of single names "
            "hold tasks that some worker doesn't serve: give workers with other functions a queue of their own.",
            lanes=number,
        )
    ]


def _said(lane: WaitingLane) -> str:
    needs = f", needs {'+'.join(lane.required_capabilities)}" if lane.required_capabilities else ""
    return f"{lane.name!r} (queue {lane.queue!r}{needs})"


def _at_least(number: int, most: int = _COUNT_UP_TO) -> str:
    return "at least " if number >= most else ""
