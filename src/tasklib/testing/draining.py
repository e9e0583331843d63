"""`drain()`: the waiting tasks of a database, run to the end by a real worker in this process."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from tasklib.client.default import configured, default_async_client, default_client
from tasklib.config import Config
from tasklib.db.database import AsyncDatabase
from tasklib.db.query import Query, nothing
from tasklib.errors import TaskLibError
from tasklib.events import Event, TaskEnded, TaskStarted
from tasklib.states import TaskState
from tasklib.store import claim
from tasklib.store.claim import Served
from tasklib.tasks import registry
from tasklib.testing.inline_clients import InlineClient
from tasklib.testing.loops import run_blocking
from tasklib.worker.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Drained:
    """What a drain did."""

    states: Mapping[UUID, TaskState] = field(default_factory=dict)
    """Each task that was tried, in the order of first attempts, with the state it is in now."""
    errors: Mapping[UUID, str] = field(default_factory=dict)
    """The last error of each task that is `failed` or `dead_letter`."""
    attempts: int = 0
    """How many attempts were made."""

    @property
    def ids(self) -> list[UUID]:
        """The tasks that were tried."""
        return list(self.states)

    @property
    def counts(self) -> dict[str, int]:
        """How many of them are in each state: `{"completed": 2, "failed": 1}`."""
        return dict(Counter(state.value for state in self.states.values()))

    def __repr__(self) -> str:
        counts = ", ".join(f"{state}={count}" for state, count in self.counts.items())
        reasons = "; ".join(error.strip().splitlines()[-1] for error in self.errors.values() if error.strip())
        return f"<Drained {counts or 'nothing'}, attempts={self.attempts}{': ' if reasons else ''}{reasons}>"


async def drain(
    config: Config | str | None = None,
    *,
    queues: Iterable[str] | None = None,
    capabilities: Iterable[str] | None = None,
    concurrency: int = 1,
    until_done: bool = False,
    with_delayed: bool = False,
    limit: int = 1000,
) -> Drained:
    """Run all due tasks, and those they submit, with a real worker, and say what became of them.

    await send_email.submit(to="a@example.com")
    assert (await drain()).counts == {"completed": 1}

    Without `config`, on the database of the module-level calls. Tasks that this program doesn't know are left.
    `capabilities=None` takes whatever the tasks require. `until_done=True` doesn't wait for retries: each is made due
    at once, until no failed task is left. `with_delayed=True` does the same with tasks meant for later, and with
    retries. More than `limit` attempts are an error: tasks that submit each other would go on for ever.
    """
    chosen = _config(config)
    asked = Worker(chosen, concurrency=concurrency, queues=queues, capabilities=capabilities or ())
    hurried = _hurried(until_done, with_delayed)
    watch = _Watch(limit)
    database = AsyncDatabase(chosen)
    try:
        while True:
            served = Served(registry.names(), asked.queues, asked.capabilities)
            if capabilities is None:
                served = replace(served, capabilities=await database.run(wanted_capabilities()))
            if not await _is_due(database, served, hurried):
                return watch.summary()
            watch.check_limit()
            if not await _burst(chosen, served, concurrency, watch):
                return watch.summary()  # the due tasks are locked by another transaction
    finally:
        database.close()


def _blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @functools.wraps(function)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            try:
                return await function(*args, **kwargs)
            finally:
                # Tasks that submitted tasks left connections behind on this loop, which ends here.
                if configured() is not None:
                    default_async_client().close()

        return run_blocking(run)

    return blocking


drain_sync = _blocking(drain)


class _Watch:
    """Follows a worker by its events."""

    def __init__(self, limit: int) -> None:
        self.attempts: Counter[str] = Counter()
        self._limit = limit
        self._states: dict[UUID, TaskState] = {}
        self._errors: dict[UUID, str] = {}

    def follow(self, worker: Worker) -> None:
        def hear(event: Event) -> None:
            match event:
                case TaskStarted(id, name):
                    self.attempts[name] += 1
                    self._states.setdefault(UUID(id), TaskState.RUNNING)
                    if self.attempts.total() == self._limit:
                        worker.stop()
                case TaskEnded(id, state=state, error=error):
                    self._states[UUID(id)] = TaskState(state)
                    self._errors.pop(UUID(id), None)
                    if error is not None:
                        self._errors[UUID(id)] = error

        worker.events.subscribe(hear)

    def check_limit(self) -> None:
        if self.attempts.total() >= self._limit:
            names = ", ".join(f"{name} ({count})" for name, count in self.attempts.most_common(5))
            raise AssertionError(
                f"drain() made {self.attempts.total()} attempts and tasks are still due. Most attempts: {names}. "
                f"If they don't submit each other for ever, raise the limit: drain(limit={10 * self._limit})."
            )

    def summary(self) -> Drained:
        return Drained(self._states, self._errors, self.attempts.total())


def _config(config: Config | str | None) -> Config:
    if config is not None:
        return config if isinstance(config, Config) else Config.from_env(database_url=config)
    client = default_client()
    if isinstance(client, InlineClient):
        raise TaskLibError("drain() runs tasks from the database, and in inline mode there are none: they ran at once.")
    return client.config


def _hurried(until_done: bool, with_delayed: bool) -> list[str]:
    """The states whose tasks are not waited for."""
    if with_delayed:
        return [TaskState.PENDING.value, TaskState.FAILED.value]
    return [TaskState.FAILED.value] if until_done else []


def wanted_capabilities() -> Query[Sequence[str]]:
    """What the waiting tasks require."""
    return Query("wanted_capabilities", {}, lambda rows: [capability for (capability,) in rows])


async def _is_due(database: AsyncDatabase, served: Served, hurried: list[str]) -> bool:
    if hurried:
        await database.run(Query("make_due", {**served.parameters(), "states": hurried}, nothing))
    seconds = await database.run(claim.next_due(served))
    return seconds is not None and seconds <= 0


async def _burst(config: Config, served: Served, concurrency: int, watch: _Watch) -> bool:
    """Work until nothing is due; False if nothing could be claimed."""
    worker = Worker(
        config,
        concurrency=concurrency,
        queues=served.queues,
        capabilities=served.capabilities,
        burst=True,
    )
    before = watch.attempts.total()
    watch.follow(worker)
    await worker.run()
    return watch.attempts.total() > before
