"""The table `tasks` as a Django model, to look at: for the admin, and for queries of your own.

TaskRecord.objects.filter(state="dead_letter", name="send_receipt")

TaskLib's own migrations make and change the table; the migrations of this app only keep Django's notion of it.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models

from tasklib.columns import returned
from tasklib.django.settings import table
from tasklib.states import TaskState

STATES = [(state.value, state.value.replace("_", " ")) for state in TaskState]


class TaskRecord(models.Model):
    """One task. Change it by calls such as `tasklib.sync.cancel_task`, never by saving it."""

    id = models.UUIDField(primary_key=True)
    name = models.TextField()
    queue = models.TextField(default="default")
    state = models.TextField(choices=STATES, default=TaskState.PENDING.value)
    priority = models.IntegerField(default=0)
    kwargs = models.JSONField("arguments", default=dict)
    tags = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    scheduled_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField("finished at", null=True)
    next_retry_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    worker_id = models.TextField("worker", null=True)
    retry_count = models.IntegerField("retries", default=0)
    max_retries = models.IntegerField(default=3)
    crash_count = models.IntegerField("crashes", default=0)
    timeout_seconds = models.IntegerField(null=True)
    result = models.JSONField(null=True)
    error = models.TextField(null=True)
    progress = models.JSONField(null=True)
    history = models.JSONField(null=True)
    idempotency_key = models.TextField(null=True)
    submitted_by = models.TextField(null=True)
    schedule = models.TextField(null=True)

    class Meta:
        db_table = table("tasks")
        verbose_name = "task"
        # Not false, or `flush` would leave the tasks of one TransactionTestCase to the next.
        managed = True
        default_permissions = ("view",)
        permissions = [("cancel_task", "Can cancel tasks"), ("replay_task", "Can replay tasks")]

    def __str__(self) -> str:
        return f"{self.name} {self.pk}"

    @property
    def returned(self) -> Any:
        """What the function returned; the column wraps it."""
        return returned(self.result)

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a row is changed by guarded statements only."""
        raise TypeError(
            "a task is not changed by saving its row. Use tasklib.sync.cancel_task(task.pk), replay_task(task.pk) or "
            "the submit_sync() of its function."
        )

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused as well: tasks are deleted by the retention rules."""
        raise TypeError("a task is not deleted by hand. Cancel it: tasklib.sync.cancel_task(task.pk).")
