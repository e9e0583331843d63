"""Django in the child processes of a worker."""

from __future__ import annotations

import json

import django
from django.apps import apps
from django.db import connections


def prepare(names: str) -> None:
    """Set Django up, with the databases that the worker uses: in Django's tests they are not those of the settings."""
    if not apps.ready:
        django.setup()
    for alias, name in json.loads(names).items():
        connections.settings[alias]["NAME"] = name


def names_of_databases() -> str:
    """The databases of this process, for `prepare`."""
    return json.dumps({alias: connections.settings[alias]["NAME"] for alias in connections.settings}, default=str)
