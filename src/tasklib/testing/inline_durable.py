"""Durable functions in inline mode: one run from the first line to the last. Time is skipped, signals are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tasklib.errors import TaskLibError
from tasklib.steps import APPROVAL, StepId
from tasklib.tasks.durable_driving import called
from tasklib.tasks.durable_effects import (
    CallFunction,
    CallInTransaction,
    Consume,
    Effect,
    FoundChildren,
    FoundSignal,
    Load,
    Loading,
    LookAtChildren,
    Record,
    SubmitChildren,
)
from tasklib.tasks.durable_run import DurableRun, Wait, current_run
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.gathering import ChildFlow
from tasklib.tasks.payload import dump
from tasklib.tasks.retry import RetryPolicy


def answers_of(approvals: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Signals that answer approvals: True, False, or the filled-in form."""
    return {
        f"{APPROVAL}{name}": [
            {"approved": answer is not False, "by": "test", "form": None if isinstance(answer, bool) else answer}
            for answer in answers
        ]
        for name, answers in approvals.items()
    }


class RunsChildren(Protocol):
    """Runs the flow of a `gather` to its end; how its tasks ended, for each part."""

    def run(self, children: ChildFlow) -> list[list[Any]]: ...
    async def run_async(self, children: ChildFlow) -> list[list[Any]]: ...


class InlineJournal:
    """Keeps the records of one run in memory."""

    def __init__(
        self, name: str, signals: Mapping[str, Sequence[Any]], connection: Any, children: RunsChildren
    ) -> None:
        self._name = name
        self._children = children
        self._ends: dict[str, list[list[Any]]] = {}
        self._signals = {signal: list(payloads) for signal, payloads in signals.items()}
        self._connection = connection
        self._records: dict[StepId, str] = {}
        self.now = datetime.now(UTC)

    async def perform(self, effect: Effect) -> Any:
        if isinstance(effect, CallInTransaction):
            return self._recorded(effect.id, effect.written(await called(self._with_connection(effect))))
        if isinstance(effect, SubmitChildren):
            return self._gathered(effect, await self._children.run_async(effect.children))
        return self.perform_blocking(effect)

    def perform_blocking(self, effect: Effect) -> Any:
        match effect:
            case Load():
                self._records.clear()  # a run that continues as new begins with nothing on record
                return Loading({}, self.now)
            case Record(id_, result, seconds):
                moment = None if seconds is None else self.now + timedelta(seconds=seconds)
                return self._recorded(id_, result or json.dumps({"value": moment and moment.isoformat()}))
            case Consume(signal, _, expired):
                if self._signals.get(signal):
                    return FoundSignal(f'{{"value":{dump(self._signals[signal].pop(0))}}}', None)
                return FoundSignal('{"timed_out":true}' if expired else None, None)
            case SubmitChildren():
                return self._gathered(effect, self._children.run(effect.children))
            case LookAtChildren(record):
                return FoundChildren(self._ends[record], None)
            case CallInTransaction(id_, _, written):
                call = self._with_connection(effect)
                return self._recorded(id_, written(call.function(*call.args, **call.kwargs)))
            case _:
                raise AssertionError(f"{effect} is no effect of a journal")

    def skip_time(self, wait: Wait) -> datetime:
        """Go on at the moment that is waited for."""
        if wait.until is None and wait.signal is not None and wait.signal.startswith(APPROVAL):
            name = wait.signal.removeprefix(APPROVAL)
            raise TaskLibError(
                f"{self._name} waits for the approval {name!r}, which inline mode was not given with values that fit. "
                f"Give it: inline(approvals={{{name!r}: [True]}}), or the filled-in form instead of True."
            )
        if wait.until is None:
            raise TaskLibError(
                f"{self._name} waits for the signal {wait.signal!r}, which inline mode was not given. Give it: "
                f"inline(signals={{{wait.signal!r}: [...]}}), with a payload for each time that it is waited for."
            )
        self.now = max(self.now, wait.until)
        return self.now

    def _gathered(self, effect: SubmitChildren, ends: list[list[Any]]) -> str:
        record = self._recorded(effect.id, json.dumps({"value": effect.id.name}))
        self._ends[record] = ends
        return record

    def _recorded(self, id_: StepId, text: str) -> str:
        return self._records.setdefault(id_, text)

    def _with_connection(self, effect: CallInTransaction) -> CallFunction:
        if self._connection is None:
            raise TaskLibError(
                f"step {effect.id.name!r} of {self._name} is transactional, and inline mode has no database to give it "
                "a connection from. Give one: inline(connection=...), or test it with drain()."
            )
        call = effect.call
        return CallFunction(call.function, (self._connection, *call.args), call.kwargs)


def inline_run(function: TaskFunction[Any, Any], journal: InlineJournal) -> DurableRun:
    """Make this the run of the durable function that is called next."""
    run = DurableRun(function, journal, RetryPolicy(base_seconds=0))
    run.skip_time = journal.skip_time
    current_run.set(run)
    return run
