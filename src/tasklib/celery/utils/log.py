"""What programs import from `celery.utils.log`."""

from __future__ import annotations

import logging
from typing import Any

from tasklib.celery.exceptions import NotOnTaskLib


def get_logger(name: str) -> logging.Logger:
    """A logger of the standard library."""
    return logging.getLogger(name)


def get_task_logger(name: str) -> logging.Logger:
    """The same. `tasklib worker` adds the task's id and attempt to what it logs during a task."""
    return logging.getLogger(name)


_NAMES = ("ColorFormatter", "LoggingProxy", "LOG_LEVELS", "mlevel", "set_in_sighandler", "in_sighandler")
_REFUSED = {
    "base_logger": "use logging.getLogger",
    "get_multiprocessing_logger": "use multiprocessing.get_logger",
    "reset_multiprocessing_logger": "use multiprocessing.get_logger",
    **dict.fromkeys(_NAMES, "`tasklib worker` sets up logging"),
}


def __getattr__(name: str) -> Any:
    if reason := _REFUSED.get(name):
        raise NotOnTaskLib(f"celery.utils.log.{name}: {reason}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
