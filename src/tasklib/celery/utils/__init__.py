"""What programs import from `celery.utils`."""

from __future__ import annotations

from tasklib.tasks.ids import new_id


def uuid() -> str:
    """A new id for `apply_async(task_id=...)`."""
    return str(new_id())
