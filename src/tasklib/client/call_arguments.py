"""Sorts out a submit call: which task function it means, which keyword is an option and which an argument."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tasklib.errors import InvalidOption, TaskExecutionError, TaskNotFound
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import MAX_NAME_BYTES, NOTHING_SAID, Options, is_name
from tasklib.tasks.submitter import Submission

Target: TypeAlias = TaskFunction[Any, Any] | str


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
    function = registry.functions.get(name)
    return arguments if function is None else function.arguments.from_json(json.dumps(arguments))


def of_another_version(name: str, arguments: Mapping[str, Any], options: Options) -> Submission | None:
    """A submission with arguments of a version that the function here doesn't write: it can't check them."""
    function = registry.functions.get(name)
    if function is None or options.payload_version in (None, function.version):
        return None
    return Submission(name, arguments, options.over(function.defaults))


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
