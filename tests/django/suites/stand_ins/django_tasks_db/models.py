"""The tasks of TaskLib by the questions that the tests ask of theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, models
from django.tasks import default_task_backend
from django.utils import timezone

from tasklib.django.backend import _priority
from tasklib.django.models import TaskRecord


def get_date_max() -> datetime:
    return datetime(9999, 1, 1, tzinfo=UTC)


class Results(models.QuerySet):
    def create(self, *, task_path: str, args_kwargs: Any, backend_name: str, priority: float = 0) -> Any:
        """A row written by hand, as TaskLib takes it."""
        name, kwargs = task_path or "tests.tasks.noop_task", args_kwargs or {"args": [], "kwargs": {}}
        with connection.cursor() as cursor:
            row = [name, json.dumps(kwargs), _priority(priority)]
            cursor.execute("INSERT INTO tasks (name, kwargs, priority) VALUES (%s, %s, %s) RETURNING id", row)
            return self.get(pk=cursor.fetchone()[0])

    def update(self, **said: Any) -> int:
        """Their columns by our names; a finished task as a worker would have left it."""
        ours = {"started_at": said.get("started_at"), "completed_at": said.get("finished_at")}
        if "run_after" in said:
            return super().update(scheduled_at=said["run_after"])
        return super().update(state="completed", result={"value": said["return_value"]}, worker_id="w-1", **ours)

    async def aupdate(self, **said: Any) -> int:
        return await sync_to_async(self.update)(**said)

    def ready(self) -> Any:
        return self.filter(state="pending", scheduled_at__lte=timezone.now())

    def successful(self) -> Any:
        return self.filter(state="completed")

    def failed(self) -> Any:
        return self.filter(state="dead_letter")


class DBTaskResult(TaskRecord):
    objects = Results.as_manager()

    class Meta:
        proxy = True

    @property
    def task_result(self) -> Any:
        return default_task_backend.get_result(str(self.pk))

    @property
    def task(self) -> Any:
        return self.task_result.task
