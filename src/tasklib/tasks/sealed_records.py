"""Steps and signals of sealed durable functions: what they hold is sealed for the task and the step or signal.

Clear are the moments that sleeps and timeouts last to, which the database reads, and where a flow's results are.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tasklib.columns import SEALED_MARK
from tasklib.errors import KeyMissing, PayloadDamaged
from tasklib.steps import StepId, StepKind
from tasklib.tasks.sealing import TaskSeal, is_sealed, key_id_of

_HOLD_RESULTS = (StepKind.STEP, StepKind.GATHER)
_SIGNAL_COLUMN = "signal"


class SealedRecords:
    """Seals and opens what one durable task has on record."""

    def __init__(self, seal: TaskSeal, *, accepts_clear: bool) -> None:
        self._seal = seal
        self._accepts_clear = accepts_clear
        self._signals: dict[str, StepId] = {}

    def sealed(self, id_: StepId, text: str) -> str:
        """What a step has to record, {"value": ...}, as it is stored."""
        if id_.kind is StepKind.APPROVAL:  # who may answer, and until when, is clear
            asked = json.loads(text)["value"]
            clear = {name: asked[name] for name in ("role", "expires_at")}
            return json.dumps({"value": {**clear, SEALED_MARK: self._seal.seal(_column(id_), text)}})
        return f'{{"value":{self._seal.json(_column(id_), text)}}}' if id_.kind in _HOLD_RESULTS else text

    def opened(self, id_: StepId, text: str) -> str:
        """What was recorded. PayloadDamaged for anything that this step of this task has not been given."""
        if id_.kind not in (*_HOLD_RESULTS, StepKind.SIGNAL):
            return text
        stored = json.loads(text)
        if "timed_out" in stored:
            return text
        if not is_sealed(value := stored.get("value")):
            if self._accepts_clear:
                return text
            raise self._damaged(id_)
        found: str = value[SEALED_MARK]
        if id_.kind is not StepKind.SIGNAL:
            return opening(self._seal, found).open(_column(id_), found)
        if self._signals.setdefault(found, id_) != id_:  # one that was sent once is received once
            raise self._damaged(id_)
        sent = json.loads(opening(self._seal, found).open(_SIGNAL_COLUMN, found))
        # A step that waits for a signal is called like it, perhaps with a key: `paid[3]`.
        if id_.name != sent["signal"] and not (id_.name.startswith(f"{sent['signal']}[") and id_.name.endswith("]")):
            raise self._damaged(id_)
        return json.dumps({"value": sent["value"]})

    def _damaged(self, id_: StepId) -> PayloadDamaged:
        return PayloadDamaged(self._seal.name, self._seal.task_id, _column(id_))


def sealed_signal(seal: TaskSeal, signal: str, payload: str) -> str:
    """A signal's payload, as JSON text, as it is stored."""
    return seal.json(_SIGNAL_COLUMN, f'{{"signal":{json.dumps(signal)},"value":{payload}}}')


def opened_question(seal: TaskSeal, name: str, sealed: str) -> dict[str, Any]:
    """What an approval of this name asks."""
    asked: dict[str, Any] = json.loads(seal.open(_column(StepId(StepKind.APPROVAL, name)), sealed))["value"]
    return asked


def moved_step(old: TaskSeal, new: TaskSeal, id_: StepId, text: str) -> str:
    """A recorded step sealed by another key."""
    stored = json.loads(text)
    value = stored.get("value")
    if not isinstance(value, dict) or SEALED_MARK not in value:
        return text
    column = _SIGNAL_COLUMN if id_.kind is StepKind.SIGNAL else _column(id_)
    return json.dumps({**stored, "value": {**value, **_moved(old, new, column, value[SEALED_MARK])}})


def moved_signal(old: TaskSeal, new: TaskSeal, text: str) -> str:
    """A signal's payload sealed by another key."""
    value = json.loads(text)
    return json.dumps(_moved(old, new, _SIGNAL_COLUMN, value[SEALED_MARK])) if is_sealed(value) else text


def opening(seal: TaskSeal, sealed: str) -> TaskSeal:
    """What opens this ciphertext of the same task: it may have been sealed before its key was replaced."""
    key_id = key_id_of(sealed)
    if key_id not in seal.ring:
        raise KeyMissing(key_id)
    return seal if key_id == seal.key_id else replace(seal, key_id=key_id)


def _moved(old: TaskSeal, new: TaskSeal, column: str, sealed: str) -> dict[str, str]:
    return {SEALED_MARK: opening(old, sealed).moved(column, sealed, new)}


def _column(id_: StepId) -> str:
    return f"step:{id_.kind.value}:{id_.name}"
