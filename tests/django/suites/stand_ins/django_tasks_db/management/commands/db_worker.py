"""A worker of TaskLib that runs what is due and ends, started as their tests start theirs."""

from typing import Any

from django.core.management.base import BaseCommand

from tasklib.testing import drain_sync

NOT_OURS = ("backend_name", "exclude_queues", "max_tasks")


class Command(BaseCommand):
    stealth_options = ("batch", "interval", "queue_name", "startup_delay", "worker_id", *NOT_OURS)

    def handle(self, *, queue_name: str = "default", **said: Any) -> None:
        if unknown := set(said) & set(NOT_OURS):
            raise NotImplementedError(f"a worker of TaskLib has other options than {unknown}")
        drain_sync(queues=None if queue_name == "*" else queue_name.split(","))
