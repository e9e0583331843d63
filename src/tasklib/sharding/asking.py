"""Asking shards: which of them a query goes to, and what becomes of their answers. One implementation for both runners.

A `Question` is a generator. It yields which shards to ask what, is sent the answer of each, a value or an error, and
returns the answer of all.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Generator, Mapping
from typing import Any, NoReturn, TypeAlias, TypeVar
from uuid import UUID

from tasklib.db.query import Query
from tasklib.errors import ConfigError, DatabaseUnavailable, TaskLibError
from tasklib.sharding.current import CurrentShards
from tasklib.sharding.missing import report
from tasklib.sharding.routes import FOR_ONE_SHARD, ROUTES, ById, EveryShard, Everywhere, Home
from tasklib.tasks.ids import shard_of

T = TypeVar("T")
MOST_LOCATED = 10_000
AVOIDED_SECONDS = 5.0
"""For so long a shard that could not be reached is left out of lists, and takes no submissions without a key."""

Asked: TypeAlias = Mapping[int, T]
"""What to ask of each shard, by its number."""
Answers: TypeAlias = Mapping[int, Any]
"""What each shard answered: a value, or the exception."""
Question: TypeAlias = Generator[Asked[Query[Any]], Answers, T]


class Located:
    """On which shards tasks were found whose ids name another one: ids that a caller made."""

    def __init__(self) -> None:
        self._shards: OrderedDict[UUID, int] = OrderedDict()

    def get(self, id_: UUID) -> int | None:
        return self._shards.get(id_)

    def remember(self, id_: UUID, shard: int) -> None:
        self._shards[id_] = shard
        if len(self._shards) > MOST_LOCATED:
            self._shards.popitem(last=False)


class Unreachable:
    """Shards that could not be reached a moment ago: lists go without them, instead of waiting for each anew."""

    def __init__(self) -> None:
        self._until: dict[int, tuple[float, str]] = {}

    def begin(self, number: int, reason: str) -> None:
        self._until[number] = (time.monotonic() + AVOIDED_SECONDS, reason)

    def end(self, number: int) -> None:
        self._until.pop(number, None)

    def now(self) -> dict[int, str]:
        """Why, by number."""
        moment = time.monotonic()
        return {number: reason for number, (until, reason) in list(self._until.items()) if until > moment}


def question(query: Query[T], shards: CurrentShards, located: Located, unreachable: Unreachable) -> Question[T]:
    """Where this query goes."""
    match ROUTES.get(query.name):
        case ById(parameter, otherwise):
            id_ = query.parameters[parameter]
            if id_ is not None:
                return by_id(UUID(str(id_)), {shard.number: query for shard in shards.all()}, located)
            assert otherwise is not None, query.name
            return _everywhere(query, Everywhere(otherwise), shards, unreachable)
        case Everywhere() as route:
            return _everywhere(query, route, shards, unreachable)
        case EveryShard() as route:
            return _change_everywhere(query, route, shards)
        case Home():
            return _at_home(query, shards)
        case None:
            why = next((why for why, names in FOR_ONE_SHARD.items() if query.name in names.split()), "")
            raise ConfigError(
                f"the statement {query.name} is for one shard ({why or 'it has no route'}): "
                "use config.for_shard(number)."
            )


def by_id(id_: UUID, asked: Asked[Any], located: Located) -> Generator[Asked[Any], Answers, Any]:
    """Ask the shard that this id names, and the others if it has no such task."""
    return (yield from found_by_id(id_, asked, located))[1]


def found_by_id(id_: UUID, asked: Asked[Any], located: Located) -> Generator[Asked[Any], Answers, tuple[int, Any]]:
    """The same, and which shard answered."""
    named = located.get(id_)
    if named is None and id_.version == 7:
        named = shard_of(id_)
    answer: Any = None
    if named is not None and named in asked:
        answer = value_of(named, (yield {named: asked[named]})[named])
        if is_found(answer):
            return named, answer
    others = {number: each for number, each in asked.items() if number != named}
    answers, missing = sorted_out((yield others)) if others else ({}, {})
    for number, found in answers.items():
        if is_found(found):
            located.remember(id_, number)
            return number, found
    if named is not None and named in asked:
        return named, answer
    if missing:
        unreached(missing, f"it is not known whether {id_} is there")
    return next(iter(answers.items()))


def is_found(answer: object) -> bool:
    """Whether a shard knows the task that it was asked for."""
    return answer is not None and answer is not False and answer != [] and answer != {}


def _everywhere(query: Query[T], route: Everywhere, shards: CurrentShards, unreachable: Unreachable) -> Question[T]:
    asked = {shard.number: query for shard in shards.all()}
    avoided = {number: reason for number, reason in unreachable.now().items() if number in asked}
    if len(avoided) < len(asked):
        asked = {number: each for number, each in asked.items() if number not in avoided}
    else:
        avoided = {}
    if route.adapt is not None:
        asked = {number: route.adapt(query, shards.config_of(number).schema) for number in asked}
    answers, missing = sorted_out((yield asked))
    missing = {**avoided, **missing}
    for number in answers:
        unreachable.end(number)
    for number, reason in missing.items():
        if number not in avoided:
            unreachable.begin(number, reason)
    if not answers:
        unreached(missing)
    report(missing)
    merged: T = route.merge(query, answers)
    return merged


def _change_everywhere(query: Query[T], route: EveryShard, shards: CurrentShards) -> Question[T]:
    home, *others = [shard.number for shard in shards.all()]
    first = value_of(home, (yield {home: query})[home])
    answers, missing = sorted_out((yield dict.fromkeys(others, query))) if others else ({}, {})
    if missing:
        done = ", ".join(str(number) for number in (home, *answers))
        unreached(missing, f"changed on {done}. Repeat it once all can be reached")
    merged: T = route.merge(query, {home: first, **answers})
    return merged


def _at_home(query: Query[T], shards: CurrentShards) -> Question[T]:
    home = shards.home
    answer: T = value_of(home, (yield {home: query})[home])
    return answer


def value_of(number: int, answer: Any) -> Any:
    """The answer of the one shard that was asked."""
    if not isinstance(answer, Exception):
        return answer
    if is_missing(answer):
        unreached({number: str(answer)})
    raise answer


def sorted_out(answers: Answers) -> tuple[dict[int, Any], dict[int, str]]:
    """The answers, and why the other shards are missing. Raises what is no outage."""
    found: dict[int, Any] = {}
    missing: dict[int, str] = {}
    for number in sorted(answers):
        answer = answers[number]
        if not isinstance(answer, Exception):
            found[number] = answer
        elif is_missing(answer):
            missing[number] = str(answer)
        else:
            if isinstance(answer, TaskLibError):
                answer.add_note(f"This came from shard {number}.")
            raise answer
    return found, missing


def is_missing(error: Exception) -> bool:
    return isinstance(error, DatabaseUnavailable | TimeoutError)


def unreached(missing: Mapping[int, str], besides: str = "") -> NoReturn:
    numbers = ", ".join(str(number) for number in sorted(missing))
    what = "shard" if len(missing) == 1 else "shards"
    reason = next(iter(missing.values()), "there is none").rstrip(".")
    raise DatabaseUnavailable(f"{what} {numbers}{f' ({besides})' if besides else ''}: {reason}.")
