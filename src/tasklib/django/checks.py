"""What `manage.py check` says about TaskLib."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error

from tasklib.django.settings import config
from tasklib.errors import ConfigError


def check_database(**_: Any) -> list[CheckMessage]:
    """The setting TASKLIB is right, and its database is one that TaskLib can use."""
    try:
        config()
    except ConfigError as e:
        return [Error(str(e), id="tasklib.E001")]
    return []
