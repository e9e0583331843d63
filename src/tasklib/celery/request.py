"""`self.request`: what a running task of Celery's knows of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasklib.celery.lineage import Lineage


@dataclass
class CeleryRequest:
    """The attempt that is running. Outside of one, `called_directly` is True and `id` is None."""

    id: str | None = None
    task: str | None = None
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    retries: int = 0
    is_eager: bool = False
    called_directly: bool = True
    hostname: str | None = None
    headers: dict[str, Any] | None = None
    expires: str | None = None
    eta: str | None = None
    delivery_info: dict[str, Any] = field(default_factory=dict)
    time_limit: float | None = None
    soft_time_limit: float | None = None
    ignore_result: bool = False
    max_retries: int | None = None
    """How often the row allows the task to be retried."""
    reply_to: str | None = None
    lineage: Callable[[], Lineage] | None = None
    """Asked once, and only if the task wants to know where it comes from."""
    group: str | None = None
    chord: Any = None
    chain: Any = None
    utc: bool = True

    @cached_property
    def _found(self) -> Lineage | None:
        return None if self.lineage is None else self.lineage()

    @property
    def parent_id(self) -> str | None:
        """The task before this one in its canvas, or the one that submitted it."""
        return None if self._found is None else self._found.parent_id

    @property
    def root_id(self) -> str | None:
        """The first task of all."""
        return self.id if self._found is None else self._found.root_id

    @property
    def timelimit(self) -> tuple[float | None, float | None]:
        """The hard and the soft limit."""
        return self.time_limit, self.soft_time_limit

    @property
    def correlation_id(self) -> str | None:
        """The task's id."""
        return self.id

    def get(self, name: str, default: Any = None) -> Any:
        """One of the values by its name."""
        return getattr(self, name, default)

    def as_execution_options(self) -> Mapping[str, Any]:
        """What a task that takes the place of this one would be submitted with."""
        return {"queue": self.delivery_info.get("routing_key"), "headers": self.headers}


_current: ContextVar[tuple[Any, CeleryRequest] | None] = ContextVar("tasklib_celery_request", default=None)


@contextmanager
def running(task: Any, request: CeleryRequest) -> Iterator[None]:
    """Inside the block, `task` is the task that runs here."""
    token = _current.set((task, request))
    try:
        yield
    finally:
        _current.reset(token)


def request_of(task: Any) -> CeleryRequest:
    """The request of this task if it runs here; else an empty one."""
    now = _current.get()
    return now[1] if now is not None and now[0].name == task.name else CeleryRequest(task=task.name)


def running_request() -> CeleryRequest | None:
    """That of the task that runs here, or None."""
    now = _current.get()
    return None if now is None else now[1]


def running_celery_task() -> Any:
    """The task that runs here, or None."""
    now = _current.get()
    return None if now is None else now[0]
