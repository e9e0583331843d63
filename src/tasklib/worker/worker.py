"""The worker: claims tasks, runs them, stores what became of them.

claimer ──▶ runner ──▶ settler        each in its own asyncio task, on its own connection
   ▲           ▲           │
wake-up      heart      slots free    (heart: heartbeats and leases, a thread with its own connection)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from tasklib.config import Config
from tasklib.db.link import Link
from tasklib.errors import ConfigError, DatabaseUnavailable
from tasklib.events import (
    DatabaseBack,
    DatabaseLost,
    Events,
    WorkerDraining,
    WorkerStarted,
    WorkerStopped,
)
from tasklib.executors.outcomes import Released
from tasklib.maintenance.calendar import duties_of
from tasklib.maintenance.duties import perform
from tasklib.maintenance.leader import Leadership
from tasklib.store import schema as schema_store
from tasklib.store.claim import Claimed, Served
from tasklib.tally import Tallier
from tasklib.tasks import registry
from tasklib.worker.attempt import Attempt, Interruption
from tasklib.worker.cancels import watch_for_cancel_requests
from tasklib.worker.claimer import Claimer
from tasklib.worker.membership import Membership, fresh_id
from tasklib.worker.runner import Runner
from tasklib.worker.settler import Settler
from tasklib.worker.slots import Slots
from tasklib.worker.telling import Teller
from tasklib.worker.wakeup import Wakeup, listen

_LAST_SETTLE_SECONDS = 10.0
"""How long the last outcomes may take to be stored when the worker is told to stop at once."""


class Worker:
    """Runs the tasks registered in this program.

    await Worker(concurrency=20, queues=["mail"]).run()      # until stop() or cancellation
    Worker(burst=True).run_sync()                            # until nothing is due
    """

    def __init__(
        self,
        config: Config | str | None = None,
        *,
        concurrency: int = 10,
        queues: Iterable[str] | None = None,
        capabilities: Iterable[str] = (),
        names: Iterable[str] | None = None,
        poll_interval_seconds: float | None = None,
        modules: Iterable[str] = (),
        burst: bool = False,
    ) -> None:
        given = config if isinstance(config, Config) else Config.from_env(database_url=config)
        if poll_interval_seconds is not None:
            given = given.with_changes(poll_interval_seconds=poll_interval_seconds)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency must be a whole number of at least 1, not {concurrency!r}.")
        self.config = given
        self.concurrency = concurrency
        self.queues = _names("queues", queues)
        self.capabilities = tuple(sorted(_names("capabilities", capabilities) or ()))
        self.names = _names("names", names)
        for name in self.names or ():
            registry.find(name)
        self.modules = tuple(modules)
        self.burst = burst
        self._first_id = fresh_id(given)
        self._membership: Membership | None = None
        self.events = Events()
        self.tallier = Tallier()
        self._served = Served(self.names or (), self.queues, self.capabilities)
        self._stop_asked = asyncio.Event()
        self._stopping_now = False
        self._slots = Slots(concurrency, given.max_prefetch)

    @property
    def id(self) -> str:
        """This worker's id: fresh at each start, and again if it was declared dead."""
        return self._membership.id if self._membership else self._first_id

    def run_sync(self) -> None:
        """Run in an event loop of its own."""
        asyncio.run(self.run())

    async def run(self) -> None:
        """Work until `stop()` is called (twice: at once), the burst is over, or this coroutine is cancelled."""
        self._stop_asked, self._stopping_now = asyncio.Event(), False
        await self._open()
        background = await self._start_background()
        try:
            await self._claim_until_stopped(background)
            await self._drain()
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

    async def _open(self) -> None:
        """Connect, find out which schema we are in, and refuse one we don't fit."""
        # Imported here: Alembic takes a tenth of a second that clients and child processes never need.
        from tasklib.migrations.revisions import require_current

        self._claim_link = self._link("claim")
        self._settle_link = self._link("settle")
        # The election and the fleet's requests must not wait behind a long sweep; only the leader opens the second.
        self._control_link = self._link("control")
        self._maintenance_link = self._link("maintenance")
        found = await self._claim_link.run(schema_store.where_is_tasks(self.config.schema))
        revision = await self._claim_link.run(schema_store.revision()) if found else None
        require_current(revision, self.config.schema)
        assert found is not None
        self._schema = found
        self._wakeup = Wakeup(self.config.poll_interval_seconds, self.events)
        self._settler = Settler(self.config, self._settle_link, self._slots, self._wakeup, self.events, self.tallier)
        self._runner = Runner(self.config, self._slots, self._settler, self.events, self.modules)
        self._claimer = Claimer(
            self.config,
            self._claim_link,
            self._slots,
            self._wakeup,
            self.events,
            served=self._what_we_serve,
            worker_id=lambda: self.id,
            start=self._start,
            tallier=self.tallier,
            burst=self.burst,
        )

    async def _start_background(self) -> list[asyncio.Task[None]]:
        self._membership = Membership(
            self.config,
            self._control_link,
            self._slots,
            self._runner,
            self.events,
            self.tallier,
            id_=self._first_id,
            served=self._what_we_serve,
            drain=self._stop_asked.set,
        )
        await self._membership.join()
        self._teller = Teller(self.tallier, self._control_link, lambda: self.id)
        await self._teller.tell()  # the first time only to learn the database's clock
        self._wakeup.on_fleet_news = self._membership.look
        self._leadership = Leadership(self.config, self._control_link, self.events)
        names = self._what_we_serve().names
        self.events.emit(WorkerStarted(self.id, tuple(names), self.queues, self.concurrency))
        jobs = [
            self._settler.run(),
            self._settler.write_progress(),
            self._teller.tell_for_ever(),
            self._leadership.run_for_it(lambda: self.id),
            perform(duties_of(self.config), self._maintenance_link, self.config, self._leadership, self.events),
            watch_for_cancel_requests(self._control_link, self._runner, self._wakeup.cancel_requested),
        ]
        if self.config.listen:
            jobs.append(listen(self.config, self._schema, self._wakeup, self.events))
        return [asyncio.create_task(job) for job in jobs]

    async def _claim_until_stopped(self, background: list[asyncio.Task[None]]) -> None:
        claiming = asyncio.create_task(self._claimer.run())
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            # A background job never ends by itself: if one does, its error is the worker's.
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
        """Let running work finish within the grace period; then, or when told to, give it back."""
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
        all_settled = lambda: self._settler.is_idle and all(a.settled for a in self._runner.running)  # noqa: E731
        await self._until(all_settled, self.config.process_kill_grace_seconds + _LAST_SETTLE_SECONDS)

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
        await self._runner.close()
        for link in (self._claim_link, self._settle_link, self._control_link, self._maintenance_link):
            link.drop()
        self.events.emit(WorkerStopped(self.id))

    async def _leave(self) -> None:
        """Hand the lead over and leave the fleet: nobody has to wait until we are missed."""
        assert self._membership is not None
        await self._teller.tell()
        with suppress(DatabaseUnavailable):  # then it runs out by itself
            await self._leadership.resign()
        await self._membership.leave()

    def _start(self, claimed: list[Claimed], worker_id: str, lease_deadline: float) -> None:
        """Begin what was claimed under this id, which need not be ours any more."""
        now = time.monotonic()
        attempts = []
        for row in claimed:
            function = registry.get(row.name)
            assert function is not None, "a claim only brings names this worker asked for"
            attempts.append(Attempt(row, function, worker_id, lease_deadline, now))
        if self._stop_asked.is_set():
            for attempt in attempts:
                self._settler.put(attempt, Released())
        else:
            self._runner.start(attempts)

    def _what_we_serve(self) -> Served:
        # Task functions may be registered at any time; there is rarely a new one.
        if self.names is None and registry.count() != len(self._served.names):
            self._served = Served(tuple(registry.names()), self.queues, self.capabilities)
        return self._served

    def _link(self, purpose: str) -> Link:
        return Link(
            self.config,
            purpose,
            on_lost=lambda purpose, reason: self.events.emit(DatabaseLost(purpose, reason)),
            on_back=lambda purpose: self.events.emit(DatabaseBack(purpose)),
        )


def _names(option: str, values: Iterable[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, str):
        raise ConfigError(f"{option} must be a list such as ['a', 'b'], not the string {values!r}.")
    names = tuple(values)
    if not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f"{option} must be a list of names, not {names!r}.")
    return names


async def _ended(task: asyncio.Task[None], seconds: float) -> None:
    """Wait for a task to end by itself; cancel it if it doesn't."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
