"""Results of several tasks, and of tasks that ran here and now; with the base of all results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from tasklib.celery import states
from tasklib.celery.exceptions import IncompleteStream, NotOnTaskLib

REFUSED_OF_RESULTS = {
    "forget": "results are deleted by age: set TASKLIB_RETENTION, such as completed=30 for 30 days",
    "backend": "results are rows in PostgreSQL: look at tasklib.sync.get_task(id)",
    "build_graph": "`tasklib flow graph ID` draws a flow",
    "graph": "`tasklib flow graph ID` draws a flow",
    "iter_native": "ask each of the results",
    "revoke_by_stamped_headers": "cancel tasks by their tags: `tasklib cancel --tag ...`",
    "save": "keep the ids of the tasks",
    "restore": "keep the ids of the tasks, and make GroupResult(id, [AsyncResult(id), ...])",
    "delete": "results are deleted by age: set TASKLIB_RETENTION",
    "supports_native_join": "get() reads the rows",
    "TimeoutError": "import it from tasklib.celery.exceptions",
    "then": "give the task a callback: link=",
}


class CeleryResultBase:
    """What results have in common."""

    parent: Any = None
    children: Any

    def __getattr__(self, name: str) -> Any:
        if reason := REFUSED_OF_RESULTS.get(name):
            raise NotOnTaskLib(f"TaskLib has no {name} of a result: {reason}.")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def iterdeps(self, intermediate: bool = False) -> Iterator[tuple[Any, Any]]:
        """This result and those after it, each once and with the one before. Unless `intermediate`, all have ended."""
        waiting: deque[tuple[Any, Any]] = deque([(None, self)])
        seen: set[str] = set()
        while waiting:
            parent, result = waiting.popleft()
            if str(result) in seen:
                continue
            seen.add(str(result))
            yield parent, result
            if result.ready():
                waiting.extend((result, child) for child in result.children or ())
            elif not intermediate:
                raise IncompleteStream

    def collect(self, intermediate: bool = False, **named: Any) -> Iterator[tuple[Any, Any]]:
        """This result and those after it, each with its value."""
        for _, result in self.iterdeps(intermediate=intermediate):
            yield result, result.get(**named)

    def get_leaf(self) -> Any:
        """The value of the last one."""
        return [value for _, value in self.collect()][-1]


class CeleryResultSet(CeleryResultBase):
    """Several results."""

    def __init__(self, results: Sequence[Any], app: Any = None, **_: Any) -> None:
        self.results = list(results)
        self.app = app

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Any:
        return self.results[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CeleryResultSet) and other.results == self.results

    __hash__ = object.__hash__

    @property
    def children(self) -> list[Any]:
        """The results."""
        return self.results

    def add(self, result: Any) -> None:
        """One more, unless it is among them."""
        if result not in self.results:
            self.results.append(result)

    def remove(self, result: Any) -> None:
        """Without this one; KeyError if it is not among them."""
        try:
            self.results.remove(result)
        except ValueError:
            raise KeyError(result) from None

    def discard(self, result: Any) -> None:
        """Without this one, if it is among them."""
        if result in self.results:
            self.results.remove(result)

    def update(self, results: Sequence[Any]) -> None:
        """With these, too."""
        for result in results:
            self.add(result)

    def clear(self) -> None:
        """Without any."""
        self.results.clear()

    def get(
        self, timeout: float | None = None, propagate: bool = True, interval: float = 0.5, **named: Any
    ) -> list[Any]:
        """Wait for all of them: the list of results, in order."""
        callback = named.pop("callback", None)
        until = None if timeout is None else time.monotonic() + timeout
        values = []
        for result in self.results:
            left = None if until is None else max(0.0, until - time.monotonic())
            value = result.get(timeout=left, propagate=propagate, **named)
            if callback is not None:
                callback(result.id, value)
            values.append(value)
        return values

    join = join_native = get

    def ready(self) -> bool:
        """Whether all have ended."""
        return all(result.ready() for result in self.results)

    def successful(self) -> bool:
        """Whether all have ended well."""
        return all(result.successful() for result in self.results)

    def failed(self) -> bool:
        """Whether one has failed."""
        return any(result.failed() for result in self.results)

    def waiting(self) -> bool:
        """Whether one has not ended."""
        return not self.ready()

    def completed_count(self) -> int:
        """How many have ended well."""
        return sum(int(result.successful()) for result in self.results)

    def maybe_throw(self, callback: Any = None, propagate: bool = True) -> None:
        """Raise what one has raised."""
        for result in self.results:
            result.maybe_throw(callback=callback, propagate=propagate)

    maybe_reraise = maybe_throw

    def revoke(self, connection: Any = None, terminate: bool = False, **_: Any) -> None:
        """Cancel all of them."""
        for result in self.results:
            result.revoke()


class CeleryGroupResult(CeleryResultSet):
    """The results of a group. Its id is that of the flow."""

    def __init__(
        self, id: str | None = None, results: Sequence[Any] = (), parent: Any = None, app: Any = None, **_: Any
    ) -> None:
        super().__init__(results, app=app)
        self.id = id
        self.parent = parent

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(map(str, self.results))}]>"

    def __str__(self) -> str:
        return str(self.id)

    def __bool__(self) -> bool:
        return bool(self.id or self.results)

    def __json__(self) -> Any:
        return self.as_tuple()

    def as_tuple(self) -> tuple[Any, Any]:
        """Ids, as `result_from_tuple` takes them."""
        return (self.id, self.parent and self.parent.as_tuple()), [result.as_tuple() for result in self.results]


class EagerResult(CeleryResultBase):
    """The result of a task that ran here and now."""

    def __init__(
        self, id: str, ret_value: Any, state: str, traceback: str | None = None, name: str | None = None
    ) -> None:
        self.id = id
        self._value = ret_value
        self.state = state
        self.traceback = traceback
        self.name = name
        self.children: Any = None

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"

    task_id = property(lambda self: self.id)
    status = property(lambda self: self.state)
    result = info = property(lambda self: self._value)
    supports_native_join = ignored = False

    def get(self, timeout: float | None = None, propagate: bool = True, **_: Any) -> Any:
        """The result; raises what the task raised."""
        if self.state in states.PROPAGATE_STATES and propagate:
            raise self._value if isinstance(self._value, BaseException) else Exception(self._value)
        return self._value

    wait = maybe_throw = maybe_reraise = get

    def ready(self) -> bool:
        """Always True."""
        return True

    def successful(self) -> bool:
        """Whether it ended well."""
        return self.state == states.SUCCESS

    def failed(self) -> bool:
        """Whether it failed."""
        return self.state == states.FAILURE

    def revoke(self, *_: Any, **__: Any) -> None:
        """Say that it was revoked."""
        self.state = states.REVOKED

    def __json__(self) -> Any:
        return self.as_tuple()

    def as_tuple(self) -> tuple[Any, Any]:
        """Ids, as `result_from_tuple` takes them."""
        return (self.id, self.parent and self.parent.as_tuple()), None
