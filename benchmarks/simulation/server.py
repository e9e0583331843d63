"""A PostgreSQL server in the model: cores, one log that is flushed for all who wait, and one lock of all who notify."""

from __future__ import annotations

from benchmarks.simulation.engine import Cores, Process, Signal, Simulation


class Log:
    """Commits that come while it is flushed go with the next flush, all together."""

    def __init__(self, sim: Simulation, flush_seconds: float) -> None:
        self._sim = sim
        self._seconds = flush_seconds
        self._waiting: list[Signal] = []
        self._is_flushing = False
        self.flushes = 0

    def commit(self) -> Process:
        """Until this commit is on disk."""
        done = Signal(self._sim)
        self._waiting.append(done)
        if not self._is_flushing:
            self._is_flushing = True
            self._sim.start(self._flush())
        yield done

    def _flush(self) -> Process:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            yield self._seconds
            self.flushes += 1
            for done in batch:
                done.ring()
        self._is_flushing = False


class ModelServer:
    """What statements cost it, and how long they take beside others."""

    def __init__(self, sim: Simulation, cores: int, flush_seconds: float, shared: Cores | None = None) -> None:
        self._sim = sim
        self.cores = shared or Cores(sim, cores)
        self.log = Log(sim, flush_seconds)
        self._notifying = Cores(sim, 1)
        self.used_seconds = 0.0
        """Of its cores, without what workers use of the same machine."""

    def run(self, cpu_seconds: float, *, writes: bool = True, notifies: bool = False, others: float = 0.0) -> Process:
        """One statement, from its arrival until its commit. `others`: what it makes other sessions do after that.

        A commit that notifies holds a lock of the whole server until it is on disk, so those flush one after the other.
        """
        yield from self._compute(cpu_seconds)
        if notifies:
            yield from self._notifying.take()
            yield from self.log.commit()
            self._notifying.give_back()
            if others:
                self._sim.start(self._compute(others))
        elif writes:
            yield from self.log.commit()

    def _compute(self, seconds: float) -> Process:
        yield from self.cores.use(seconds)
        self.used_seconds += seconds
