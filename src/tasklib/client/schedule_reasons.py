"""Why a schedule did, or did not, run: sentences from its row and one of its slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from tasklib.formatting import duration
from tasklib.schedules import Reason, slots, zones
from tasklib.states import TERMINAL
from tasklib.store.schedules import ScheduleInfo, SlotFate

WHY: Mapping[Reason | str, str] = {
    "too_old": "no leader ran in time, and it was older than catch_up_window when one came",
    "superseded": "no leader ran in time, and of the missed slots only the newest was run (catch_up='latest')",
    "over_limit": "no leader ran in time, and more slots were missed than catch_up_limit allows",
    "missed": "no leader ran in time, and the schedule makes up for nothing (catch_up='none')",
    "overlap": "an earlier run was not finished, and the schedule does not let runs overlap",
    "paused": "the schedule was paused",
    "changed": "no leader had processed it when the schedule was changed, and a change takes effect from then on",
}


def of_schedule(info: ScheduleInfo, fate: SlotFate) -> Iterator[str]:
    """Whether it runs at all, and when next."""
    time = _clock(info)
    if info.unreadable is not None:
        yield f"It can't be read here, so a leader with this version does not run it: {info.unreadable}"
    if info.retired_at is not None:
        yield f"It has left the code and was retired at {time(info.retired_at)}. Deploy it again, or delete it."
    if info.paused_at is not None:
        note = f": {info.pause_note}" if info.pause_note else ""
        yield f"It was paused by {info.paused_by} at {time(info.paused_at)}{note}. Resume it to let it run."
    if info.next_slot is None:
        yield "It has no slot any more: its ends_at has passed, or all that is left is excluded."
    elif info.is_active and info.next_slot > info.read_at:
        ahead = duration((info.next_slot - info.read_at).total_seconds())
        yield f"Its next slot is {time(info.next_slot)}, in {ahead}."
    elif info.is_active:
        late = duration((info.read_at - info.next_slot).total_seconds())
        cause = (
            "A leader is there and is about to fire it." if fate.has_leader else "No worker and no server leads now."
        )
        yield f"Its slot {time(info.next_slot)} has been due for {late}. {cause}"
    if info.waiting_slot is not None:
        yield f"Its slot {time(info.waiting_slot)} waits until an earlier run is finished (overlap='wait_one')."


def of_slot(info: ScheduleInfo, slot: datetime, fate: SlotFate) -> str:
    """What became of one instant."""
    time = _clock(info)
    if fate.task_id is not None:
        why = "" if fate.state in TERMINAL else f" To see what it waits for: tasklib explain {fate.task_id}"
        return f"{time(slot)} was fired: task {fate.task_id} is {fate.state}.{why}"
    if fate.skipped is not None:
        return f"{time(slot)} was skipped: {WHY.get(fate.skipped, fate.skipped)}."
    if slot == info.waiting_slot:
        return f"{time(slot)} waits until an earlier run is finished."
    if info.unreadable is not None:
        return f"{time(slot)} is not on record, and whether it is a slot can't be told."
    following = next(slots(info.schedule, slot - timedelta.resolution), None)
    if following != slot:
        near = f"; the next one is {time(following)}" if following else ""
        return f"{time(slot)} is no slot of this schedule, as it is now{near}."
    if info.next_slot is not None and slot >= info.next_slot:
        return f"{time(slot)} has not been decided yet."
    if slot <= info.created_at:
        return f"{time(slot)} was before the schedule was made, at {time(info.created_at)}."
    return f"{time(slot)} is not on record: the schedule was another one then, or its task has been deleted since."


def _clock(info: ScheduleInfo) -> Callable[[datetime], str]:
    """Says times on the clock of the schedule's zone, or in UTC if that can't be read."""
    zone = UTC if info.unreadable is not None else zones.load(info.schedule.timezone)
    return lambda moment: f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S%z}"
