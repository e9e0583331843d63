"""The calls over several shards: submissions choose one, changes of many go through each, the rest follows its queries.

A call that is not here yields the same queries as with one database, and `tasklib.sharding.routes` says for each where
it goes.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeAlias, TypeVar
from uuid import UUID

from tasklib.client import validation
from tasklib.client.call_arguments import Alike
from tasklib.client.calls import Calls
from tasklib.client.effects import Call, Connect, OnConnection, OnShards, Pause, once
from tasklib.client.flow_graphs import FlowGraph, check_graph, graph_of
from tasklib.client.identity import Identity
from tasklib.client.placing import Together, together, together_in_flow
from tasklib.client.submissions import Submitted
from tasklib.config import Config
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable, InvalidOption
from tasklib.sharding.asking import AVOIDED_SECONDS, Located, found_by_id, sorted_out, unreached, value_of
from tasklib.sharding.current import CurrentShards
from tasklib.sharding.missing import PerShardWarning, report
from tasklib.sharding.placement import SETTLING_SECONDS, by_chance, former_owners, owner_of, settling
from tasklib.shards import MOST_SHARD, Shard
from tasklib.store import audit, flows, lookup, schema
from tasklib.store.audit import AuditRecord
from tasklib.store.control import CancelCounts
from tasklib.store.schema import ShardHere
from tasklib.store.stored_payloads import ErasedCounts
from tasklib.store.submit import key_holders
from tasklib.tasks import registry
from tasklib.tasks.limits import Rule, declared
from tasklib.tasks.submitter import Submission
from tasklib.tasks.task_id import KnownId, TaskId

T = TypeVar("T")
_Known: TypeAlias = Callable[[Together], Query[Any]]
"""The query that says whether a shard has a task with this key."""
_SHARDS = MOST_SHARD + 1
_IDS_SECONDS = 86400.0
"""How old an id that a caller made may be when it is submitted."""

AT_HOME = (
    "create_schedule",
    "schedules",
    "get_schedule",
    "change_schedule",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "delete_schedule",
    "backfill_schedule",
    "preview_schedule",
    "explain_schedule",
    "sync_schedules",
    "sync_declared",
)
"""Calls that the home shard performs as a whole: schedules, and the tasks that they start, are there."""
OF_FLOW = ("cancel_flow", "replay_flow")
"""Calls that the shard of a flow performs as a whole."""


class ShardedCalls(Calls):
    """The calls, for all shards of a configuration, on behalf of one identity."""

    def __init__(
        self,
        config: Config,
        shards: CurrentShards,
        identity: Identity | None = None,
        *,
        id_type: type[KnownId[Any]] = TaskId,
    ) -> None:
        super().__init__(config, identity, id_type=id_type)
        self.shards = shards
        self._of_shards: dict[int, Calls] = {}
        self._avoided: dict[int, float] = {}

    def on_behalf_of(self, identity: Identity) -> Self:
        """The same calls for another identity."""
        calls = super().on_behalf_of(identity)
        calls._of_shards = {}
        return calls

    def of(self, number: int) -> Calls:
        """The calls of one shard: the ids they make name it."""
        config = self.shards.config_of(number)
        known = self._of_shards.get(number)
        if known is None or known.config is not config:
            known = self._of_shards[number] = Calls(config, self.identity, id_type=self.id_type)
        return known

    # ---- submitting ----

    def submit_each(self, items: Sequence[Submission], *, ids: Sequence[UUID] | None = None) -> Call[list[Submitted]]:
        """Submit what `task_function.bind(...)` returned, all or none, and say of each whether it is new."""
        common = together(items, self.defaults)
        known: _Known = _knows_keys
        if ids and not common:
            # The same ids come again after a lost answer, to whichever process: they have to find the same shard.
            common = [Together(f"id {ids[0]}", window=_IDS_SECONDS)]
            known = functools.partial(_knows_task, ids[0])
        return (yield from self._placed(common, lambda calls: calls.submit_each(items, ids=ids), known=known))

    def submit_graph(self, graph: FlowGraph, flow_id: UUID | None = None) -> Call[tuple[Any, bool]]:
        """Submit a flow that came as data. With an id of its own, repeating it adds nothing: then it is not new."""
        check_graph(graph)
        common = [Together(f"id {flow_id}", window=_IDS_SECONDS)] if flow_id is not None else self._of_flow(graph)
        known: _Known = _knows_keys if flow_id is None else functools.partial(_knows_flow, flow_id)
        return (yield from self._placed(common, lambda calls: calls.submit_graph(graph, flow_id), known=known))

    def submit_flow(self, flow: Any, *, connection: Any = None) -> Call[Any]:
        """Submit a flow: a `Flow`, a chain or a group. All of its tasks, or none, and all on one shard."""
        if connection is not None:
            number = yield from self._shard_of(connection)
            return (yield from self._on(number, self.of(number).submit_flow(flow, connection=connection)))
        common = self._of_flow(graph_of(flow))
        return (yield from self._placed(common, lambda calls: calls.submit_flow(flow)))

    def _insert(self, items: Alike | Sequence[Submission], connection: Any) -> Call[list[UUID]]:
        if connection is not None:
            number = yield from self._shard_of(connection)
            return (yield from self._on(number, self.of(number)._insert(items, connection)))
        common = together(items, self.defaults)
        return (yield from self._placed(common, lambda calls: calls._insert(items, None)))

    def _of_flow(self, graph: FlowGraph) -> list[Together]:
        found = together_in_flow(graph, self.defaults)
        return found if len(found) == 1 else []

    def _placed(
        self,
        common: Sequence[Together],
        make: Callable[[Calls], Call[T]],
        *,
        known: _Known | None = None,
    ) -> Call[T]:
        """Perform a submission on the shard of what its tasks have in common with others; else on any open one."""
        if not common:
            number = yield from self._any_open()
        else:
            numbers = set()
            for each in common:
                numbers.add((yield from self._owner(each, known or _knows_keys)))
            if len(numbers) > 1:
                raise InvalidOption(
                    f"these tasks belong on shards {', '.join(map(str, sorted(numbers)))}, by their idempotency keys, "
                    "merge keys, limits, shares or serial keys, and one submission is all or none within one shard. "
                    "Submit those of each key by themselves."
                )
            (number,) = numbers
        return (yield from self._on(number, make(self.of(number))))

    def _any_open(self) -> Call[int]:
        """An open shard that can be connected to. Nothing was sent yet, so another one may stand in."""
        now, failed = time.monotonic(), {n for n, end in self._avoided.items() if end > time.monotonic()}
        refused: dict[int, str] = {}
        while True:
            shards = self.shards.all()
            chosen = by_chance([s for s in shards if s.number not in failed and s.number not in refused], _now())
            if chosen is None and failed:  # those that failed a moment ago may be there again
                failed = set()
                continue
            if chosen is None:
                unreached(refused, "none of the open shards takes submissions")
            answer = (yield OnShards({chosen.number: once_connected()}))[chosen.number]
            if not isinstance(answer, Exception):
                self._avoided.pop(chosen.number, None)
                return chosen.number
            if not isinstance(answer, DatabaseUnavailable):
                raise answer
            refused[chosen.number] = str(answer)
            self._avoided[chosen.number] = now + AVOIDED_SECONDS

    def _owner(self, common: Together, known: _Known) -> Call[int]:
        """The shard of a key: a former one while that has a task with it, so that there is no second one."""
        while True:
            now, shards = _now(), self.shards.all()
            owner = owner_of(common.key, shards, now)
            if common.window == 0.0:  # a limit, a share or a serial key, of which there are many tasks
                return owner.number
            for former, ended in former_owners(common.key, shards, now, _since(common, now)):
                if (seconds := settling(ended, now)) > 0:
                    yield Pause(seconds)
                    break
                if (yield from self._on(former.number, once(known(common)))):
                    return former.number
            else:
                return owner.number

    def _shard_of(self, connection: Any) -> Call[int]:
        """The shard whose tables are in the database of the caller's connection."""
        here: list[ShardHere] = yield OnConnection(connection, schema.shards_here())
        found = [shard for shard in self.shards.all() if any(_is_there(shard, each) for each in here)]
        if len(found) == 1:
            return found[0].number
        places = ", ".join(f"{each.schema} (shard {each.number})" for each in here) or "none"
        if not found:
            raise InvalidOption(
                "connection= leads to a database that has none of the configured shards, and a transaction can't span "
                f"two databases. TaskLib's schemas there: {places}."
            )
        raise InvalidOption(
            f"connection= leads to a database with several of the configured shards ({places}): which of them is "
            "meant? Give the shards in one database different logical programs, or connect with a search_path."
        )

    # ---- by id, where a call takes a connection or several steps ----

    def signal(
        self, task_id: UUID | str, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> Call[bool]:
        """Send a signal to a durable task; False if the task is finished. One that comes early is kept."""
        if connection is None:
            return (yield from super().signal(task_id, name, payload, key=key))
        number = yield from self._shard_of(connection)
        call = self.of(number).signal(task_id, name, payload, key=key, connection=connection)
        return (yield from self._on(number, call))

    def _flow_call(self, call: str, flow_id: UUID | str) -> Call[Any]:
        id_ = validation.as_id(flow_id)
        infos = flows.infos(id_=id_, owner=self.identity.owner)
        asking = found_by_id(id_, {shard.number: once(infos) for shard in self.shards.all()}, Located())
        try:
            asked = next(asking)
            while True:
                asked = asking.send((yield OnShards(asked)))
        except StopIteration as end:
            number, _ = end.value
        return (yield from self._on(number, getattr(self.of(number), call)(flow_id)))

    def _audit(self, chosen: Mapping[str, str | None], before: int | None, limit: int) -> Call[list[AuditRecord]]:
        """The records of all shards by time. Their numbers say which shard has them."""
        at: datetime | None = None
        if before is not None:
            shard, number = before % _SHARDS, before // _SHARDS
            found = yield from self._on(shard, once(audit.page(limit=1, before=number + 1)))
            at = found[0].at if found else None
        pages = {
            n: audit.page(
                limit=limit,
                before=None if before is None else -((n - before) // _SHARDS),
                before_at=at,
                **chosen,
            )
            for n in (shard.number for shard in self.shards.all())
        }
        answers, missing = sorted_out((yield OnShards({n: once(page) for n, page in pages.items()})))
        if not answers:
            unreached(missing)
        report(missing)
        records = [replace(record, id=record.id * _SHARDS + n) for n, page in answers.items() for record in page]
        return sorted(records, key=lambda record: (record.at, record.id), reverse=True)[:limit]

    def _store_limit(self, name: str, rule: Rule) -> Call[bool]:
        """A limit of an operator counts within each shard, unless the code declares it and keeps its tasks together."""
        changed = yield from super()._store_limit(name, rule)
        bounds = rule.max_running is not None or rule.rate is not None or rule.serial is not None
        if bounds and name.partition(":")[0] != "share" and name not in declared(registry.distinct()).rules:
            count = len(self.shards.all())
            warnings.warn(
                f"the limit {name!r} counts within each of {count} shards, so all may run up to {count} times as much. "
                "Limits that the code declares are exact, as their tasks are on one shard.",
                PerShardWarning,
                stacklevel=2,
            )
        return changed

    # ---- changes of many tasks ----

    def cancel_tasks(self, *args: Any, **conditions: Any) -> Call[CancelCounts]:
        """Cancel every unfinished task that matches the filters of `list_tasks`, and return how many."""
        done = yield from self._each(lambda calls: calls.cancel_tasks(*args, **conditions))
        return CancelCounts(sum(each.cancelled for each in done), sum(each.asked for each in done))

    def erase_tasks(self, *args: Any, **conditions: Any) -> Call[ErasedCounts]:
        """Erase what finished tasks hold."""
        done = yield from self._each(lambda calls: calls.erase_tasks(*args, **conditions))
        return ErasedCounts(sum(each.erased for each in done), sum(each.left for each in done))

    def replay_dead_letters(self, *args: Any, limit: int | None = None, **conditions: Any) -> Call[list[UUID]]:
        """Start dead letters afresh, those of one shard after the other's, the oldest of each first."""
        return (yield from self._one_by_one(Calls.replay_dead_letters, args, limit, conditions))

    def purge_dead_letters(self, *args: Any, limit: int | None = None, **conditions: Any) -> Call[list[UUID]]:
        """Delete dead letters, those of one shard after the other's, the oldest of each first."""
        return (yield from self._one_by_one(Calls.purge_dead_letters, args, limit, conditions))

    def start_replay(self, *args: Any, **conditions: Any) -> Call[Any]:
        """Refused: a replay in the background is the work of one shard's leader."""
        raise InvalidOption(
            "start_replay() is the work of the leader of one shard. Over all shards use replay_dead_letters(), with "
            "per_second= to let them in slowly; for one shard Client(config.for_shard(number)).start_replay()."
        )
        yield  # a call is a generator

    # ---- how ----

    def _on(self, number: int, call: Call[T]) -> Call[T]:
        """The value of a call that one shard performs."""
        value: T = value_of(number, (yield OnShards({number: call}))[number])
        return value

    def _each(self, make: Callable[[Calls], Call[T]]) -> Call[list[T]]:
        """The values of a call that every shard performs; those that can't be reached are named."""
        numbers = [shard.number for shard in self.shards.all()]
        answers, missing = sorted_out((yield OnShards({n: make(self.of(n)) for n in numbers})))
        if not answers:
            unreached(missing)
        report(missing)
        return list(answers.values())

    def _one_by_one(
        self,
        call: Callable[..., Call[list[UUID]]],
        args: Iterable[Any],
        limit: int | None,
        conditions: Mapping[str, Any],
    ) -> Call[list[UUID]]:
        done: list[UUID] = []
        missing: dict[int, str] = {}
        for shard in self.shards.all():
            left = None if limit is None else limit - len(done)
            if left == 0 and done:  # a limit of 0 is refused by the call
                break
            one = call(self.of(shard.number), *args, limit=left, **conditions)
            answers, failed = sorted_out((yield OnShards({shard.number: one})))
            missing.update(failed)
            done += answers.get(shard.number, [])
        if len(missing) == len(self.shards.all()):
            unreached(missing)
        report(missing)
        return done


def _delegated(name: str) -> Any:
    original = getattr(Calls, name)

    @functools.wraps(original)
    def call(self: ShardedCalls, *args: Any, **kwargs: Any) -> Call[Any]:
        home = self.shards.home
        return (yield from self._on(home, getattr(self.of(home), name)(*args, **kwargs)))

    return call


def _of_flow(name: str) -> Any:
    original = getattr(Calls, name)

    @functools.wraps(original)
    def call(self: ShardedCalls, flow_id: UUID | str) -> Call[Any]:
        return (yield from self._flow_call(name, flow_id))

    return call


for _name in AT_HOME:
    setattr(ShardedCalls, _name, _delegated(_name))
for _name in OF_FLOW:
    setattr(ShardedCalls, _name, _of_flow(_name))


def once_connected() -> Call[None]:
    """A call that only connects."""
    yield Connect()


def _knows_keys(common: Together) -> Query[Any]:
    return key_holders(common.shared)


def _knows_task(id_: UUID, _: Together) -> Query[Any]:
    return lookup.outcome(id_)


def _knows_flow(id_: UUID, _: Together) -> Query[Any]:
    return flows.infos(id_=id_)


def _since(common: Together, now: datetime) -> datetime | None:
    if common.window is None:
        return None
    return now - timedelta(seconds=common.window + SETTLING_SECONDS)


def _is_there(shard: Shard, here: ShardHere) -> bool:
    return shard.number == here.number and (shard.schema == here.schema or (shard.schema is None and here.is_visible))


def _now() -> datetime:
    return datetime.now(UTC)
