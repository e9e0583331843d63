"""The calls about durable tasks: signals to them, and what they have on record."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call, OnConnection
from tasklib.client.identity import OnBehalf
from tasklib.errors import InvalidOption, TaskNotFound
from tasklib.steps import APPROVAL
from tasklib.store import durable, lookup
from tasklib.store.durable import Recorded, RecordedStep
from tasklib.tasks.options import MAX_NAME_BYTES, is_name
from tasklib.tasks.payload import dump
from tasklib.tasks.unstorable import UnstorableValue

MAX_SIGNAL_BYTES = 256 * 1024
"""A signal's payload, as JSON: it becomes a record of the task."""


class DurableCalls(OnBehalf):
    """Signals and steps."""

    def signal(
        self, task_id: UUID | str, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> Call[bool]:
        """Send a signal to a durable task; False if the task is finished. One that comes early is kept.

        A signal with a `key` is sent once, however often it is tried. `connection=` sends it inside the caller's
        transaction.
        """
        task_id, text = validation.as_id(task_id), checked_signal(name, payload, key)
        query = durable.send_signal(task_id, name, text, key=key, sender=self.identity.actor)
        outcome: str | None = yield query if connection is None else OnConnection(connection, query)
        return was_sent(task_id, outcome)

    def signal_on_record(
        self, task_id: UUID | str, name: str, payload: Any = None, *, key: str | None = None
    ) -> Call[bool]:
        """The same by an operator, or over HTTP: it is recorded in the audit."""
        task_id, text = validation.as_id(task_id), checked_signal(name, payload, key)
        identity = self.identity
        outcome: str | None = yield durable.send_signal_audited(
            task_id, name, text, key=key, sender=identity.actor, owner=identity.owner
        )
        return was_sent(task_id, outcome)

    def steps_of(self, task_id: UUID | str) -> Call[list[RecordedStep]]:
        """What a durable task has on record, the oldest first."""
        task_id = validation.as_id(task_id)
        validation.known(task_id, (yield lookup.outcome(task_id, owner=self.identity.owner)))
        recorded: Recorded = yield durable.steps_of(task_id)
        return recorded.steps


def checked_signal(name: str, payload: Any, key: str | None) -> str:
    """The payload as JSON text."""
    for what, value in (("name", name), ("key", key)):
        if not is_name(value) and not (what == "key" and value is None):
            raise InvalidOption(
                f"the {what} of a signal must be a string of 1 to {MAX_NAME_BYTES} bytes, not {value!r}."
            )
    if name.startswith(APPROVAL):
        raise InvalidOption(f"a signal whose name begins with {APPROVAL!r} answers an approval: use approve or reject.")
    try:
        text = dump(payload)
    except UnstorableValue as e:
        place = f" at {e.path}" if e.path else ""
        raise InvalidOption(f"the payload of signal {name!r} can't be stored{place}: {e.reason}.") from e
    if (size := len(text.encode())) > MAX_SIGNAL_BYTES:
        raise InvalidOption(
            f"the payload of signal {name!r} takes {size:,} bytes as JSON; the limit is {MAX_SIGNAL_BYTES:,}. "
            "Store large data elsewhere and send a reference to it."
        )
    return text


def was_sent(task_id: UUID, outcome: str | None) -> bool:
    if outcome is None:
        raise TaskNotFound.with_id(task_id)
    return outcome != "finished"
