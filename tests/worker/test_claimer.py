"""The claimer: what it says it holds, while what it claimed is on its way to the runner."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tasklib.backends.backend import Found
from tasklib.events import Events
from tasklib.stats import StatsCollector
from tasklib.store.claim import Claimed
from tasklib.store.settle import Lease
from tasklib.worker.claimer import Claimer
from tasklib.worker.slots import Slots


def _claimed(number: int) -> Claimed:
    due = "2026-01-01 00:00:00+00"
    return Claimed(f"{number:032x}", "work", "{}", 1, 0, 3, None, 0, 0, "default", "{}", None, due, 0)


async def test_tasks_count_as_held_from_their_claim_on_and_not_from_their_start() -> None:
    """A backend gives back, or delivers again, the tasks that are leased to a worker and that it doesn't hold."""
    started: list[Found] = []
    anything: Any = SimpleNamespace(claims=lambda host, burst: None)
    claimer = Claimer(
        anything, Slots(2), Events(), StatsCollector(), anything, anything, anything, start=started.append, held=list
    )
    found = Found([_claimed(1), _claimed(2)], "worker", 60.0)
    claimer._hand_on(2, found, more=True)
    assert started == [], "the next claim goes first"
    assert claimer.held() == {Lease(task.id, task.token) for task in found.tasks}
    await asyncio.sleep(0)
    assert started == [found]
    assert claimer.held() == set(), "the runner holds them now"


async def test_a_slot_that_becomes_free_while_others_are_woken_is_claimed_for() -> None:
    """After it there may be no other change to wait for."""
    slots = Slots(1)
    slots.take(1)

    class Claims:
        stay_awake_after = None
        needs_a_slot = False

        async def pass_on(self) -> None:
            slots.give_back()

    anything: Any = SimpleNamespace(claims=lambda host, burst: Claims())
    claimer = Claimer(anything, slots, Events(), StatsCollector(), anything, anything, anything, start=print, held=list)
    async with asyncio.timeout(60):
        await claimer._wait_for_slots()
