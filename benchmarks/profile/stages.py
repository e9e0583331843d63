"""Which functions of a worker are which stage. They are wrapped for the time of a run, and put back."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from benchmarks.profile.stopwatch import Stopwatch
from tasklib.backends.postgres.claims import ClaimCursor, PostgresClaims
from tasklib.db import fast_path, reconnecting
from tasklib.db.query import Query
from tasklib.store import claim, settle
from tasklib.store.claim import Claimed
from tasklib.worker.runner import Runner
from tasklib.worker.settler import Settler

ASKING = "claim: decided, and its statement made"
CLAIM_WIRE = "claim: sent and answered (libpq)"
ROWS = "claim: rows become objects"
PLACES = "claim: its places in the lanes remembered"
ATTEMPTS = "attempts are made"
RUNNING = "tasks are started, run and finished"
COLLECTING = "settle: outcomes sorted and checked"
COMPLETING = "settle: its statement made"
SETTLE_WIRE = "settle: sent and answered (libpq)"
LINK = "connections: timers, readiness"
STAGES = (ASKING, CLAIM_WIRE, ROWS, PLACES, ATTEMPTS, RUNNING, COLLECTING, COMPLETING, SETTLE_WIRE, LINK)
ON_THE_WIRE = {"claim": CLAIM_WIRE, "complete": SETTLE_WIRE}
ENOUGH_ROWS = 2_000


@dataclass
class Stages:
    """A stopwatch on the stages of a worker, and some of the rows that it saw pass by."""

    watch: Stopwatch = field(default_factory=Stopwatch)
    rows: list[Claimed] = field(default_factory=list)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Wrap them. Everything here is called once for many tasks, but for `_start_waiting`."""
        watch = self.watch
        with ExitStack() as stack:
            for owner, name, wrapped in (
                (claim, "claim", self._query(ASKING, ROWS, claim.claim)),
                (settle, "complete", self._query(COMPLETING, COLLECTING, settle.complete)),
                (reconnecting, "exchange", self._exchange(fast_path.exchange)),
                (fast_path, "_rows", self._rows_read(fast_path._rows)),
                (
                    reconnecting.ReconnectingConnection,
                    "run",
                    watch.coroutine(LINK, reconnecting.ReconnectingConnection.run),
                ),
                (PostgresClaims, "claim", watch.coroutine(ASKING, PostgresClaims.claim)),
                (ClaimCursor, "went_on", watch.function(PLACES, ClaimCursor.went_on)),
                (Runner, "start", watch.function(ATTEMPTS, Runner.start)),
                (Runner, "_start_waiting", self._start_waiting(Runner._start_waiting)),
                (Settler, "_flush", watch.coroutine(COLLECTING, Settler._flush)),
            ):
                stack.enter_context(patch.object(owner, name, wrapped))
            yield

    def _query(self, making: str, reading: str, function: Callable[..., Query[Any]]) -> Callable[..., Query[Any]]:
        def made(*args: Any, **kwargs: Any) -> Query[Any]:
            with self.watch.stage(making):
                query = function(*args, **kwargs)
            return replace(query, read=self.watch.function(reading, self._remembered(query.read)))

        return made

    def _remembered(self, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def reading(rows: Any) -> Any:
            found = read(rows)
            if isinstance(found, list) and len(self.rows) < ENOUGH_ROWS:
                self.rows.extend(found)
            return found

        return reading

    def _exchange(self, exchange: Callable[..., Any]) -> Callable[..., Generator[Any, Any, Any]]:
        def counted(connection: Any, query: Query[Any], *more: Any) -> Generator[Any, Any, Any]:
            return self.watch.steps(ON_THE_WIRE.get(query.name, LINK), exchange(connection, query, *more))

        return counted

    def _rows_read(self, rows: Callable[..., Any]) -> Callable[..., Any]:
        def counted(reader: Any, result: Any, types: tuple[int, ...]) -> Any:
            if result.nfields == 1:  # a settlement's one row is part of its answer
                return rows(reader, result, types)
            with self.watch.stage(ROWS):
                return rows(reader, result, types)

        return counted

    def _start_waiting(self, start_waiting: Callable[[Runner], None]) -> Callable[[Runner], None]:
        watch = self.watch

        def counted(runner: Runner) -> None:
            if runner._starting:  # every task that ends calls it; only the call that starts them is counted
                return
            with watch.stage(RUNNING):
                start_waiting(runner)

        return counted


@dataclass
class Marks:
    """Tells when the work begins and when results were stored; all that a run without a stopwatch has."""

    begun: Callable[[], None]
    stored: Callable[[], None]
    backends: dict[str, int] = field(default_factory=dict)
    """The server's processes for the claims and the settlements."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        exchange, flush = vars(reconnecting)["exchange"], Settler._flush  # wrapped by now, or not

        def first(connection: Any, query: Query[Any], *more: Any) -> Any:
            stage = ON_THE_WIRE.get(query.name)
            if stage is not None and stage not in self.backends:
                self.backends[stage] = connection.info.backend_pid
                if stage == CLAIM_WIRE:
                    self.begun()
            return exchange(connection, query, *more)

        async def flushed(settler: Settler, batch: Any) -> None:
            await flush(settler, batch)
            self.stored()

        with patch.object(reconnecting, "exchange", first), patch.object(Settler, "_flush", flushed):
            yield
