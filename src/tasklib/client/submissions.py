"""Submitting: checked, with every default applied, stored. One implementation for sync and async callers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, overload
from uuid import UUID

import psycopg

from tasklib import tracing
from tasklib.client import blobs, merging, sealing, validation
from tasklib.client.backpressure import Unbounded, refuse_full, subjects_of
from tasklib.client.call_arguments import Alike, Target
from tasklib.client.effects import Call, Effect, InTransaction, OnConnection
from tasklib.client.identity import Identity, OnBehalf
from tasklib.config import Config
from tasklib.db.failures import MOST_CONFLICTS, Conflict
from tasklib.db.query import Query
from tasklib.errors import InvalidOption, TaskExecutionError, TaskLibError
from tasklib.events import TaskSubmitted, client_events
from tasklib.store import backpressure, submit
from tasklib.store.backpressure import Pressure
from tasklib.store.submit import Kept, NewTask, SubmitTerms
from tasklib.tasks.hooks import around_submission, submission_hooks
from tasklib.tasks.ids import Given, Ids
from tasklib.tasks.limits import lane_of
from tasklib.tasks.options import NOTHING_SAID, Options, priority_of
from tasklib.tasks.payload import dump, json_option, limited
from tasklib.tasks.submitter import Submission
from tasklib.tasks.task_id import KnownId, TaskId
from tasklib.tasks.unstorable import UnstorableValue
from tasklib.tasks.versions import capability

COPY_FROM = 100
"""From this many plain tasks on, COPY beats one INSERT."""
_MOST_REMEMBERED = 1000


class Submitted(NamedTuple):
    """What became of one submission."""

    id: UUID
    is_new: bool
    """False: its idempotency key or merge key belongs to a task that was there before."""


class SubmitCalls(OnBehalf):
    """The calls that submit, for one configuration, on behalf of one identity."""

    def __init__(
        self, config: Config, identity: Identity | None = None, *, id_type: type[KnownId[Any]] = TaskId
    ) -> None:
        super().__init__(config, identity)
        self.id_type = id_type
        """Of which class the ids of submitted tasks are: it gives them methods that are awaited, or block."""
        self.defaults: Defaults = Defaults(config, self.identity)
        self._unbounded = Unbounded()

    def submit(self, item: Submission, *, connection: Any = None) -> Call[UUID]:
        """Submit what `task_function.bind(...)` returned."""
        ids = yield from self._insert([item], connection)
        return ids[0]

    def submit_each(self, items: Sequence[Submission], *, ids: Sequence[UUID] | None = None) -> Call[list[Submitted]]:
        """Submit what `task_function.bind(...)` returned, all or none, and say of each whether it is new.

        With `ids=`, UUIDs of version 7, a submission that is repeated adds nothing.
        """
        if ids is not None:
            validation.check_ids(ids, len(items))
        tasks = new_tasks(items, self.defaults, ids, id_type=self.id_type)
        ids = yield from self._submit(tasks, None)
        return [Submitted(id_, id_ == made) for id_, made in zip(ids, tasks.ids, strict=True)]

    def _insert(self, items: Alike | Sequence[Submission], connection: Any) -> Call[list[UUID]]:
        """Store new tasks. Clients without a database have their own way."""
        return (yield from self._submit(new_tasks(items, self.defaults, id_type=self.id_type), connection))

    def _submit(self, tasks: NewTasks, connection: Any) -> Call[list[UUID]]:
        if self.config.payload_store is not None:
            yield from blobs.offload(self.config, tasks)
        if self.config.backpressure:
            yield from self._admit(subjects_of(tasks.kinds), connection)
        if submission_hooks or tracing.API in sys.modules:
            with around(tasks):
                ids = yield from self._store(tasks, connection)
        else:
            ids = yield from self._store(tasks, connection)
        if client_events.routine:
            tell(tasks, ids, self.identity.actor)
        return ids

    def _admit(self, subjects: set[str], connection: Any) -> Call[None]:
        """QueueFull if one of these queues and names is over its bounds."""
        if asked := self._unbounded.others(subjects):
            look = backpressure.look(asked)
            found: list[Pressure] = yield look if connection is None else OnConnection(connection, look)
            self._unbounded.remember(asked, found)
            refuse_full(found)

    def _store(self, tasks: NewTasks, connection: Any) -> Call[list[UUID]]:
        if tasks.have_given_ids:
            kept = yield from self._store_given(tasks)
        elif len(tasks) == 1:
            one = submit.submit_one(tasks[0], self.identity.owner)
            if connection is None:
                kept = yield one
            else:
                kept = yield from self._store_on(connection, one, tasks)
        elif connection is None:
            kept = yield self._batch(tasks)
        else:
            # One statement, so that it is all or none even on a connection in autocommit mode.
            keyed, merged, plain = by_key(tasks)
            if merged:
                merging.refuse_mixed(merged, keyed + plain)
                query: Query[Any] = submit.submit_merging(merged, self.identity.owner)
            else:
                query = submit.submit_once(plain + keyed, self.identity.owner) if keyed else submit.submit(plain)
            kept = yield from self._store_on(connection, query, tasks)
        return ids_in_order(tasks, kept)

    def _store_on(self, connection: Any, query: Query[Any], tasks: NewTasks) -> Call[Kept | None]:
        """On the caller's connection, where nothing can be rolled back: a key taken just now is looked up again."""
        tries = 0
        while True:
            try:
                kept: Kept | None = yield OnConnection(connection, query)
                return kept
            except Conflict:  # the others are inserted by now
                tries += 1
                if tries == MOST_CONFLICTS:
                    raise
                keyed, merged, _ = by_key(tasks)
                owner = self.identity.owner
                query = submit.submit_merging(merged, owner) if merged else submit.submit_once(keyed, owner)

    def _store_given(self, tasks: NewTasks) -> Call[Kept | None]:
        keyed, merged, plain = by_key(tasks)
        queries: list[Query[Any]] = [submit.submit_given(plain)] if plain else []
        queries += submit.submit_keyed(keyed, merged, self.identity.owner)
        try:
            # If an id or a key may belong to another owner, the whole batch has to be rolled back.
            kept: Kept | None = yield queries[0] if len(tasks) == 1 else InTransaction((), queries)
        except psycopg.errors.UniqueViolation as e:
            raise submit.foreign_id() from e
        return kept

    def _batch(self, tasks: NewTasks) -> Effect:
        if len(tasks) >= COPY_FROM and all(kind.is_plain for kind in tasks.kinds):
            return InTransaction(tasks, (), submit.copy_of(tasks.kinds))
        owner = self.identity.owner
        keyed, merged, plain = by_key(tasks)
        copied: list[NewTask] = []
        if len(plain) >= COPY_FROM:
            copied, plain = [t for t in plain if t.terms.is_plain], [t for t in plain if not t.terms.is_plain]
        queries: list[Query[Any]] = [submit.submit(plain)] if plain else []
        queries += submit.submit_keyed(keyed, merged, owner)
        # If a key may belong to another owner, or must not be merged, the whole batch has to be rolled back.
        is_one_statement = not copied and len(queries) == 1 and not merged and (owner is None or not keyed)
        return queries[0] if is_one_statement else InTransaction(copied, queries)


class Defaults:
    """Every default applied: the call goes first, then the task function, the level, the configuration.

    Remembers what came out, as most calls of a program say the same.
    """

    def __init__(self, config: Config, identity: Identity | None = None, *, seals: bool = True) -> None:
        self.config = config
        self.identity = identity
        self.seals = seals
        """False where nothing is stored: in inline mode."""
        self._known: dict[Target | tuple[Target, Options], SubmitTerms] = {}

    def terms(self, target: Target, options: Options) -> SubmitTerms:
        """What a task of this function with these options is submitted with."""
        said = target if options is NOTHING_SAID else (target, options)  # which takes longer to look up
        try:
            if known := self._known.get(said):
                return known
        except TypeError:  # tags can't be looked up
            return self._applied(target, options)
        terms = self._applied(target, options)
        # A key or a moment is said once, so it isn't worth remembering.
        if options.idempotency_key is None and options.scheduled_at is None and not isinstance(options.merge_key, str):
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[said] = terms
        return terms

    def may_seal(self, target: Target) -> bool:
        """Whether tasks of this function are stored sealed, or come sealed."""
        return self.seals and (isinstance(target, str) or target.sealing is not None)

    def _applied(self, target: Target, options: Options) -> SubmitTerms:
        config = self.config
        name = target if isinstance(target, str) else target.name
        if not isinstance(target, str):
            options = options.over(target.defaults)
            if target.at_most_once and options.max_retries:
                raise InvalidOption(
                    f"{name} runs at most once and is never retried: omit max_retries={options.max_retries}."
                )
            if options.payload_version != target.version:
                raise InvalidOption(
                    f"this program has {name} in version {target.version or 'none'}, and checks by that: omit "
                    f"payload_version={options.payload_version}."
                )
        sealing.refuse_replacing(target, options)
        priority, level = priority_of(options.priority, config)
        return SubmitTerms(
            name=name,
            queue=options.queue or "default",
            max_retries=_first(options.max_retries, level.max_retries if level else None, config.max_retries),
            timeout_seconds=options.timeout_seconds
            or (level.timeout_seconds if level else config.default_task_timeout_seconds),
            priority=priority,
            tags=json_option("tags", options.tags, config) if options.tags else "{}",
            required_capabilities=_required(target, options),
            trace_context=json_option("trace_context", options.trace_context, config)
            if options.trace_context
            else None,
            delay_seconds=options.delay_seconds or None,
            scheduled_at=options.scheduled_at,
            idempotency_key=self._key(target, options.idempotency_key),
            idempotency_window=config.idempotency_window_seconds if options.idempotency_key else options.throttle,
            submitted_by=self.identity.submitted_by if self.identity else None,
            lane=lane_of(options),
            payload_version=options.payload_version,
            **merging.terms_of(options),
        )

    def keyed(self, terms: SubmitTerms, target: Target, kwargs: str) -> SubmitTerms:
        """The terms of one task that is unique, debounced or throttled: with the key that its arguments give it."""
        known = () if isinstance(target, str) else target.arguments.parameters
        key = merging.key_of(terms, kwargs, known)
        return merging.with_key(terms, sealing.stored_key(self, target, key), self.identity)

    def _key(self, target: Target, said: str | None) -> str | None:
        if said is None:
            return None
        stored = sealing.stored_key(self, target, said)
        return stored if self.identity is None else self.identity.key(stored)


# A NewTask of a tuple, without the Python of its own constructor.
_new_task: Callable[[tuple[UUID, str, SubmitTerms]], NewTask] = partial(tuple.__new__, NewTask)


class NewTasks(Sequence[NewTask]):
    """A batch that is ready to be inserted. Its tasks and their ids are made on demand.

    Otherwise the garbage collector would scan the waiting rows again and again, which takes longer than writing them.
    And COPY reads some at a time: the others are made while the server receives those.
    """

    def __init__(
        self,
        kwargs: Sequence[str],
        terms: Sequence[SubmitTerms],
        ids: Sequence[UUID] | None = None,
        id_type: type[UUID] = UUID,
        made: Ids | None = None,
        shard: int = 0,
    ) -> None:
        self._ids = Given(ids) if ids is not None else made or Ids(len(kwargs), id_type, shard)
        self.id_type = id_type
        self._kwargs, self._terms = kwargs, terms
        self.kinds = frozenset(terms)

    @property
    def have_given_ids(self) -> bool:
        """True if the caller made the ids, and may have used them before."""
        return isinstance(self._ids, Given)

    @property
    def ids(self) -> list[UUID]:
        return self._ids.first(len(self))

    def carry(self, trace_context: Mapping[str, str]) -> None:
        """Let those whose submission said nothing of a trace carry this one."""
        if not trace_context:
            return
        text = dump(dict(trace_context))
        carrying = {t: t if t.trace_context else replace(t, trace_context=text) for t in self.kinds}
        self._terms = [carrying[t] for t in self._terms]
        self.kinds = frozenset(carrying.values())

    def seal(self, targets: Sequence[Target], defaults: Defaults) -> None:
        """Seal the arguments of those whose functions say so."""
        sealer = sealing.Sealer(defaults, have_given_ids=self.have_given_ids)
        each = [sealer.sealed(target, *task) for target, task in zip(targets, self, strict=True)]
        self._kwargs, self._terms = [text for text, _ in each], [terms for _, terms in each]
        self.kinds = frozenset(self._terms)

    @property
    def texts(self) -> Sequence[str]:
        """The arguments of each, as they are stored."""
        return self._kwargs

    def replace(self, place: int, text: str, terms: SubmitTerms) -> None:
        """Let one of them have other arguments and terms."""
        self._kwargs, self._terms = list(self._kwargs), list(self._terms)
        self._kwargs[place], self._terms[place] = text, terms
        self.kinds |= {terms}

    def __len__(self) -> int:
        return len(self._kwargs)

    def __iter__(self) -> Iterator[NewTask]:
        return map(_new_task, zip(self.ids, self._kwargs, self._terms, strict=False))

    @overload
    def __getitem__(self, at: int) -> NewTask: ...
    @overload
    def __getitem__(self, at: slice) -> list[NewTask]: ...
    def __getitem__(self, at: int | slice) -> NewTask | list[NewTask]:
        if isinstance(at, int):
            return NewTask(self.ids[at], self._kwargs[at], self._terms[at])
        ids = self._ids.first(at.indices(len(self))[1])
        return list(map(_new_task, zip(ids[at], self._kwargs[at], self._terms[at], strict=False)))


def new_tasks(
    items: Alike | Sequence[Submission],
    defaults: Defaults,
    ids: Sequence[UUID] | None = None,
    *,
    id_type: type[UUID] = UUID,
) -> NewTasks:
    """Check submissions and make tasks of them, with these ids or new ones."""
    limit = defaults.config.max_payload_bytes
    texts: list[str] = []
    all_terms: list[SubmitTerms] = []
    before: tuple[object, object] = (None, None)
    any_sealed = False
    try:
        for target, arguments, options in parts_of(items):
            # Neighbours are often of one kind.
            if target is not before[0] or options is not before[1]:
                terms, write = defaults.terms(target, options), writer_of(target)
                any_sealed = any_sealed or defaults.may_seal(target)
                before = target, options
            text = write(arguments)
            if 4 * len(text) > limit:  # a character takes four bytes at most
                refuse_too_long(terms.name, text, limit)
            texts.append(text)
            all_terms.append(defaults.keyed(terms, target, text) if terms.needs_key else terms)
    except TaskLibError as e:
        if len(items) > 1:
            e.add_note(f"This was item {len(texts)} of {len(items)}; none of them was submitted.")
        raise
    tasks = NewTasks(texts, all_terms, ids, id_type, shard=defaults.config.shard)
    if any_sealed:
        tasks.seal([target for target, _, _ in parts_of(items)], defaults)
    return tasks


@contextmanager
def around(tasks: NewTasks) -> Iterator[None]:
    """The span of the call that submits these tasks, in a program that traces, and the program's own hooks."""
    names, queues, count = {t.name for t in tasks.kinds}, {t.queue for t in tasks.kinds}, len(tasks)
    task_id = str(tasks[0].id) if count == 1 else None
    with (
        tracing.submitting(names, queues, count, task_id) or nullcontext() as span,
        around_submission(names, queues, count, task_id) as carried,
    ):
        tasks.carry({**carried, **(span.carried if span is not None else {})})
        yield


def tell(tasks: NewTasks, ids: Sequence[UUID], by: str) -> None:
    """Emit an event for each submitted task to the subscribers of this program's clients."""
    for (made, _, terms), id_ in zip(tasks, ids, strict=True):
        context = json.loads(terms.trace_context) if terms.trace_context else None
        trace_id = tracing.trace_id_for(id_, context)
        event = TaskSubmitted(str(id_), terms.name, terms.queue, by, is_new=id_ == made, trace_id=trace_id)
        client_events.emit_routine(event)


def parts_of(items: Alike | Sequence[Submission]) -> Iterator[tuple[Target, Mapping[str, Any], Options]]:
    if isinstance(items, Alike):
        return zip(repeat(items.target), items.arguments, repeat(items.options), strict=False)
    return ((i.target, i.kwargs, i.options) for i in items)


def writer_of(target: Target) -> Any:
    return partial(_plain_arguments, target) if isinstance(target, str) else target.arguments.to_json


def by_key(tasks: Iterable[NewTask]) -> tuple[list[NewTask], list[NewTask], list[NewTask]]:
    """Those with an idempotency key, those with a merge key, one of each, and those without either."""
    keyed: dict[object, NewTask] = {}
    merged: dict[object, NewTask] = {}
    plain: list[NewTask] = []
    for t in tasks:
        if t.terms.merge_key is not None:
            merging.add(merged, t)
        elif t.terms.idempotency_key is not None:
            keyed.setdefault((t.terms.name, t.terms.idempotency_key), t)
        else:
            plain.append(t)
    return list(keyed.values()), list(merged.values()), plain


def ids_in_order(tasks: NewTasks, kept: Kept | None) -> list[UUID]:
    """The id of each task: its own, or that of the task that has its key."""
    if kept is None:
        return tasks.ids
    known = tasks.id_type
    return [id_ if (key := t.shared_key) is None else known(str(kept[t.name, key])) for id_, _, t in tasks]


def _required(target: Target, options: Options) -> tuple[str, ...]:
    """The capabilities that a worker must have: code that reads this version and form of the arguments, too."""
    required = tuple(options.required_capabilities or ())
    name, form = (target, None) if isinstance(target, str) else (target.name, target.content_capability)
    if options.payload_version is None and form is None:
        return required
    version = () if options.payload_version is None else (capability(name, options.payload_version),)
    return tuple(sorted({*required, *version, *((form,) if form else ())}))


def _first(*values: int | None) -> int:
    return next(v for v in values if v is not None)


def _plain_arguments(name: str, kwargs: Mapping[str, Any]) -> str:
    try:
        return dump(dict(kwargs))
    except UnstorableValue as e:
        place = e.path or "arguments"
        raise TaskExecutionError(
            f"the arguments of {name} can't be stored: {place}: {e.reason}", task=name, field=place.split(".")[0]
        ) from e


def refuse_too_long(name: str, kwargs: str, limit: int) -> None:
    """Refuse arguments that take more bytes than a task may have."""
    try:
        limited(kwargs, limit, "the arguments")
    except UnstorableValue as e:
        raise TaskExecutionError(f"{name}: {e.reason}.", task=name) from e
