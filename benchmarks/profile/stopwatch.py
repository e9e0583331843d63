"""CPU time by stage. Stages nest, and each moment counts for the innermost: so they add up to the whole."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
REST = "event loop, and all else"


class Stopwatch:
    """Counts the CPU time of one thread. A reading takes a system call, so it is for batches, not for single tasks."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stages = [REST]
        self._since = time.thread_time()

    def begin(self, stage: str) -> None:
        self._count()
        self._stages.append(stage)

    def end(self) -> None:
        self._count()
        self._stages.pop()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def reset(self) -> None:
        """Count from here."""
        self._count()
        self.seconds.clear()

    def read(self) -> dict[str, float]:
        """What was counted up to now."""
        self._count()
        return dict(self.seconds)

    def function(self, stage: str, function: Callable[P, T]) -> Callable[P, T]:
        """The same function, counted."""

        @wraps(function)
        def counted(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.stage(stage):
                return function(*args, **kwargs)

        return counted

    def coroutine(
        self, stage: str, function: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """The same coroutine function, counted while it runs and not while it waits."""

        @wraps(function)
        async def counted(*args: P.args, **kwargs: P.kwargs) -> T:
            value: T = await _Awaited(self.steps(stage, function(*args, **kwargs)))
            return value

        return counted

    def steps(self, stage: str, inner: Generator[Any, Any, T] | Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """The same steps, each counted."""
        given: Any = None
        error: BaseException | None = None
        while True:
            self.begin(stage)
            try:
                wanted = inner.send(given) if error is None else inner.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                self.end()
            try:
                given, error = (yield wanted), None
            except BaseException as e:
                given, error = None, e

    def _count(self) -> None:
        now = time.thread_time()
        self.seconds[self._stages[-1]] += now - self._since
        self._since = now


class _Awaited:
    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps
