"""The benchmark of schedules measures what it says: a hundredth of them is due each second."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

from benchmarks.schedules import rules
from tasklib.schedules import Schedule, slots_between


def test_a_hundredth_of_the_schedules_is_due_each_second() -> None:
    started = datetime(2026, 3, 28, 23, 59, tzinfo=UTC)
    due: Counter[datetime] = Counter()
    found = rules(started)
    for spec, number in Counter(spec for spec, _ in found).items():
        schedule = Schedule.from_json(json.loads(spec + "}"))
        for slot in slots_between(schedule, started, started + timedelta(minutes=4)):
            due[slot] += number
    assert set(due.values()) == {len(found) // 100}
    assert len(due) == 240
