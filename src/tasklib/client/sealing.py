"""Sealing arguments and signals that are submitted, and opening payloads that are read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tasklib.columns import SEALED_MARK
from tasklib.config import Config
from tasklib.errors import InvalidOption, KeyMissing
from tasklib.store.lookup import Outcome
from tasklib.store.submit import SubmitTerms
from tasklib.tasks import serializers
from tasklib.tasks.keyring import Keyring, keyring_of
from tasklib.tasks.options import Options
from tasklib.tasks.sealed_results import without_sources
from tasklib.tasks.sealing import (
    TaskSeal,
    hashed_key,
    is_sealed,
    key_id_of,
    required_by,
    seal_of,
    sealed_arguments,
    sealed_error,
)
from tasklib.tasks.secrets import BLOB_MARK

if TYPE_CHECKING:
    from tasklib.client.call_arguments import Target
    from tasklib.client.submissions import Defaults
    from tasklib.models import Task

T = TypeVar("T", bound="Task")
_SERIALIZED = f'{{"{serializers.MARK}":'
_BLOB = f'{{"{BLOB_MARK}":'


def refuse_replacing(target: Target, options: Options) -> None:
    """A ciphertext belongs to one task, so it can't take the place of another's."""
    if isinstance(target, str) or target.sealing is None:
        return
    if options.debounce is not None or options.on_duplicate == "replace":
        raise InvalidOption(
            f"{target.name} is sealed, and arguments sealed for one task can't replace another's: omit "
            "debounce and on_duplicate='replace'."
        )


def stored_key(defaults: Defaults, target: Target, key: str) -> str:
    """An idempotency or merge key as it is stored: that of a sealed task as a keyed hash."""
    if isinstance(target, str) or target.sealing is None or not defaults.seals:
        return key
    ring = ring_for(defaults.config, target.name)
    return hashed_key(ring, ring.first, target.name, key)


def ring_for(config: Config, name: str) -> Keyring:
    """The keys with which tasks of this name are sealed."""
    ring = keyring_of(config)
    if ring is None:
        raise KeyMissing.no_keyring(name)
    return ring


class Sealer:
    """Seals the arguments of new tasks."""

    def __init__(self, defaults: Defaults, *, have_given_ids: bool = False) -> None:
        self._config = defaults.config
        self._have_given_ids = have_given_ids
        self._terms: dict[tuple[int, tuple[str, ...]], tuple[SubmitTerms, SubmitTerms]] = {}

    def sealed(self, target: Target, id_: UUID, text: str, terms: SubmitTerms) -> tuple[str, SubmitTerms]:
        """The arguments as they are stored, and the terms with the key that a worker must have."""
        if isinstance(target, str):
            return text, self._of_named(text, terms)
        if target.sealing is None:
            return text, terms
        _, sealed = sealed_text(self._config, target, id_, text)
        found = sealed_arguments(sealed)
        assert found is not None
        return sealed, self._with_key(terms, found)

    def _of_sealed(self, text: str, terms: SubmitTerms) -> SubmitTerms:
        if (found := sealed_arguments(text)) is None:
            return terms
        if not self._have_given_ids:
            raise InvalidOption(
                f"these arguments of {terms.name} are sealed for another task. Submit it with clear arguments, in a "
                "program that has the function and its key."
            )
        if terms.replaces:
            raise InvalidOption(f"sealed arguments of {terms.name} can't replace those of another task.")
        return self._with_key(terms, found)

    def _of_named(self, text: str, terms: SubmitTerms) -> SubmitTerms:
        """For a function that this program hasn't got: what its arguments require, as they came."""
        if text.startswith(_BLOB):
            return self._of_blob(text, terms)
        if text.startswith(_SERIALIZED):
            required = {*terms.required_capabilities, *serializers.required_by(text)}
            return replace(terms, required_capabilities=tuple(sorted(required)))
        return self._of_sealed(text, terms)

    def _of_blob(self, text: str, terms: SubmitTerms) -> SubmitTerms:
        raise InvalidOption(
            f"these arguments of {terms.name} are a pointer into a payload store. Submit it with its arguments."
        )

    def _with_key(self, terms: SubmitTerms, sealed: str) -> SubmitTerms:
        """Many tasks share their terms, and so do they afterwards."""
        required = tuple(required_by(sealed))
        known = self._terms.get((id(terms), required))
        if known is None:
            every = tuple(sorted({*terms.required_capabilities, *required}))
            known = terms, replace(terms, key_id=key_id_of(sealed), required_capabilities=every)
            self._terms[id(terms), required] = known
        return known[1]


def sealed_text(config: Config, target: Any, id_: UUID, text: str) -> tuple[str, str]:
    """The id of the key that seals a task, and its arguments as they are stored."""
    ring = ring_for(config, target.name)
    key_id = ring.first if config.key_for is None else config.key_for(target.name, without_sources(json.loads(text)))
    seal = TaskSeal(ring, key_id, str(UUID(int=id_.int)), target.name, target.compress)
    return key_id, seal.arguments(text, target.sealing)


def seal_for(config: Config, task_id: UUID, name: str, key_id: str) -> TaskSeal:
    """Seals signals and answers for a task that is sealed with this key."""
    ring = ring_for(config, name)
    if key_id not in ring:
        raise KeyMissing(key_id)
    return TaskSeal(ring, key_id, str(UUID(int=task_id.int)), name)


def sealed_payload(text: str) -> str | None:
    """The ciphertext of a payload, as JSON text, that its sender has sealed."""
    if SEALED_MARK not in text:
        return None
    value = json.loads(text)
    return value[SEALED_MARK] if is_sealed(value) else None


# ---- reading ----


def opened_outcome(config: Config, task_id: UUID, outcome: Outcome) -> Outcome:
    """How a task ended, with a result and an error that were sealed opened. KeyMissing without the key."""
    sealed = outcome.result[SEALED_MARK] if is_sealed(outcome.result) else sealed_error(outcome.error)
    if sealed is None:
        return outcome
    seal = seal_of(keyring_of(config), task_id, outcome.name, sealed)
    return replace(outcome, result=seal.opened_result(outcome.result), error=seal.opened_error(outcome.error))


def opened_task(config: Config, task: T) -> T:
    """A task that was read, with all that was sealed in it opened. It is changed in place: never store it."""
    if task.key_id is None:
        return task
    ring = keyring_of(config)
    if ring is None or task.key_id not in ring:
        raise KeyMissing(task.key_id)
    seal = TaskSeal(ring, task.key_id, str(task.id), task.name)
    if SEALED_MARK in task.kwargs:
        task.kwargs = without_sources(json.loads(seal.opened_arguments(json.dumps(task.kwargs))))
    task.result = seal.opened_result(task.result)
    task.progress = seal.opened_json("progress", task.progress)
    task.error = seal.opened_error(task.error)
    return task


def refuse_unsealed(function: object, argument: str, name: str) -> None:
    """What gets the result of a sealed task has to be sealed itself: it would be stored clear with the next error."""
    raise InvalidOption(
        f"{function} would get the result of {name}, which is sealed, as {argument}, which is not. Declare it as "
        f"Sealed[...], or write @task(sealed=True) above {function}."
    )
