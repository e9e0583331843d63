"""In place of django-tasks-db: `tasklib.django.Backend`, its tasks, and its worker."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DatabaseBackend":
        from tasklib.django.backend import DjangoTaskBackend

        return DjangoTaskBackend
    raise AttributeError(name)
