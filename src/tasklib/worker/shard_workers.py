"""A worker over several shards: one process with common slots, and for each shard a worker of its own in it.

    ShardWorkers ──▶ ShardWorker 0: backend, claimer, settler, heartbeat ──▶ shard 0     common: slots (`SlotPool`),
             └─────▶ ShardWorker 1: backend, claimer, settler, heartbeat ──▶ shard 1     threads, child processes, hooks

Nothing of one shard waits for the database of another: each has its connections, its heartbeat thread, its results on
their way, its row in `workers`, its place in the election of its leader. A shard that can't be reached is tried again
for ever, while the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tasklib.config import Config
from tasklib.db.reconnecting import backoff
from tasklib.errors import ConfigError, SchemaError
from tasklib.events import (
    DatabaseAwaited,
    DatabaseBack,
    DatabaseLost,
    DutyFailed,
    Event,
    Events,
    LeadershipLost,
    LeadershipTaken,
    NotificationsMissing,
    WorkerDraining,
    WorkerStarted,
    WorkerStopped,
)
from tasklib.shards import Shard, read_shards
from tasklib.stats import Stat, StatsCollector, summed
from tasklib.tasks.hooks import Lifespan
from tasklib.worker.executors import Executors
from tasklib.worker.shard_slots import ShardSlots, SlotPool
from tasklib.worker.worker import Worker

_FILE_LOOK_SECONDS = 1.0
"""How often the file of the shards is looked at."""


class ShardWorkers:
    """The workers of all shards, for one `Worker`."""

    def __init__(
        self, whole: Worker, lifespan: Lifespan, has_started: asyncio.Event, stop_asked: asyncio.Event
    ) -> None:
        self._whole = whole
        self._lifespan = lifespan
        self._has_started = has_started
        self._stop_asked = stop_asked
        self._workers: dict[int, ShardWorker] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._shards: dict[int, Shard] = {}
        self._untried: set[int] = set()
        """Shards whose first start has not succeeded or failed yet."""
        self.collector = ShardsCollector(lambda: [worker.collector for worker in self._workers.values()])

    @property
    def taken(self) -> int:
        """How many tasks are held, of all shards."""
        return sum(worker.taken for worker in list(self._workers.values()))

    async def run(self) -> None:
        """Serve all shards until stopped; with `burst`, until none has a task that is due."""
        whole = self._whole
        self._pool = SlotPool(whole.concurrency)
        self._executors = Executors(whole.config, whole.concurrency, whole.modules, whole.events)
        try:
            await self._lifespan.start()
            try:
                await self._serve_all()
            finally:
                await self._lifespan.stop()
        finally:
            await self._executors.close()
        whole.events.emit(WorkerStopped(whole.id))

    def stop(self) -> None:
        """Stop the workers of all shards: drain, and the second time at once."""
        for worker in self._workers.values():
            worker.stop()

    async def _serve_all(self) -> None:
        self._take(self._whole.config.shards)
        self._untried = set(self._shards)
        watching = asyncio.create_task(self._watch_file())
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            while serving := [task for task in self._serving.values() if not task.done()]:
                await asyncio.wait({*serving, asked}, return_when=asyncio.FIRST_COMPLETED)
                if asked.done():
                    watching.cancel()
                    self._say_that_it_drains()
                    await asyncio.wait(serving)
                self._raise_errors()
        finally:
            asked.cancel()
            watching.cancel()
            await self._end()

    def _raise_errors(self) -> None:
        """A wrong configuration of one shard ends the worker; in a burst, any error does, once the others are done."""
        ended = [task for task in self._serving.values() if task.done()]
        if self._whole.burst and len(ended) < len(self._serving):
            return
        for task in ended:
            task.result()

    async def _end(self) -> None:
        """Whatever still works is stopped: by an error of another shard, or because this coroutine was cancelled."""
        left = [task for task in self._serving.values() if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*self._serving.values(), return_exceptions=True)

    def _say_that_it_drains(self) -> None:
        if self.taken:
            self._whole.events.emit(WorkerDraining(self._whole.id, self.taken, False))

    def _take(self, shards: Iterable[Shard]) -> None:
        """Serve those of these that are ours: begin with new ones, leave those that are gone, elsewhere or moving."""
        ours = self._whole.shards
        wanted = {shard.number: shard for shard in shards if ours is None or shard.number in ours}
        for number, shard in list(self._shards.items()):
            if number not in wanted or _address(wanted[number]) != _address(shard):
                del self._shards[number]
                if number in self._workers:
                    self._workers[number].stop()
        for number, shard in wanted.items():
            if number not in self._shards:
                self._shards[number] = shard
                before = self._serving.get(number)
                self._serving[number] = asyncio.create_task(self._serve(shard, before))

    async def _serve(self, shard: Shard, before: asyncio.Task[None] | None = None) -> None:
        """Serve a shard for as long as it is one, through whatever becomes of its database."""
        if before is not None:  # at its former address
            await asyncio.gather(before, return_exceptions=True)
        if shard.moving_to is not None:
            await self._until_it_has_moved(shard)
            return
        failures = 0
        while self._shards.get(shard.number) is shard and not self._stop_asked.is_set():
            worker = ShardWorker(self._whole, shard, self._pool, self._executors, self._started)
            self._workers[shard.number] = worker
            try:
                await worker.serve()
                if not self._whole.burst and self._shards.get(shard.number) is shard:
                    self._whole.stop()  # it was asked to drain, or all were
                return
            except Exception as e:
                if isinstance(e, ConfigError | SchemaError) and shard.number in self._untried:
                    raise self._named(shard, e) from e
                problem = e
            finally:
                worker.slots.leave()
                self.collector.keep(worker.collector)
                del self._workers[shard.number]
            if self._whole.burst or self._is_hopeless(shard):
                raise problem
            self._whole.events.emit(DutyFailed("serving", f"{type(problem).__name__}: {problem}", shard.number))
            failures = 0 if worker.has_started else failures + 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_asked.wait(), backoff(failures))

    async def _until_it_has_moved(self, shard: Shard) -> None:
        """Leave a shard alone that moves, until the file names its new address."""
        self._untried.discard(shard.number)
        while self._shards.get(shard.number) is shard and not self._stop_asked.is_set() and not self._whole.burst:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_asked.wait(), _FILE_LOOK_SECONDS)

    @staticmethod
    def _named(shard: Shard, error: ConfigError | SchemaError) -> ConfigError | SchemaError:
        return type(error)(f"shard {shard.number}: {error}")

    def _is_hopeless(self, shard: Shard) -> bool:
        """Whether no shard could be reached at the start, this one being the last that was tried."""
        self._untried.discard(shard.number)
        return not self._has_started.is_set() and not self._untried

    def _started(self, number: int, event: WorkerStarted) -> None:
        """A shard is served; with the first one, the worker has started."""
        self._untried.discard(number)
        if not self._has_started.is_set():
            self._has_started.set()
            self._whole.events.emit(replace(event, worker_id=self._whole.id, shards=tuple(self._shards)))

    async def _watch_file(self) -> None:
        """Follow changes of the file that names the shards, for ever."""
        if self._whole.config.shards_file is None:
            await asyncio.Event().wait()
            return
        file = Path(self._whole.config.shards_file)
        seen = _state(file)
        while True:
            await asyncio.sleep(_FILE_LOOK_SECONDS)
            if (now := _state(file)) != seen:
                seen = now
                try:
                    self._take(read_shards(file))
                except ConfigError as e:
                    self._whole.events.emit(DutyFailed("shards_file", f"{e} The shards stay as they were."))


class ShardWorker(Worker):
    """The worker of one shard, in a worker over several."""

    def __init__(
        self,
        whole: Worker,
        shard: Shard,
        pool: SlotPool,
        executors: Executors,
        started: Callable[[int, WorkerStarted], None],
    ) -> None:
        super().__init__(
            _config_of(whole.config, shard),
            concurrency=whole.concurrency,
            queues=whole.queues,
            capabilities=whole.capabilities,
            names=whole.names,
            modules=whole.modules,
            burst=whole.burst,
            signals=False,
        )
        self._slots = self.slots = ShardSlots(pool, self.config.max_prefetch)
        self._first_id = whole.id
        self.events = ShardEvents(whole.events, shard.number, started)
        self._common_executors = executors
        self._is_home = shard.number == min(each.number for each in whole.config.shards)
        self._lifespan = _NoHooks()

    @property
    def has_started(self) -> bool:
        """Whether it has come as far as to claim."""
        return self._has_started.is_set()

    async def serve(self) -> None:
        """Start, and work until stopped."""
        self._expect_stop()
        await self._serve()

    def _executors_for(self, config: Config) -> Executors:
        return self._common_executors

    async def _close_executors(self) -> None:
        """Those of other shards go on."""

    async def _sync_schedules(self) -> None:
        if self._is_home:
            await super()._sync_schedules()


class _NoHooks(Lifespan):
    """The hooks are called once, for all shards."""

    def __init__(self) -> None:
        pass

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class ShardEvents(Events):
    """Passes the events of one shard's worker on: they name the shard, and the worker starts and stops once for all."""

    def __init__(self, whole: Events, shard: int, started: Callable[[int, WorkerStarted], None]) -> None:
        super().__init__()
        self._whole = whole
        self._shard = shard
        self._started = started

    @property
    def routine(self) -> bool:
        return self._whole.routine

    @routine.setter
    def routine(self, value: bool) -> None:
        """It is what the subscribers of the whole worker make it."""

    def emit(self, event: Event) -> None:
        match event:
            case WorkerStarted():
                self._started(self._shard, event)
            case WorkerDraining() | WorkerStopped():
                pass
            case (
                DatabaseAwaited()
                | DatabaseBack()
                | DatabaseLost()
                | DutyFailed()
                | LeadershipLost()
                | LeadershipTaken()
                | NotificationsMissing()
            ):
                self._whole.emit(replace(event, shard=self._shard))
            case _:
                self._whole.emit(event)

    def emit_routine(self, event: Event) -> None:
        self._whole.emit_routine(event)


class ShardsCollector(StatsCollector):
    """What the workers of all shards have counted, together."""

    def __init__(self, parts: Callable[[], list[StatsCollector]]) -> None:
        super().__init__()
        self._parts = parts
        self._ended: list[Stat] = []

    def keep(self, part: StatsCollector) -> None:
        """A shard's worker has ended: its counts stay."""
        self._ended = summed([*self._ended, *part.totals()])

    def totals(self) -> list[Stat]:
        return summed([*self._ended, *(stat for part in self._parts() for stat in part.totals())])


def _config_of(config: Config, shard: Shard) -> Config:
    """The configuration of one shard, which may have come into the file since the start."""
    return config.with_shards((shard,)).for_shard(shard.number)


def _address(shard: Shard) -> tuple[str, str | None, str | None, bool]:
    return shard.database_url, shard.schema, shard.listen_database_url, shard.moving_to is not None


def _state(file: Path) -> tuple[int, int] | None:
    """Changes when the file does, also when it is replaced."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
