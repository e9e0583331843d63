"""Unique, debounced and throttled submissions: how they combine, and the key by which they meet.

A unique or debounced task carries a merge key, and a later submission with it is merged into the task (see
`sql/submit/fragments/merging.sql`). A throttled one carries an idempotency key that holds for its own window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from tasklib.client.identity import Identity
from tasklib.errors import InvalidOption
from tasklib.store.submit import NewTask, SubmitTerms
from tasklib.tasks.options import Options
from tasklib.tasks.secrets import SECRET_MARK

THROTTLE = "throttle:"
"""What the idempotency key of a throttled task begins with."""
_LONGEST_PLAIN = 300


def terms_of(options: Options) -> dict[str, Any]:
    """What the options say about merging, for SubmitTerms; the key is still missing."""
    chosen = [name for name in ("unique", "debounce", "throttle") if getattr(options, name) is not None]
    said = [name for name in ("merge_key", "on_duplicate", "max_wait") if getattr(options, name) is not None]
    if not chosen:
        if said:
            raise InvalidOption(f"{said[0]} needs unique=, debounce= or throttle=, which this submission doesn't have.")
        return {}
    _check(options, chosen)
    given = options.merge_key
    terms = {
        "needs_key": True,
        "merge_key": given if isinstance(given, str) else None,
        "key_arguments": None if given is None or isinstance(given, str) else tuple(given),
    }
    if options.throttle is not None:
        return terms
    return {
        **terms,
        "merge_while": options.unique or "pending",
        "on_duplicate": options.on_duplicate or ("replace" if options.debounce else "return"),
        "debounce": options.debounce,
        "max_wait": options.max_wait,
    }


def _check(options: Options, chosen: Sequence[str]) -> None:
    how = options.on_duplicate
    if len(chosen) > 1:
        raise InvalidOption(f"{' and '.join(chosen)} exclude each other. Choose one.")
    if options.idempotency_key is not None:
        raise InvalidOption(f"{chosen[0]} and idempotency_key exclude each other. Choose one.")
    if how is not None and (options.throttle or (options.debounce and how == "raise")):
        raise InvalidOption(f"{chosen[0]} can't be combined with on_duplicate={how!r}.")
    if options.max_wait is not None and (options.debounce is None or options.max_wait < options.debounce):
        raise InvalidOption("max_wait belongs to debounce, and is at least as long.")
    if options.debounce is not None and (options.delay_seconds is not None or options.scheduled_at is not None):
        raise InvalidOption("debounce says when the task runs: omit delay_seconds and scheduled_at.")


def key_of(terms: SubmitTerms, kwargs: str, known: Collection[str]) -> str:
    """The key of one task: as given, or made of its arguments, so that equal arguments give equal keys.

    `known` are the parameters of its function, if this program has it.
    """
    if terms.merge_key is not None:
        return terms.merge_key
    values = json.loads(kwargs)
    if terms.key_arguments is not None:
        for name in terms.key_arguments:
            if name not in values and name not in known:
                raise InvalidOption(f"merge_key names {name!r}, which is no argument of {terms.name}.")
        values = [values.get(name) for name in terms.key_arguments]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    # A key is shown, and what is hidden among the arguments is not.
    is_short = len(text) <= _LONGEST_PLAIN and SECRET_MARK not in text
    return text if is_short else hashlib.sha256(text.encode()).hexdigest()


def with_key(terms: SubmitTerms, key: str, identity: Identity | None) -> SubmitTerms:
    """The terms of one task, complete."""
    if terms.merge_while is None:
        stored = identity.key(THROTTLE + key) if identity else THROTTLE + key
        return replace(terms, needs_key=False, merge_key=None, idempotency_key=stored)
    return replace(terms, needs_key=False, merge_key=identity.key(key) if identity else key)


def add(merged: dict[object, NewTask], task: NewTask) -> None:
    """Add a task of a batch, or merge it into an earlier one of the batch, as if they came one after the other."""
    identity = (task.terms.name, task.terms.shared_key)
    earlier = merged.setdefault(identity, task)
    if earlier is task:
        return
    if task.terms.on_duplicate == "raise":
        raise InvalidOption(
            f"two of these tasks are {task.terms.name} with the same merge key, and on_duplicate='raise' forbids that. "
            "None of them was submitted."
        )
    if task.terms.on_duplicate == "replace":
        merged[identity] = NewTask(earlier.id, task.kwargs, task.terms)


def refuse_mixed(merging: Sequence[NewTask], others: Sequence[NewTask]) -> None:
    """On a connection of the caller's a batch is one statement, which is all or none even in autocommit mode."""
    if others:
        raise InvalidOption("on a connection of your own, submit unique and debounced tasks apart from the others.")
    if len(merging) > 1 and any(task.terms.on_duplicate == "raise" for task in merging):
        raise InvalidOption("on a connection of your own, submit tasks with on_duplicate='raise' one by one.")
