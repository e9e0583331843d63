"""A run of a durable function with several branches is suspended when all of them wait."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasklib import sleep, task, wait_for_signal
from tasklib.tasks.context import LeaveRun
from tasklib.tasks.durable_effects import (
    Consume,
    Effect,
    FoundSignal,
    Load,
    Loading,
    Record,
)
from tasklib.tasks.durable_run import DurableRun, current_run
from tasklib.tasks.retry import RetryPolicy

NOW = datetime.now(UTC)


class SlowJournal:
    """Answers a look for a signal long after everything else."""

    async def perform(self, effect: Effect) -> Any:
        match effect:
            case Load():
                return Loading({}, NOW)
            case Record():
                return json.dumps({"value": (NOW + timedelta(days=1)).isoformat()})
            case Consume():
                for _ in range(50):
                    await asyncio.sleep(0)
                return FoundSignal(None, None)
        raise AssertionError(effect)

    def perform_blocking(self, effect: Effect) -> Any:
        raise AssertionError(effect)


async def test_a_run_is_not_suspended_while_another_branch_still_looks_for_its_signal() -> None:
    @task(durable=True)
    async def waits_for_two_things() -> None:
        async with asyncio.TaskGroup() as branches:
            branches.create_task(sleep(86400))
            branches.create_task(wait_for_signal("go"))

    run = DurableRun(waits_for_two_things, SlowJournal(), RetryPolicy())
    current_run.set(run)
    with pytest.raises(BaseExceptionGroup) as left:
        await waits_for_two_things.function()
    assert left.value.split(LeaveRun)[1] is None
    assert run.waits.signals == ("go",)
    assert run.waits.until is not None
