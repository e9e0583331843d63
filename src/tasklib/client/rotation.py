"""Rotating keys: sealed tasks are opened with the old key and sealed with the new one, page by page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tasklib.client.effects import Call, RunCoroutine
from tasklib.columns import SEALED_MARK
from tasklib.config import Config
from tasklib.errors import KeyMissing, PayloadDamaged, PayloadUnreadable
from tasklib.steps import StepId, StepKind
from tasklib.store import stored_payloads
from tasklib.store.stored_payloads import SealedRow
from tasklib.tasks import blobs
from tasklib.tasks.keyring import Keyring
from tasklib.tasks.payload_stores import store_of
from tasklib.tasks.sealed_records import moved_signal, moved_step
from tasklib.tasks.sealing import TaskSeal, is_sealed, sealed_error

PAGE = 500


@dataclass(slots=True)
class Rotation:
    """What became of the tasks of one key."""

    old_key: str
    new_key: str
    resealed: int = 0
    skipped: int = 0
    """Tasks that ran, or were changed, while they were to be sealed anew: rotate again for them."""
    unreadable: list[str] = field(default_factory=list)
    """The ids of tasks that can't be opened, which stay as they are."""


def rotate(
    ring: Keyring,
    old_key: str,
    new_key: str,
    *,
    by: str,
    told: Callable[[Rotation], None] = lambda _: None,
) -> Call[Rotation]:
    """Seal anew everything that this key seals. Interrupted at any point, it goes on from there when it is repeated."""
    for key_id in (old_key, new_key):
        if key_id not in ring:
            raise KeyMissing(key_id)
    done, after = Rotation(old_key, new_key), stored_payloads.FIRST
    while page := (yield stored_payloads.sealed_with(old_key, after, PAGE)):
        made = []
        for row in page:
            if row.state == "running":
                done.skipped += 1
                continue
            try:
                if any(blobs.IN_TEXT in text for text in (row.kwargs, row.result or "", row.steps or "")):
                    row = yield RunCoroutine(partial(_with_blobs, row, ring, old_key, new_key))
                made.append(_resealed(row, ring, old_key, new_key))
            except (PayloadDamaged, PayloadUnreadable, ValueError, TypeError, KeyError):
                done.unreadable.append(row.id)
        if made:
            stored: set[str] = yield stored_payloads.reseal(made, old_key, new_key, by=by)
            done.resealed += len(stored)
            done.skipped += len(made) - len(stored)
        told(done)
        after = page[-1].id
    return done


async def _with_blobs(row: SealedRow, ring: Keyring, old_key: str, new_key: str, config: Config) -> SealedRow:
    """What a task holds, with payloads in the store sealed anew and put there under other keys."""
    return await asyncio.to_thread(_put_again, row, ring, old_key, new_key, config)


def _put_again(row: SealedRow, ring: Keyring, old_key: str, new_key: str, config: Config) -> SealedRow:
    store = store_of(config)
    kwargs, result = json.loads(row.kwargs), json.loads(row.result or "null")
    whole = row._replace(kwargs="{}", result=None, error=None, progress=None, steps=None, signals=None)
    if blobs.is_pointer(kwargs):
        opened = whole._replace(kwargs=json.dumps(blobs.fetched(config, kwargs)))
        text = _resealed(opened, ring, old_key, new_key).kwargs
        assert store is not None, "it was fetched from there"
        row = row._replace(kwargs=blobs.stored(store, row.id, "kwargs", text, compress=blobs.is_compressed(kwargs)))
    if result is not None and blobs.is_pointer(result.get("value")):
        opened = whole._replace(result=json.dumps({"value": blobs.fetched(config, result["value"])}))
        text = _resealed(opened, ring, old_key, new_key).result or ""
        assert store is not None
        row = row._replace(result=blobs.stored_result(store, row.id, text))
    steps = []
    for kind, name, text in json.loads(row.steps or "[]"):
        pointer = json.loads(text)["value"]
        if blobs.is_pointer(pointer):
            assert store is not None
            fetched = json.dumps({"value": blobs.fetched(config, pointer)})
            inner = _resealed(whole._replace(steps=json.dumps([(kind, name, fetched)])), ring, old_key, new_key)
            text = blobs.stored_result(store, row.id, json.loads(inner.steps or "")[0][2])
        steps.append((kind, name, text))
    return row._replace(steps=json.dumps(steps) if steps else None)


def _resealed(row: SealedRow, ring: Keyring, old_key: str, new_key: str) -> SealedRow:
    old, new = TaskSeal(ring, old_key, row.id, row.name), TaskSeal(ring, new_key, row.id, row.name)

    def moved(column: str, value: object) -> object:
        """A JSON value with the ciphertext in it sealed anew."""
        if not isinstance(value, dict) or SEALED_MARK not in value:
            return value
        return {**value, SEALED_MARK: old.moved(column, value[SEALED_MARK], new)}

    result = None if row.result is None else json.loads(row.result)
    if result is not None and is_sealed(result.get("value")):
        result = {"value": moved("result", result["value"])}
    error = row.error
    if error is not None and (sealed := sealed_error(error)) is not None:
        error = error.replace(sealed, old.moved("error", sealed, new))
    return row._replace(
        kwargs=json.dumps(moved("kwargs", json.loads(row.kwargs))),
        result=None if result is None else json.dumps(result),
        error=error,
        progress=None if row.progress is None else json.dumps(moved("progress", json.loads(row.progress))),
        steps=row.steps and json.dumps([_moved_step(old, new, *step) for step in json.loads(row.steps)]),
        signals=row.signals
        and json.dumps([(seq, moved_signal(old, new, text)) for seq, text in json.loads(row.signals)]),
    )


def _moved_step(old: TaskSeal, new: TaskSeal, kind: str, name: str, text: str) -> tuple[str, str, str]:
    return kind, name, moved_step(old, new, StepId(StepKind(kind), name), text)
