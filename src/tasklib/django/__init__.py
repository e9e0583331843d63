"""TaskLib for Django projects.

INSTALLED_APPS = [..., "tasklib.django"]

python manage.py migrate             # creates TaskLib's tables
python manage.py tasklib worker      # runs the tasks of every app's tasks.py
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`Backend`, when Django 6 asks for it: older versions have no `django.tasks`."""
    if name != "Backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tasklib.django.backend import DjangoTaskBackend
    except ModuleNotFoundError as e:
        raise ImportError("tasklib.django.Backend needs django.tasks, of Django 6.0 or newer.") from e
    return DjangoTaskBackend
