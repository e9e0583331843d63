"""Names that Celery's tests import and TaskLib doesn't have. A test that needs one of them fails, for that reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

worker_state = SimpleNamespace(revoked_stamps=set())
task_received = SimpleNamespace(connect=lambda function: function, disconnect=lambda _: None)


class StampingVisitor:
    """Refused: tasks have tags instead of stamps."""


class BaseKeyValueStoreBackend:
    """Of the result backends, which are replaced by the table of tasks."""


class SoftTimeLimitExceeded(Exception):
    """Of soft time limits, which are refused."""


class UnpickleableExceptionWrapper(Exception):
    """Not needed: nothing is pickled."""


def control_command(**_: Any) -> Any:
    return lambda function: function
