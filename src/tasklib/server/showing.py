"""Tasks as the API shows them, with what the row alone doesn't say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tasklib.client.clients import AsyncClient
from tasklib.models import Task
from tasklib.priorities import effective_priority
from tasklib.server.answers import TaskAnswer
from tasklib.states import CLAIMABLE


async def shown(tasks: Sequence[Task], client: AsyncClient) -> list[TaskAnswer]:
    """Each with its effective priority, by the thresholds in force."""
    if not any(task.state in CLAIMABLE for task in tasks):
        return [TaskAnswer.of(task, task.priority) for task in tasks]
    settings, now = await client.settings(), datetime.now(UTC)
    return [
        TaskAnswer.of(
            task,
            effective_priority(
                task,
                now,
                promote_to_medium_after_seconds=settings.promote_to_medium_after_seconds,
                promote_to_high_after_seconds=settings.promote_to_high_after_seconds,
            ),
        )
        for task in tasks
    ]
