"""The worker: claims tasks, runs them, stores what became of them.

claimer ──▶ runner ──▶ settler        each in its own asyncio task, through its own connection
   ▲           ▲           │
wake-up      heartbeat      slots free    (heartbeat: heartbeats and leases, a thread with its own connection)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Self

import psycopg

from tasklib.backends.backend import Backend
from tasklib.backends.postgres.backend import PostgresBackend
from tasklib.client.async_clients import AsyncClient
from tasklib.client.default import given_to_init
from tasklib.config import Config
from tasklib.errors import AccessDenied, ConfigError, TaskLibError
from tasklib.events import DutyFailed, Events, SchedulesSynced, WorkerDraining, WorkerStarted, WorkerStopped
from tasklib.executors.exits import exits_kept_in_attempts
from tasklib.stats import StatsCollector
from tasklib.tasks import blobs, compression, registry
from tasklib.tasks.hooks import Lifespan, subscribers
from tasklib.tasks.keyring import keyring_of
from tasklib.tasks.limits import any_declared
from tasklib.tasks.sealing import key_capability
from tasklib.tasks.serializers import accepted_capabilities
from tasklib.worker.attempt import Interruption
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.begins import Begins
from tasklib.worker.claimer import Claimer, Serving
from tasklib.worker.executors import Executors
from tasklib.worker.membership import Membership, fresh_id
from tasklib.worker.runner import Runner
from tasklib.worker.settler import Settler
from tasklib.worker.signals import stop_signals
from tasklib.worker.slots import Slots

if TYPE_CHECKING:
    from tasklib.worker.shard_workers import ShardWorkers

_LAST_SETTLE_SECONDS = 10.0
"""How long storing the last outcomes may take when the worker has to stop at once."""


_NO_DATABASE = "postgresql://no-database-over-http.invalid/"
"""A worker over HTTP connects to none."""


class Worker:
    """Runs the tasks registered in this program.

    await Worker(concurrency=20, queues=["mail"]).run()      # until stop() or cancellation
    Worker(burst=True).run_sync()                            # until nothing is due
    async with Worker(): ...                                 # beside the block, until it ends
    Worker("https://tasks.example.com", token="tasklib_...").run_sync()      # without a database, through a server
    Worker(Config(shards=(Shard(0, url), Shard(1, other)))).run_sync()       # over shards, with common slots
    """

    def __init__(
        self,
        config: Config | str | None = None,
        *,
        server: str | None = None,
        token: str | None = None,
        concurrency: int = 10,
        queues: Iterable[str] | None = None,
        capabilities: Iterable[str] = (),
        names: Iterable[str] | None = None,
        poll_interval_seconds: float | None = None,
        modules: Iterable[str] = (),
        burst: bool = False,
        signals: bool = True,
        shards: Iterable[int] | None = None,
    ) -> None:
        if isinstance(config, str) and config.startswith(("http://", "https://")):
            config, server = None, config
        if server is not None and not server.startswith(("http://", "https://")):
            raise ConfigError(f"server must be a URL such as https://tasks.example.com, not {server!r}.")
        registry.discover()
        self.server = server
        self._token = token or (os.environ.get("TASKLIB_TOKEN") if server else None)
        given = _configuration(config, over_http=server is not None)
        self.shards = _shard_numbers(shards, given)
        if len(given.shards) == 1 and given.shards_file is None:
            given = given.for_shard(given.shards[0].number)
        if poll_interval_seconds is not None:
            given = given.with_changes(poll_interval_seconds=poll_interval_seconds)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency must be a whole number of at least 1, not {concurrency!r}.")
        self.config = given
        self.concurrency = concurrency
        self.queues = _names("queues", queues)
        keys = [key_capability(key_id) for key_id in keyring_of(given) or ()]
        keys += [blobs.CAPABILITY] if given.payload_store is not None else []
        keys += accepted_capabilities()
        keys += [compression.CAPABILITY] if keys and compression.is_available() else []
        self.capabilities = tuple(sorted({*(_names("capabilities", capabilities) or ()), *keys}))
        self.names = _with_aliases(_names("names", names))
        for name in self.names or ():
            if registry.find(name).takes_connection and server:
                raise ConfigError(f"{name} is transactional: it needs a worker with a database, not one over HTTP.")
        self.modules = tuple(modules)
        self.burst = burst
        self._signals = signals
        self._first_id = fresh_id(given)
        self._membership: Membership | None = None
        self.events = Events()
        for subscriber, routine in subscribers:
            self.events.subscribe(subscriber, routine=routine)
        self.collector = StatsCollector()
        self._serving = Serving(self.names, self.queues, self.capabilities)
        self._stop_asked, self._has_started = asyncio.Event(), asyncio.Event()
        self._stopping_now = False
        self._problem: TaskLibError | None = None
        self._slots = Slots(concurrency, given.max_prefetch)
        self._shards: ShardWorkers | None = None

    @property
    def id(self) -> str:
        """This worker's id: fresh at each start, and again if it was declared dead."""
        return self._membership.id if self._membership else self._first_id

    @property
    def taken(self) -> int:
        """How many tasks it holds now."""
        return self._slots.taken if self._shards is None else self._shards.taken

    def run_sync(self) -> None:
        """Run in an event loop of its own."""
        asyncio.run(self.run())

    async def run(self) -> None:
        """Work until `stop()` is called (twice: at once), the burst is over, or this coroutine is cancelled.

        In the main thread, SIGTERM, SIGINT and SIGHUP call `stop()`, unless the program handles them itself or the
        worker was made with `signals=False`.
        """
        self._expect_stop()
        self._lifespan = Lifespan("worker")  # here, so that all it runs has its state
        with stop_signals(self.stop) if self._signals else nullcontext(), exits_kept_in_attempts():
            if self.config.shards:
                await self._serve_shards()
            else:
                await self._serve()

    def _expect_stop(self) -> None:
        self._stop_asked, self._stopping_now, self._settler_ended = asyncio.Event(), False, False
        self._has_started = asyncio.Event()

    async def _serve(self) -> None:
        """Start, and work until stopped."""
        starting = asyncio.create_task(self._start_up())
        if await self._until_done_or_stopped(starting):
            background = starting.result()
            self._has_started.set()
            await self._work(background)

    async def _serve_shards(self) -> None:
        """Let a worker for each shard do the work, with common slots."""
        # Imported here: it imports this module, and few have shards.
        from tasklib.worker.shard_workers import ShardWorkers

        self._shards = ShardWorkers(self, self._lifespan, self._has_started, self._stop_asked)
        self.collector = self._shards.collector
        await self._shards.run()

    async def __aenter__(self) -> Self:
        """Run beside the block. An error at the start is raised here, a later one at the end of the block."""
        self._running = asyncio.create_task(self.run())
        await asyncio.sleep(0)  # run() makes its events
        started = asyncio.create_task(self._has_started.wait())
        try:
            await asyncio.wait({started, self._running}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            raise
        finally:
            started.cancel()
        if self._running.done():
            self._running.result()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop as after the first `stop()`: what runs is finished."""
        if not self._stop_asked.is_set():
            self.stop()
        await self._running

    async def _until_done_or_stopped(self, starting: asyncio.Task[list[asyncio.Task[None]]]) -> bool:
        """Whether the worker has started; False if it was stopped before, and has nothing to drain."""
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
        return not starting.cancelled()

    async def _work(self, background: list[asyncio.Task[None]]) -> None:
        try:
            await self._claim_until_stopped(background)
            await self._drain()
            if self._problem is not None:
                raise self._problem
        except asyncio.CancelledError:
            self._stopping_now = True
            await asyncio.shield(self._drain())
            raise
        finally:
            await self._close(background)

    def stop(self) -> None:
        """First call: drain. Second call: give running work back at once. Call it on the worker's loop."""
        self._stopping_now = self._stop_asked.is_set()
        self._stop_asked.set()
        self._slots.nudge()
        if self._shards is not None:
            self._shards.stop()

    async def _start_up(self) -> list[asyncio.Task[None]]:
        """Connect, join the fleet, and begin what goes on beside the claims."""
        self._backend = self._new_backend()
        try:
            await self._open()
            await self._lifespan.start()
            try:
                return await self._start_background()
            except BaseException:
                await self._leave()  # stopped as early as that, it may be registered all the same
                await self._lifespan.stop()
                raise
        except BaseException:
            await self._backend.close()
            raise

    async def _open(self) -> None:
        """Connect to the backend and build the worker's components."""
        config = await self._backend.open()
        self._serving.serves = self._backend.serves
        self._settler = Settler(config, self._backend, self._slots, self.events, self.collector)
        self._begin_limit = BeginLimit(self._slots, self._backend, lambda: self.id)
        begins = Begins(self._backend)
        self._executors = self._executors_for(config)
        self._runner = Runner(
            config,
            self._slots,
            self._settler,
            self.events,
            self._executors,
            begins,
            self._begin_limit,
            self._stop_asked,
            self._backend.places,
            self._backend.steps,
        )
        self._membership = Membership(
            config,
            self._backend,
            self._slots,
            self._runner,
            self.events,
            self.collector,
            id_=self._first_id,
            served=self._serving.served,
            drain=self._stop_asked.set,
        )
        self._claimer = Claimer(
            self._backend,
            self._slots,
            self.events,
            self.collector,
            self._begin_limit,
            self._serving,
            self._membership,
            start=self._runner.start,
            held=lambda: [*self._runner.running, *self._settler.unwritten],
            burst=self.burst,
        )

    async def _start_background(self) -> list[asyncio.Task[None]]:
        assert self._membership is not None
        await self._membership.join()
        names = self._serving.served().names or ()
        self.events.emit(WorkerStarted(self.id, tuple(names), self.queues, self.concurrency))
        await self._sync_limits()
        await self._sync_breakers()
        await self._sync_schedules()
        jobs = [
            self._settler.run(),
            self._settler.write_progress(),
            self._begin_limit.run(),
            *self._backend.jobs(self._runner, self._membership.look),
        ]
        if self.burst:
            jobs.append(self._end_without_children())
        background = [asyncio.create_task(job) for job in jobs]
        background[0].add_done_callback(self._settler_has_ended)
        return background

    async def _sync_limits(self) -> None:
        """Store the limits that the code declares, before the first claim: without them, too much would run."""
        if self.server is None and any_declared(registry.distinct()):
            async with AsyncClient(self.config) as client:
                await client.sync_limits()

    async def _sync_breakers(self) -> None:
        """Store the circuit breakers that the code declares."""
        if self.server is None and any(function.breaker for function in list(registry.functions.values())):
            async with AsyncClient(self.config) as client:
                await client.sync_breakers()

    async def _sync_schedules(self) -> None:
        """Store what the task functions say of schedules. Without it the worker works all the same."""
        if not any(function.schedules for function in registry.distinct()):
            return
        try:
            async with self._client() as client:
                done = await client.sync_schedules()
        except (psycopg.errors.InsufficientPrivilege, AccessDenied) as e:
            advice = "Run `tasklib schedule sync MODULE` in the deploy, with a role that may change schedules."
            self.events.emit(DutyFailed("schedule sync", f"{str(e).splitlines()[0]}; the worker continues. {advice}"))
        except Exception as e:
            self.events.emit(DutyFailed("schedule sync", f"{type(e).__name__}: {e}"))
        else:
            self.events.emit(
                SchedulesSynced(*map(tuple, (done.created, done.changed, done.unchanged, done.refused, done.retired)))
            )

    def _client(self) -> AsyncClient:
        if self.server is None:
            return AsyncClient(self.config)
        from tasklib.http.clients import AsyncHttpClient

        client = AsyncHttpClient(self.server, token=self._token)
        client.calls.config = client.calls.config.with_changes(deployed_at=self.config.deployed_at)
        return client

    def _settler_has_ended(self, _: object) -> None:
        self._settler_ended = True
        self._slots.nudge()

    async def _end_without_children(self) -> None:
        """A burst would never end if no child process can be started for the tasks that are due."""
        reason = await self._runner.children_keep_failing()
        self._problem = TaskLibError(
            f"the burst has ended with tasks left: no child process can be started for them ({reason}). Look at the "
            "limits on memory, processes and open files, and at process_start_timeout_seconds."
        )

    async def _claim_until_stopped(self, background: list[asyncio.Task[None]]) -> None:
        claiming = asyncio.create_task(self._claimer.run())
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            # A background job that ends has an error, which is the worker's, or there is no use in going on.
            await asyncio.wait({claiming, asked, *background}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Stop claiming before draining: a claim under way ends, and what it brought is released.
            self._stop_asked.set()
            self._claimer.stop()
            assert self._membership is not None
            self._membership.draining()
            asked.cancel()
            await _ended(claiming, self.config.statement_timeout_seconds)
        for job in (claiming, *background):
            if job.done() and not job.cancelled() and (error := job.exception()):
                raise error

    async def _drain(self) -> None:
        """Let running tasks finish within the grace period; then, or on the second stop, release them."""
        self._runner.release_waiting()
        if self._slots.taken:
            self.events.emit(WorkerDraining(self.id, self._slots.taken, self._stopping_now))
        await self._until(lambda: not self._slots.taken or self._stopping_now, self.config.shutdown_grace_seconds)
        if not self._slots.taken:
            return
        self.events.emit(WorkerDraining(self.id, self._slots.taken, True))
        for attempt in list(self._runner.running):
            self._runner.interrupt(attempt, Interruption.SHUTDOWN)
        # Children are killed within their own grace; threads can't be and end with the process.
        await self._until(self._all_settled, self.config.process_kill_grace_seconds + _LAST_SETTLE_SECONDS)

    def _all_settled(self) -> bool:
        # A program that exits has cancelled the settler too: what it did not write is released at the end.
        return self._settler_ended or (self._settler.is_idle and all(a.settled for a in self._runner.running))

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition on slots and settlements holds, or the time is up."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._slots.changed()
        except TimeoutError:
            pass

    async def _close(self, background: list[asyncio.Task[None]]) -> None:
        for job in background:
            job.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await self._leave()
        self._runner.close()
        await self._close_executors()
        await self._stop_hooks()
        await self._backend.close()
        self.events.emit(WorkerStopped(self.id))

    async def _leave(self) -> None:
        assert self._membership is not None
        await self._membership.leave()

    async def _stop_hooks(self) -> None:
        try:
            await self._lifespan.stop()
        except Exception as e:
            self.events.emit(DutyFailed("on_shutdown", f"{type(e).__name__}: {e}"))

    def _executors_for(self, config: Config) -> Executors:
        return Executors(config, self.concurrency, self.modules, self.events)

    async def _close_executors(self) -> None:
        await self._executors.close()

    def _new_backend(self) -> Backend:
        if self.server is None:
            return PostgresBackend(self.config, self.events, self.collector)
        try:
            from tasklib.backends.http.backend import HttpBackend
        except ImportError as e:
            raise ConfigError(f"a worker over HTTP needs httpx ({e}): pip install 'tasklib-pg[http]'") from e
        return HttpBackend(self.config, self.events, self.collector, self.server, self._token)


def _configuration(given: Config | str | None, *, over_http: bool) -> Config:
    """The given configuration, else that of `tasklib.init`, else the environment."""
    if isinstance(given, Config):
        return given
    if over_http:
        return Config.from_env(database_url=_NO_DATABASE)
    return (given_to_init() if given is None else None) or Config.from_env(database_url=given)


def _names(option: str, values: Iterable[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, str):
        raise ConfigError(f"{option} must be a list such as ['a', 'b'], not the string {values!r}.")
    names = tuple(values)
    if not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f"{option} must be a list of names, not {names!r}.")
    return names


def _shard_numbers(given: Iterable[int] | None, config: Config) -> frozenset[int] | None:
    """The shards that a worker serves; None: all there are."""
    if given is None:
        return None
    numbers, known = frozenset(given), sorted(shard.number for shard in config.shards)
    if not numbers or not numbers <= set(known):
        raise ConfigError(
            f"shards must be numbers of the configured shards ({', '.join(map(str, known)) or 'there are none'}), "
            f"not {sorted(numbers, key=str)}."
        )
    return numbers


def _with_aliases(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """A function that was renamed runs the tasks of its old names too."""
    if names is None:
        return None
    return tuple(dict.fromkeys(n for name in names for n in (name, *registry.find(name).aliases)))


async def _ended(task: asyncio.Task[None], seconds: float) -> None:
    """Wait for a task to end; cancel it if it doesn't."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
