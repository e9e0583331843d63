"""Results of sealed tasks as arguments of other sealed tasks.

The database hands the ciphertext on with the id and the name of the task that it is from: `{"$of": [id, name], "value":
...}`. Which arguments come from which task is sealed among the arguments of the task that gets them, under "$from".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from tasklib.columns import SEALED_FROM, SEALED_MARK, SEALED_OF
from tasklib.errors import PayloadDamaged
from tasklib.tasks import serializers
from tasklib.tasks.keyring import Keyring
from tasklib.tasks.sealing import Sealing, TaskSeal, is_sealed, seal_of, sealed_error

CLEAR, EITHER = "clear", "either"
"""What `SEALED_FROM` says of an argument instead of the id of its task: it is clear, or some of it is sealed."""
OWNED = f'"{SEALED_OF}"'


def with_sources(text: str, sources: Mapping[str, str]) -> str:
    """Arguments as JSON text, with where those come from that are not known yet."""
    return json.dumps({**json.loads(text), SEALED_FROM: sources}, ensure_ascii=False)


def without_sources(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the program knows them."""
    return {name: value for name, value in arguments.items() if name != SEALED_FROM}


def filled(seal: TaskSeal, own: Mapping[str, Any], beside: Mapping[str, Any], sealing: Sealing | None) -> str:
    """All arguments of a task, as JSON text: its own, and what was stored and handed on beside them.

    PayloadDamaged if something is among those that the submission has not put there, or if something is missing.
    """
    sources = own.get(SEALED_FROM, {})
    for name, value in beside.items():
        expected = sources.get(name)
        if expected is None and (sealing is None or not sealing.is_sealed(name)) and not is_owned(value):
            continue
        if expected is None or not _is_from(value, expected):
            raise PayloadDamaged(seal.name, seal.task_id, f"argument {name}")
    if missing := sources.keys() - beside.keys():
        raise PayloadDamaged(seal.name, seal.task_id, f"argument {min(missing)}")
    opened = {n: opened_value(seal.ring, v) if sources.get(n, CLEAR) != CLEAR else v for n, v in beside.items()}
    every = {**opened, **without_sources(own)}
    return to_json(every, bytes_mode="base64", inf_nan_mode="constants").decode()


def opened_value(ring: Keyring | None, value: Any) -> Any:
    """A result, or how a task ended, or a list of those, with all opened that is sealed."""
    if isinstance(value, list):
        return [opened_value(ring, item) for item in value]
    if not is_owned(value):
        return value
    (task_id, name), found = value[SEALED_OF], value["value"]
    if not isinstance(found, dict):
        return found
    if is_sealed(found):
        opened = seal_of(ring, task_id, name, found[SEALED_MARK]).opened_result(found)
        return serializers.unpacked(opened) if serializers.is_packed(opened) else opened
    if "state" not in found:
        return found
    return {
        **found,
        "result": opened_value(ring, {SEALED_OF: [task_id, name], "value": found["result"]}),
        "error": _opened_error(ring, task_id, name, found["error"]),
    }


def is_owned(value: Any) -> bool:
    """True for a result that says which sealed task it is of."""
    return isinstance(value, dict) and value.keys() == {SEALED_OF, "value"}


def _opened_error(ring: Keyring | None, task_id: str, name: str, error: str | None) -> str | None:
    found = sealed_error(error)
    return error if found is None else seal_of(ring, task_id, name, found).opened_error(error)


def _is_from(value: Any, expected: str) -> bool:
    if expected == CLEAR:
        return not any(map(is_owned, value)) if isinstance(value, list) else not is_owned(value)
    if expected == EITHER:
        return True
    if not is_owned(value) or value[SEALED_OF][0] != expected:
        return False
    found = value["value"]  # None of a task that the flow may go on without
    return found is None or is_sealed(found) or (isinstance(found, dict) and _is_end(found))


def _is_end(found: Mapping[str, Any]) -> bool:
    """Whether all is sealed that says how a task ended. Errors of the database itself are clear."""
    result = found.get("result")
    return "state" in found and (result is None or is_sealed(result))
