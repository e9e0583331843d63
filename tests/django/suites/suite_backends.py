"""`tasklib.django.Backend` in place of Django's two backends for tests, with what their tests ask of them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections

from tasklib.client.default import default_client
from tasklib.django.backend import DjangoTaskBackend
from tasklib.django.models import TaskRecord
from tasklib.django.test import captureTasks


class Recording(DjangoTaskBackend):
    """Like Django's DummyBackend: keeps what is enqueued."""

    @property
    def results(self) -> list[Any]:
        """Also for asynchronous tests, which take it for a list in memory."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._found()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._found_in_thread).result()

    def _found_in_thread(self) -> list[Any]:
        try:
            return self._found()
        finally:
            connections.close_all()

    def _found(self) -> list[Any]:
        return [self.get_result(str(task.id)) for task in reversed(default_client().list_tasks())]

    def clear(self) -> None:
        TaskRecord.objects.all().delete()


class Immediate(DjangoTaskBackend):
    """Like Django's ImmediateBackend: has run what is enqueued when that returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = None
        try:
            with captureTasks(run=True):
                result = super().enqueue(task, args, kwargs)
        except (Exception, SystemExit):
            if result is None:
                raise
        result.refresh()
        return result
