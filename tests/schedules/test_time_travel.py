"""The testing helper: the slots that would be fired in a stretch of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tasklib import Schedule, task
from tasklib.testing import schedules


def test_the_slots_of_all_task_functions_are_given_in_their_order() -> None:
    @task(schedule=Schedule("30 2 * * *", timezone="Europe/Berlin", name="nightly", args={"full": True}))
    def report(full: bool = False) -> None: ...

    @task(schedule=Schedule(every=timedelta(hours=12), jitter=60))
    async def refresh() -> None: ...

    with schedules.at("2026-03-29T00:00", until="2026-03-29T12:00") as fired:
        assert [(each.schedule, each.slot.hour) for each in fired] == [("refresh", 0), ("nightly", 1), ("refresh", 12)]
        assert fired[1].args == {"full": True}
        assert fired[1].slot == fired[1].run_at == datetime(2026, 3, 29, 1, tzinfo=UTC), "02:30 is skipped that night"
        assert timedelta(0) <= fired[0].run_at - fired[0].slot <= timedelta(minutes=1)


def test_times_may_be_datetimes_of_any_zone() -> None:
    @task(schedule="@daily")
    def clean_up() -> None: ...

    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with schedules.at(start, until=start + timedelta(days=3)) as fired:
        assert [each.slot.day for each in fired] == [2, 3, 4]
