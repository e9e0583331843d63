"""The `tasks` table as an SQLModel class, for reading tasks, and for statements of your own.

with Session(engine) as session:
    waiting = session.exec(select(Task).where(Task.state == "pending")).all()
    session.add(Task(name="send_email", kwargs={"to": "a@example.com"}))
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    FetchedValue,
    Integer,
    SmallInteger,
    Text,
    TypeDecorator,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from tasklib.columns import returned
from tasklib.states import TaskState, attempts_begun
from tasklib.tracing import trace_id_for


def _time(**options: Any) -> Any:
    return Column(DateTime(timezone=True), **options)


def _json_or_null() -> Any:
    """SQLAlchemy would store None as JSON's null, which is something."""
    return Column(JSONB(none_as_null=True))


class _Returned(TypeDecorator[Any]):
    """The column `result`, which holds {"value": ...}: as an attribute it is the value itself."""

    impl = JSONB(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else {"value": value}

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return returned(value)


class _Base(SQLModel, registry=registry()):
    """Our own registry: a program may have a `Task` and a `tasks` table too, and its create_all() is not ours."""


class Task(_Base, table=True):  # type: ignore[no-redef]  # the plugin takes the field `kwargs` for its own **kwargs
    """One row of `tasks`. Everything about a task is in its one row."""

    __tablename__ = "tasks"  # pyright: ignore[reportAssignmentType]  # as SQLModel documents it

    # Without an id the database makes one, ordered by time like all of them.
    id: UUID = Field(default=None, sa_column=Column(Uuid, primary_key=True, server_default=FetchedValue()))
    name: str = Field(sa_column=Column(Text(collation="C"), nullable=False))
    queue: str = Field(default="default", sa_column=Column(Text(collation="C"), nullable=False))
    lane: str = Field(default="", sa_column=Column(Text(collation="C"), nullable=False))
    state: str = Field(default=TaskState.PENDING.value, sa_column=Column(Text(collation="C"), nullable=False))
    args: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSONB, nullable=False))
    kwargs: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSONB, nullable=False))
    tags: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSONB, nullable=False))
    required_capabilities: list[str] = Field(
        default_factory=list, sa_column=Column(ARRAY(Text(collation="C")), nullable=False)
    )
    created_at: datetime = Field(sa_column=_time(nullable=False, server_default=func.now()))
    scheduled_at: datetime = Field(sa_column=_time(nullable=False, server_default=func.now()))
    lease_token: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default=text("0")))
    priority: int = Field(default=0, sa_column=Column(Integer, nullable=False))
    max_retries: int = Field(default=3, sa_column=Column(Integer, nullable=False))
    retry_count: int = Field(default=0, sa_column=Column(Integer, nullable=False))
    crash_count: int = Field(default=0, sa_column=Column(Integer, nullable=False))
    next_retry_at: datetime | None = Field(default=None, sa_column=_time())
    started_at: datetime | None = Field(default=None, sa_column=_time())
    completed_at: datetime | None = Field(default=None, sa_column=_time())
    cancel_requested_at: datetime | None = Field(default=None, sa_column=_time())
    locked_until: datetime | None = Field(default=None, sa_column=_time())
    worker_id: str | None = Field(default=None, sa_column=Column(Text))
    timeout_seconds: int | None = Field(default=None, sa_column=Column(Integer))
    result: Any | None = Field(default=None, sa_column=Column(_Returned))
    error: str | None = Field(default=None, sa_column=Column(Text))
    progress: Any | None = Field(default=None, sa_column=_json_or_null())
    history: list[dict[str, Any]] | None = Field(default=None, sa_column=_json_or_null())
    awaited_signals: list[str] | None = Field(default=None, sa_column=Column(ARRAY(Text(collation="C"))))
    signals_sent: int | None = Field(default=None, sa_column=Column(BigInteger))
    begun_token: int | None = Field(default=None, sa_column=Column(BigInteger))
    at_most_once: bool | None = Field(default=None, sa_column=Column(Boolean))
    idempotency_key: str | None = Field(default=None, sa_column=Column(Text))
    idempotency_expires_at: datetime | None = Field(default=None, sa_column=_time())
    trace_context: dict[str, Any] | None = Field(default=None, sa_column=_json_or_null())
    submitted_by: str | None = Field(default=None, sa_column=Column(Text))
    schedule: str | None = Field(default=None, sa_column=Column(Text(collation="C")))
    slot: datetime | None = Field(default=None, sa_column=_time())
    flow: UUID | None = Field(default=None, sa_column=Column(Uuid))
    node: str | None = Field(default=None, sa_column=Column(Text(collation="C")))
    waits_for: UUID | None = Field(default=None, sa_column=Column(Uuid))
    reports_to: list[UUID] | None = Field(default=None, sa_column=Column(ARRAY(Uuid)))
    merge_key: str | None = Field(default=None, sa_column=Column(Text(collation="C")))
    merge_while: str | None = Field(default=None, sa_column=Column(Text(collation="C")))
    payload_version: int | None = Field(default=None, sa_column=Column(SmallInteger))
    key_id: str | None = Field(default=None, sa_column=Column(Text(collation="C")))

    @property
    def attempts(self) -> int:
        """How many attempts have begun, as far as is known: those that failed, those that were lost, and the last."""
        last = self.history[-1].get("attempt") if self.history else None
        return attempts_begun(self.state, self.retry_count, self.crash_count, last)

    @property
    def trace_id(self) -> str:
        """The trace it belongs to, as 32 hexadecimal digits: the one it was submitted in, else its own id."""
        return trace_id_for(self.id, self.trace_context)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        # Arguments and results may hold secrets, which don't belong in a log.
        names = ("id", "name", "queue", "state", "retry_count", "created_at")
        return [(name, getattr(self, name, None)) for name in names]
