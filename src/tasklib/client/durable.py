"""The calls about durable tasks: signals to them, and what they have on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call, OnConnection
from tasklib.client.identity import OnBehalf
from tasklib.client.sealing import seal_for, sealed_payload
from tasklib.errors import InvalidOption, PayloadDamaged, TaskNotFound
from tasklib.steps import APPROVAL
from tasklib.store import durable, lookup
from tasklib.store.durable import Recorded, RecordedStep, SealedWith
from tasklib.tasks.options import MAX_NAME_BYTES, is_name
from tasklib.tasks.payload import dump
from tasklib.tasks.sealed_records import sealed_signal
from tasklib.tasks.sealing import key_id_of
from tasklib.tasks.unstorable import UnstorableValue

MAX_SIGNAL_BYTES = 256 * 1024
"""A signal's payload, as JSON: it becomes a record of the task."""
_KEYS_TRIED = 5
"""A rotation may change the key of a task while something is sent to it."""
_OTHER_KEY = "signal {!r} is sealed with another key than its task. Seal it again."


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

        def sent(text: str, sealed_with: str | None) -> Call[str | None]:
            query = durable.send_signal(
                task_id, name, text, key=key, sender=self.identity.actor, sealed_with=sealed_with
            )
            outcome: str | None = yield query if connection is None else OnConnection(connection, query)
            return outcome

        return was_sent(task_id, (yield from self._sealed_if_needed(task_id, name, text, sent, connection)))

    def signal_on_record(
        self, task_id: UUID | str, name: str, payload: Any = None, *, key: str | None = None
    ) -> Call[bool]:
        """The same by an operator, or over HTTP: it is recorded in the audit."""
        task_id, text = validation.as_id(task_id), checked_signal(name, payload, key)
        identity = self.identity

        def sent(text: str, sealed_with: str | None) -> Call[str | None]:
            outcome: str | None = yield durable.send_signal_audited(
                task_id, name, text, key=key, sender=identity.actor, owner=identity.owner, sealed_with=sealed_with
            )
            return outcome

        return was_sent(task_id, (yield from self._sealed_if_needed(task_id, name, text, sent)))

    def _sealed_if_needed(
        self,
        task_id: UUID,
        signal: str,
        payload: str,
        sent: Callable[[str, str | None], Call[str | None]],
        connection: Any = None,
    ) -> Call[str | None]:
        """What came of sending this payload: sealed, if the task is. Programs that send to others need no key."""
        ready = sealed_payload(payload)
        outcome = yield from sent(payload, None if ready is None else key_id_of(ready))
        tries = 0
        while outcome == "sealed" and ready is None and tries < _KEYS_TRIED:
            found = durable.sealed_with(task_id, owner=self.identity.owner)
            wanted: SealedWith | None = yield found if connection is None else OnConnection(connection, found)
            if wanted is None or wanted.key_id is None:
                return None
            seal = seal_for(self.config, task_id, wanted.name, wanted.key_id)
            outcome = yield from sent(sealed_signal(seal, signal, payload), wanted.key_id)
            tries += 1
        if outcome == "sealed":
            raise PayloadDamaged("", str(task_id), f"signal {signal!r}", _OTHER_KEY.format(signal))
        return outcome

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
