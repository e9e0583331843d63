"""Long payloads in a payload store: the table holds a pointer, {"$blob": {"key": ..., "bytes": ..., "sha256": ...}}.

The payload is put first, the row is written then: a payload without a row can be deleted later, a pointer without a
payload could not be read. A key is random, and a pointer names the hash: what was changed is not read.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic_core import to_json

from tasklib.config import Config, PayloadStore
from tasklib.errors import PayloadDamaged, PayloadUnreadable
from tasklib.tasks import compression, serializers
from tasklib.tasks.payload_stores import is_key, new_key, store_of
from tasklib.tasks.secrets import BLOB_MARK

IN_TEXT = f'"{BLOB_MARK}"'
FETCH = "$fetch"
"""Among arguments: some of them are results that have to be fetched from the store."""
IN_STORE = (f'{{"{BLOB_MARK}"', f'{{"{FETCH}"')
"""What arguments begin with that have to be fetched, all or some of them."""
CAPABILITY = "payload-store"
"""What a task whose arguments are in a store requires of a worker."""


def is_long(config: Config, text: str) -> bool:
    """Whether this text belongs into the payload store, if there is one."""
    return len(text) >= config.payload_store_from_bytes


def stored(store: PayloadStore, task_id: object, column: str, text: str, *, compress: bool = True) -> str:
    """Put this text into the store; the pointer to it, as JSON text."""
    data = text.encode()
    smaller = compression.smaller(data) if compress else None
    pointer: dict[str, Any] = {"key": new_key(task_id, column), "bytes": len(data)}
    if smaller is not None:
        data, pointer["encoding"] = smaller, compression.CAPABILITY
    pointer["sha256"] = hashlib.sha256(data).hexdigest()
    store.put(pointer["key"], data)
    return json.dumps({BLOB_MARK: pointer})


def stored_result(store: PayloadStore, task_id: object, text: str, *, compress: bool = True) -> str:
    """The same for a result, or that of a step: {"value": ...}."""
    return f'{{"value":{stored(store, task_id, "result", text, compress=compress)}}}'


def is_pointer(value: Any) -> bool:
    """True for a stored value that is a pointer into a payload store."""
    if not isinstance(value, dict) or value.keys() != {BLOB_MARK} or not isinstance(value[BLOB_MARK], dict):
        return False
    pointer = value[BLOB_MARK]
    return is_key(pointer.get("key")) and isinstance(pointer.get("sha256"), str)


def is_compressed(pointer: Any) -> bool:
    """Whether what a pointer leads to is compressed."""
    return "encoding" in pointer[BLOB_MARK]


def required_by(kwargs: str) -> list[str]:
    """What arguments that are a pointer require of a worker."""
    pointer = json.loads(kwargs)[BLOB_MARK]
    return [CAPABILITY, compression.CAPABILITY] if "encoding" in pointer else [CAPABILITY]


def fetched(config: Config, pointer: dict[str, Any]) -> Any:
    """What a pointer leads to. Any error of the store passes through; PayloadDamaged if it isn't there as it was."""
    store, inner = store_of(config), pointer[BLOB_MARK]
    if store is None:
        raise PayloadUnreadable(
            "the payload is in a payload store, and this program has none: set TASKLIB_PAYLOAD_STORE or "
            "Config(payload_store=...)."
        )
    task_id, _, name = inner["key"].partition("/")
    try:
        data = store.get(inner["key"])
    except KeyError:
        raise PayloadDamaged("", task_id, name, f"the payload store has no {inner['key']}.") from None
    if hashlib.sha256(data).hexdigest() != inner["sha256"]:
        raise PayloadDamaged("", task_id, name, f"{inner['key']} in the payload store is not what was put there.")
    text = compression.whole(data) if "encoding" in inner else data
    value = json.loads(text)
    return value["value"] if name.startswith("result-") else value


def resolved(config: Config, value: Any) -> Any:
    """A value with everything fetched that is a pointer in it: the results of other tasks among arguments, too."""
    if is_pointer(value):
        value = fetched(config, value)
    if serializers.is_packed(value):
        return serializers.unpacked(value)
    if isinstance(value, dict):
        return {name: resolved(config, item) for name, item in value.items()}
    return [resolved(config, item) for item in value] if isinstance(value, list) else value


def resolved_arguments(config: Config, text: str) -> str:
    """Stored arguments, as JSON text, with everything fetched."""
    value = json.loads(text)
    if is_pointer(value):  # all of them: the function reads them in the form that it writes
        return json.dumps(fetched(config, value), ensure_ascii=False)
    value.pop(FETCH, None)
    return to_json(resolved(config, value), bytes_mode="base64", inf_nan_mode="constants").decode()


def resolved_result(config: Config, text: str) -> str:
    """A stored result, {"value": ...}, with everything fetched."""
    return json.dumps(resolved(config, json.loads(text)), ensure_ascii=False) if IN_TEXT in text else text
