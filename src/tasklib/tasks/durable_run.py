"""One run of a durable function: what it has on record, and what it does that is not.

A run begins at the first line each time. Steps that are on record return at once what they returned before. One
implementation for sync and async functions: each operation is a generator that yields effects (`Record`,
`CallFunction`, ... in `durable_effects.py`), and `durable.py` has the two drivers that carry them out.
"""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from tasklib.errors import InvalidOption, ResultNotStorable, TaskLibError
from tasklib.steps import APPROVAL, CHILDREN, StepId, StepKind
from tasklib.tasks.approvals import Approval, Question
from tasklib.tasks.context import LeaveRun
from tasklib.tasks.durable_effects import (
    CallFunction,
    CallInTransaction,
    Consume,
    FoundChildren,
    FoundSignal,
    Journal,
    Load,
    Loading,
    LookAtChildren,
    OthersIdle,
    PauseBeforeRetry,
    Record,
    Steps,
    SubmitChildren,
)
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import MAX_DELAY_SECONDS, MAX_NAME_BYTES, is_name, require_aware
from tasklib.tasks.payload import ResultCodec
from tasklib.tasks.retry import Reject, Retry, RetryPolicy
from tasklib.tasks.unstorable import UnstorableValue

if TYPE_CHECKING:
    from tasklib.tasks.gathering import ChildFlow

MAX_STEPS = 10_000
"""Records of one task: each run reads all of them."""
MAX_STEP_BYTES = 256 * 1024
"""One record, as JSON."""

MAX_REFUSAL = 500
"""Characters of the error shown for an answer that doesn't fit."""

T = TypeVar("T")
F = TypeVar("F")


# ---- why a run is left ----


class Suspend(LeaveRun):
    """The run has to wait."""


class LoseTask(LeaveRun):
    """Another attempt has the task by now."""


class ContinueAsNew(LeaveRun):
    """The function asked to begin anew, with these arguments (JSON text)."""

    def __init__(self, kwargs: str) -> None:
        super().__init__()
        self.kwargs = kwargs


_REPLAY_PAUSE = 0.1


class Wait(NamedTuple):
    """What one branch of a run waits for."""

    until: datetime | None
    signal: str | None = None
    seen: int | None = None


class Waits(NamedTuple):
    """What the run as a whole waits for: whichever comes first."""

    until: datetime | None
    signals: tuple[str, ...]
    seen: int | None


class DurableRun:
    """The record of one run, from its first line to its end or suspension."""

    def __init__(self, function: TaskFunction[Any, Any], journal: Journal, policy: RetryPolicy) -> None:
        self.function = function
        self.journal = journal
        self._policy = policy
        self._records: dict[StepId, str] = {}
        self._loaded: frozenset[StepId] = frozenset()
        self._visited: set[StepId] = set()
        self._waits: list[Wait] = []
        self._clock = (datetime.now(UTC), time.monotonic())
        self.deadline: datetime | None = None
        """When the task as a whole must be finished."""
        self.skip_time: Callable[[Wait], datetime] | None = None
        """In tests: says at which moment the run goes on instead of being suspended."""
        self.under_way = 0
        """How many branches are in the midst of a step."""
        self.is_suspended = False
        """True once a branch has left the run to wait: no further step begins."""

    @property
    def waits(self) -> Waits:
        moments = [moment for moment in (*(wait.until for wait in self._waits), self.deadline) if moment is not None]
        signals = [wait for wait in self._waits if wait.signal is not None]
        # What the first of them had seen: a signal since then may be for any of them.
        seen = min((wait.seen or 0 for wait in signals), default=0) or None
        names = dict.fromkeys(wait.signal for wait in signals if wait.signal is not None)
        return Waits(min(moments, default=None), tuple(names), seen)

    def now(self) -> datetime:
        """By the database's clock."""
        then, since = self._clock
        return then + timedelta(seconds=time.monotonic() - since)

    # ---- operations ----

    def begin(self) -> Steps[None]:
        """Read what is on record. Raises Reject once the deadline has passed."""
        loaded: Loading = yield Load()
        self._clock = (loaded.now, time.monotonic())
        self._records = dict(loaded.records)
        self._loaded = frozenset(id_ for id_ in loaded.records if id_.kind is not StepKind.PATCH)
        if (seconds := self.function.deadline_seconds) is not None:
            id_ = StepId(StepKind.DEADLINE, "")
            self._visited.add(id_)
            self.deadline = _moment((yield from self._recorded(id_, seconds=seconds)))
            self._refuse_past_deadline()

    def step(
        self,
        name: str,
        call: CallFunction,
        *,
        key: str | int | None,
        retries: int,
        transactional: bool,
    ) -> Steps[Any]:
        id_ = self._enter(StepKind.STEP, name, key)
        codec = _codec(call.function)
        text = self._records.get(id_)
        if text is None:
            self._check_room(id_)
            self.under_way += 1
            try:
                text = yield from self._tried(id_, call, codec, retries, transactional=transactional)
            finally:
                self.under_way -= 1
            self._records[id_] = text
        try:
            return codec.from_json(json.loads(text)["value"])
        except ValueError as e:
            raise TaskLibError(
                f"the recorded result of step {id_.name!r} of {self.function.name} doesn't fit the type that its "
                f"function declares: {e}. Perhaps it was recorded by another version: give the changed step a new name."
            ) from None

    def sleep(self, duration: float | timedelta | datetime, *, name: str, key: str | int | None) -> Steps[None]:
        id_ = self._enter(StepKind.SLEEP, name, key)
        if isinstance(duration, datetime):
            require_aware("the end of a sleep", duration)
            until = _moment((yield from self._recorded(id_, json.dumps({"value": duration.isoformat()}))))
        else:
            until = _moment((yield from self._recorded(id_, seconds=_seconds(duration))))
        while until > self.now():
            yield from self._wait(Wait(until))

    def wait_for_signal(self, signal: str, *, timeout: float | timedelta | None, key: str | int | None) -> Steps[Any]:
        if signal.startswith(APPROVAL):
            raise InvalidOption(f"signals whose names begin with {APPROVAL!r} are answers: use wait_for_approval().")
        id_ = self._enter(StepKind.SIGNAL, signal, key)
        return (yield from self._signalled(id_, signal, (yield from self._timer(id_, timeout))))

    def wait_for_approval(
        self, question: Question[F], *, timeout: float | timedelta | None, key: str | int | None
    ) -> Steps[Approval[F]]:
        """Ask until there is an answer that fits."""
        id_ = self._enter(StepKind.APPROVAL, question.name, key)
        until = yield from self._timer(StepId(StepKind.SIGNAL, f"{APPROVAL}{id_.name}"), timeout)
        asked, refused = id_, None
        for number in itertools.count(2):
            yield from self._recorded(asked, question.record(until, refused))
            signal = StepId(StepKind.SIGNAL, f"{APPROVAL}{asked.name}")
            self._visited.add(signal)
            payload = yield from self._signalled(signal, signal.name, until, asked.name)
            try:
                return question.answered(payload)
            except ValueError as e:
                refused = str(e)[:MAX_REFUSAL]
            asked = StepId(StepKind.APPROVAL, f"{id_.name}#{number}")
            self._visited.add(asked)
        raise AssertionError("unreachable")

    def _timer(self, id_: StepId, timeout: float | timedelta | None) -> Steps[datetime | None]:
        """Until when a signal is waited for."""
        if timeout is None:
            return None
        timer = StepId(StepKind.TIMER, id_.name)
        self._visited.add(timer)
        return _moment((yield from self._recorded(timer, seconds=_seconds(timeout))))

    def _signalled(self, id_: StepId, signal: str, until: datetime | None, approval: str | None = None) -> Steps[Any]:
        """The payload of the signal that is recorded under this id."""
        text = self._records.get(id_)
        if text is None:
            self._check_room(id_)
            while text is None:
                expired = until is not None and until <= self.now()
                found: FoundSignal = yield Consume(signal, id_.name, expired, approval)
                text = found.result
                if text is None:
                    yield from self._wait(Wait(until, signal, found.seen))
            self._records[id_] = text
        stored = json.loads(text)
        if "timed_out" in stored:
            what = f"signal {signal!r}" if approval is None else f"answer to the approval {approval!r}"
            raise TimeoutError(f"no {what} came in time")
        return stored["value"]

    def gather(self, children: ChildFlow, *, name: str, key: str | int | None) -> Steps[str]:
        """Submit a flow once, and wait until all its tasks have ended; what they returned, as JSON text."""
        id_ = self._enter(StepKind.GATHER, name, key)
        submitted = StepId(StepKind.CHILDREN, id_.name)
        self._visited.add(submitted)
        if (text := self._records.get(id_)) is not None:
            return text
        self._check_room(id_)
        if (record := self._records.get(submitted)) is None:
            self.under_way += 1
            try:
                record = yield SubmitChildren(submitted, children)
            finally:
                self.under_way -= 1
            self._records[submitted] = record
        while True:
            found: FoundChildren = yield LookAtChildren(record)
            if found.ends is None:
                yield from self._wait(Wait(None, CHILDREN, found.seen))
            elif children.is_covered(found.ends):
                break
            else:  # one is being replayed; the flow is about to be unfinished again
                yield PauseBeforeRetry(_REPLAY_PAUSE)
        return (yield from self._recorded(id_, children.outcome(id_.name, found.ends)))

    def patched(self, name: str) -> Steps[bool]:
        """Whether this run is on the new branch: unless it had got further on the old one."""
        id_ = self._enter(StepKind.PATCH, name, None, repeatable=True)
        is_new = self._loaded <= self._visited
        return bool(json.loads((yield from self._recorded(id_, json.dumps({"value": is_new}))))["value"])

    def continue_as_new(self, arguments: Mapping[str, Any]) -> NoReturn:
        if self.under_way:
            raise InvalidOption(
                "continue_as_new() was called while a step was under way in another branch. Await it first."
            )
        raise ContinueAsNew(self.function.arguments.to_json(arguments))

    # ---- parts ----

    def _enter(self, kind: StepKind, name: str, key: str | int | None, *, repeatable: bool = False) -> StepId:
        if self.is_suspended:
            raise Suspend
        self._refuse_past_deadline()
        full = name if key is None else f"{name}[{key}]"
        if not isinstance(name, str) or not is_name(full):
            raise InvalidOption(
                f"a step's name, with its key, is a string of 1 to {MAX_NAME_BYTES} bytes, not {full!r}."
            )
        id_ = StepId(kind, full)
        if id_ in self._visited and not repeatable:
            given = "key=" if kind is not StepKind.SLEEP else "name= or key="
            raise InvalidOption(
                f"the {kind.value} {full!r} occurs twice in one run of {self.function.name}, so its record would be "
                f"taken for that of the other. Tell them apart by {given}, such as the number of the turn in a loop."
            )
        self._visited.add(id_)
        return id_

    def _recorded(self, id_: StepId, result: str | None = None, seconds: float | None = None) -> Steps[str]:
        if (text := self._records.get(id_)) is None:
            self._check_room(id_)
            recorded: str = yield Record(id_, result, seconds)
            text = self._records[id_] = recorded
        return text

    def _tried(
        self, id_: StepId, call: CallFunction, codec: ResultCodec, retries: int, *, transactional: bool
    ) -> Steps[str]:
        written = functools.partial(_written, id_.name, codec)
        failures = 0
        while True:
            try:
                if transactional:
                    text: str = yield CallInTransaction(id_, call, written)
                    return text
                value = yield call
                break
            except Exception as e:
                if failures >= retries or isinstance(e, (Reject, *self.function.non_retriable)):
                    raise
                asked = e.seconds if isinstance(e, Retry) else None
                delay = self._policy.delay(failures) if asked is None else asked
                failures += 1
            yield PauseBeforeRetry(delay)
        text = yield Record(id_, written(value))
        return text

    def _wait(self, wait: Wait) -> Steps[None]:
        """Suspend the run, once the other branches have ended their steps. In tests, skip the time instead."""
        if self.skip_time is not None:
            self._clock = (self.skip_time(wait), time.monotonic())
            return
        self._waits.append(wait)
        yield OthersIdle()
        self.is_suspended = True
        raise Suspend

    def _check_room(self, id_: StepId) -> None:
        if len(self._records) >= MAX_STEPS:
            raise Reject(
                f"{self.function.name} has {MAX_STEPS:,} steps on record, so {id_.name!r} is refused. Split the work "
                "into several tasks, or start over with continue_as_new() from time to time."
            )

    def _refuse_past_deadline(self) -> None:
        if self.deadline is not None and self.deadline <= self.now():
            raise Reject(self.past_deadline)

    @property
    def past_deadline(self) -> str:
        return f"the task was not finished within its deadline of {self.function.deadline_seconds:.12g} s"


current_run: ContextVar[DurableRun] = ContextVar("tasklib_durable_run")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(json.loads(text)["value"])


def _seconds(duration: float | timedelta) -> float:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise InvalidOption(
            f"a duration is a number of seconds from 0 to {MAX_DELAY_SECONDS:,} or a timedelta, not {duration!r}."
        )
    return float(seconds)


def _written(name: str, codec: ResultCodec, value: Any) -> str:
    try:
        text = f'{{"value":{codec.to_json(value)}}}'
    except UnstorableValue as e:
        place = f" at {e.path}" if e.path else ""
        raise ResultNotStorable(
            f"the result of step {name!r} ({type(value).__name__}) can't be stored{place}: {e.reason}. "
            "Return what Pydantic can turn into JSON and, if the function declares a type, read back as that."
        ) from None
    if (size := len(text.encode())) > MAX_STEP_BYTES:
        raise ResultNotStorable(
            f"the result of step {name!r} takes {size:,} bytes as JSON; the limit is {MAX_STEP_BYTES:,}. "
            "Store large data elsewhere and return a reference to it."
        )
    return text


def _codec(function: Callable[..., Any]) -> ResultCodec:
    """How the results of a step's function are written and read."""
    if isinstance(function, TaskFunction):
        return function.results
    while isinstance(function, functools.partial):
        function = function.func
    return _codec_of(function) if getattr(function, "__name__", "<lambda>") != "<lambda>" else _UNTYPED


@functools.lru_cache(maxsize=1000)
def _codec_of(function: Callable[..., Any]) -> ResultCodec:
    try:
        return ResultCodec(function)
    except (NameError, TypeError):  # a type that is not known at run time, or a callable without any
        return _UNTYPED


_UNTYPED = ResultCodec(lambda: None)
