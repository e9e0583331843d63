"""From a call to new tasks: validated, with every default applied. One implementation for sync and async callers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias, overload
from uuid import UUID

from tasklib import tracing
from tasklib.client.identity import Identity
from tasklib.config import Config
from tasklib.errors import InvalidOption, TaskExecutionError, TaskLibError, TaskNotFound
from tasklib.events import TaskSubmitted, client_events
from tasklib.store.submit import Kept, NewTask, SubmitTerms
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.ids import Given, Ids
from tasklib.tasks.options import MAX_NAME_BYTES, NOTHING_SAID, Options, is_name, json_option, priority_of
from tasklib.tasks.payload import UnstorableValue, dump, limited
from tasklib.tasks.submitter import Submission

if TYPE_CHECKING:
    from tasklib.tracing.spans import Producer

Target: TypeAlias = TaskFunction[Any, Any] | str
_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Alike:
    """Submissions that differ in nothing but their arguments: a list of them, without the weight."""

    target: Target
    arguments: Sequence[Mapping[str, Any]]
    options: Options

    def __len__(self) -> int:
        return len(self.arguments)

    def __iter__(self) -> Iterator[Submission]:
        return (Submission(self.target, a, self.options) for a in self.arguments)


class Defaults:
    """Every default applied: the call goes first, then the task function, the level, the configuration.

    Remembers what came out, as most calls of a program say the same.
    """

    def __init__(self, config: Config, identity: Identity | None = None) -> None:
        self.config = config
        self.identity = identity
        self._known: dict[tuple[Target, Options], SubmitTerms] = {}

    def terms(self, target: Target, options: Options) -> SubmitTerms:
        """What a task of this function with these options is submitted with."""
        try:
            if known := self._known.get((target, options)):
                return known
        except TypeError:  # tags can't be looked up
            return self._applied(target, options)
        terms = self._applied(target, options)
        # A key or a moment is said once, so it isn't worth remembering.
        if options.idempotency_key is None and options.scheduled_at is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[target, options] = terms
        return terms

    def _applied(self, target: Target, options: Options) -> SubmitTerms:
        config = self.config
        name = target if isinstance(target, str) else target.name
        if not isinstance(target, str):
            options = options.over(target.defaults)
            if target.at_most_once and options.max_retries:
                raise InvalidOption(
                    f"{name} runs at most once and is never retried: omit max_retries={options.max_retries}."
                )
        priority, level = priority_of(options.priority, config)
        return SubmitTerms(
            name=name,
            queue=options.queue or "default",
            max_retries=_first(options.max_retries, level.max_retries if level else None, config.max_retries),
            timeout_seconds=options.timeout_seconds
            or (level.timeout_seconds if level else config.default_task_timeout_seconds),
            priority=priority,
            tags=json_option("tags", options.tags, config) if options.tags else "{}",
            required_capabilities=tuple(options.required_capabilities or ()),
            trace_context=json_option("trace_context", options.trace_context, config)
            if options.trace_context
            else None,
            delay_seconds=options.delay_seconds or None,
            scheduled_at=options.scheduled_at,
            idempotency_key=self._key(options.idempotency_key),
            idempotency_window=config.idempotency_window_seconds if options.idempotency_key else None,
            submitted_by=self.identity.submitted_by if self.identity else None,
        )

    def _key(self, said: str | None) -> str | None:
        return said if said is None or self.identity is None else self.identity.key(said)


def submission(
    target: object,
    args: tuple[Any, ...],
    options: Options,
    explicit: Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    *,
    also_given: Collection[str] = (),
    registered_elsewhere: bool = False,
) -> Submission:
    """Sort out one submit call: which task function, which keyword is an option and which an argument.

    `also_given` are the keywords that submit_task itself took, besides the options.
    """
    found = target_of(target, registered_elsewhere)
    name = found if isinstance(found, str) else found.name
    if args:
        wanted = "" if isinstance(found, str) else ", ".join(f"{p}=..." for p in found.arguments.parameters)
        raise TaskExecutionError(
            f"{name} was given {len(args)} positional argument{'s' * (len(args) > 1)}; "
            f"tasks take their arguments by name: submit_task({name}{', ' if wanted else ''}{wanted}).",
            task=name,
        )
    if explicit is not None:
        if not isinstance(explicit, Mapping):
            raise TaskExecutionError(f"{name}: kwargs= takes a mapping of arguments, not {explicit!r}.", task=name)
        if arguments:
            raise TaskExecutionError(
                f"{name}: give all arguments in kwargs= or none; {', '.join(arguments)} came beside it.", task=name
            )
        return Submission(found, dict(explicit), options)
    if isinstance(found, TaskFunction) and (options is not NOTHING_SAID or also_given):
        given = options.given().keys() | also_given
        if both := given & found.arguments.parameters.keys():
            option = min(both)
            raise TaskExecutionError(
                f"{option} is both an option of submit_task and a parameter of {name}, so this call is ambiguous. "
                f"Write {name}.options({option}=...).submit({option}=...), or pass the arguments as kwargs={{...}}.",
                task=name,
                field=option,
            )
    return Submission(found, arguments, options)


def typed(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments that came as JSON, as the function of this name declares them, if this program has it."""
    function = registry.get(name)
    return arguments if function is None else function.arguments.from_json(json.dumps(arguments))


def submissions_of(
    target: object, arguments: Iterable[Mapping[str, Any]] | None, options: Options, *, registered_elsewhere: bool
) -> Alike | list[Submission]:
    """The two forms of submit_many: a task function with many arguments, or ready submissions."""
    if arguments is None:
        return _ready(target, options)
    found = target_of(target, registered_elsewhere)
    if isinstance(arguments, str | Mapping) or not isinstance(arguments, Iterable):
        raise InvalidOption(f"submit_many(fn, [...]) takes a list with the arguments of each task, not {arguments!r}.")
    alike = Alike(found, arguments if isinstance(arguments, list) else list(arguments), options)
    for a in alike.arguments:
        if type(a) is not dict and not isinstance(a, Mapping):
            raise InvalidOption(f"submit_many(fn, [...]) takes a mapping of arguments for each task, not {a!r}.")
    _refuse_shared_key(options, len(alike))
    return alike


def _ready(target: object, options: Options) -> list[Submission]:
    if isinstance(target, str | TaskFunction) or not isinstance(target, Iterable):
        raise InvalidOption(
            "submit_many needs a list: submit_many(fn, [{...}, ...]) or submit_many([fn.bind(...), ...])."
        )
    items = list(target)
    for item in items:
        if not isinstance(item, Submission):
            raise InvalidOption(f"submit_many([...]) takes what task_function.bind(...) returns, not {item!r}.")
    if options is NOTHING_SAID:
        return items
    _refuse_shared_key(options, sum(i.options.idempotency_key is None for i in items))
    return [Submission(i.target, i.kwargs, i.options.over(options)) for i in items]


def _refuse_shared_key(options: Options, count: int) -> None:
    if options.idempotency_key is not None and count > 1:
        raise InvalidOption(
            f"one idempotency_key for {count} tasks would leave only the first of them. Give each its own: "
            "submit_many([fn.options(idempotency_key=...).bind(...), ...])."
        )


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
    ) -> None:
        self._ids = Ids(len(kwargs), id_type) if ids is None else Given(ids)
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

    def __len__(self) -> int:
        return len(self._kwargs)

    def __iter__(self) -> Iterator[NewTask]:
        return map(NewTask, self.ids, self._kwargs, self._terms)

    @overload
    def __getitem__(self, at: int) -> NewTask: ...
    @overload
    def __getitem__(self, at: slice) -> list[NewTask]: ...
    def __getitem__(self, at: int | slice) -> NewTask | list[NewTask]:
        if isinstance(at, int):
            return NewTask(self.ids[at], self._kwargs[at], self._terms[at])
        ids = self._ids.first(at.indices(len(self))[1])
        return list(map(NewTask, ids[at], self._kwargs[at], self._terms[at]))


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
    try:
        for target, arguments, options in parts_of(items):
            # Neighbours are often of one kind.
            if target is not before[0] or options is not before[1]:
                terms, write = defaults.terms(target, options), writer_of(target)
                before = target, options
            text = write(arguments)
            if 4 * len(text) > limit:  # a character takes four bytes at most
                _refuse_too_long(terms.name, text, limit)
            texts.append(text)
            all_terms.append(terms)
    except TaskLibError as e:
        if len(items) > 1:
            e.add_note(f"This was item {len(texts)} of {len(items)}; none of them was submitted.")
        raise
    return NewTasks(texts, all_terms, ids, id_type)


def span_of(tasks: NewTasks) -> Producer | None:
    """The span of the call that submits these tasks, in a program that traces."""
    count = len(tasks)
    task_id = str(tasks[0].id) if count == 1 else None
    return tracing.submitting({t.name for t in tasks.kinds}, {t.queue for t in tasks.kinds}, count, task_id)


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


def without_repeats(tasks: Iterable[NewTask]) -> list[NewTask]:
    """Of tasks that share a name and an idempotency key, only the first."""
    first: dict[tuple[str, str | None], NewTask] = {}
    for t in tasks:
        first.setdefault((t.terms.name, t.terms.idempotency_key), t)
    return list(first.values())


def keyed_and_plain(tasks: Iterable[NewTask]) -> tuple[list[NewTask], list[NewTask]]:
    """Those with an idempotency key, the first of each, and those without."""
    keyed: list[NewTask] = []
    plain: list[NewTask] = []
    for t in tasks:
        (plain if t.terms.idempotency_key is None else keyed).append(t)
    return without_repeats(keyed), plain


def ids_in_order(tasks: NewTasks, kept: Kept | None) -> list[UUID]:
    """The id of each task: its own, or that of the task that has its idempotency key."""
    if kept is None:
        return tasks.ids
    known = tasks.id_type
    return [id_ if (key := t.idempotency_key) is None else known(str(kept[t.name, key])) for id_, _, t in tasks]


def target_of(target: object, registered_elsewhere: bool) -> Target:
    """The task function that is meant, or a name that only another program knows."""
    if isinstance(target, TaskFunction):
        return target
    try:
        return registry.find(target)
    except TaskNotFound:
        if not registered_elsewhere or not isinstance(target, str):
            raise
    if not is_name(target):
        raise InvalidOption(f"a task's name is a string of 1 to {MAX_NAME_BYTES} bytes, not {target!r}.")
    return target


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


def _refuse_too_long(name: str, kwargs: str, limit: int) -> None:
    try:
        limited(kwargs, limit, "the arguments")
    except UnstorableValue as e:
        raise TaskExecutionError(f"{name}: {e.reason}.", task=name) from e
