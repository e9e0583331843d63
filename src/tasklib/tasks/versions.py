"""Versions of the arguments of a task function, so that a rolling deploy may change its signature.

    @task(version=2)
    def send(recipients: list[str]) -> None: ...

    @send.upcast(1)
    def _(old: dict) -> dict:
        return {"recipients": [old["to"]]}

A row of version 2 requires the capability `send@2`. A worker offers those of all versions that its code reads, so
workers with older code never get newer arguments, and the order of a deploy doesn't matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tasklib.errors import InvalidTaskFunction, TaskExecutionError
from tasklib.tasks import secrets
from tasklib.tasks.options import MAX_VERSION, is_name

if TYPE_CHECKING:
    from tasklib.tasks.payload import Arguments

Upcast: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Makes arguments of the next version, as JSON has them, of those of one version."""


class Versions:
    """The version that one function writes, and how it reads the older ones."""

    def __init__(self, name: str, current: int) -> None:
        if isinstance(current, bool) or not isinstance(current, int) or not 1 <= current <= MAX_VERSION:
            raise InvalidTaskFunction(
                f"{name}: version must be a whole number from 1 to {MAX_VERSION:,}, not {current!r}."
            )
        if not is_name(capability(name, current)):
            raise InvalidTaskFunction(f"{name}: the name of a task with versions must be a few bytes shorter.")
        self.name = name
        self.current = current
        self._upcasts: dict[int, Upcast] = {}

    def add(self, version: int, upcast: Upcast) -> None:
        """Read arguments of this version through this function, which makes those of the next version."""
        if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < self.current:
            raise InvalidTaskFunction(
                f"{self.name}: upcast(...) takes a version before the current one, {self.current}, not {version!r}."
            )
        if not callable(upcast):
            raise InvalidTaskFunction(f"{self.name}: upcast({version}) decorates a function, not {upcast!r}.")
        if version in self._upcasts:
            raise InvalidTaskFunction(f"{self.name} has two upcasts from version {version}.")
        self._upcasts[version] = upcast

    @property
    def readable(self) -> range:
        """The versions that this code reads. InvalidTaskFunction if a link of the chain is missing."""
        first = min(self._upcasts, default=self.current)
        if missing := [v for v in range(first, self.current) if v not in self._upcasts]:
            raise InvalidTaskFunction(
                f"{self.name} has version {self.current} and an upcast from {first}, but none from "
                f"{', '.join(map(str, missing))}: an upcast leads to the next version, so the chain is broken."
            )
        return range(first, self.current + 1)

    def capabilities(self, name: str) -> list[str]:
        """What a worker offers that serves the function under this name."""
        return [capability(name, version) for version in self.readable]

    def version_of(self, stored: int | None) -> int:
        """The version of a row: one without any is of the first, or else as the function declares it now."""
        if stored is not None:
            return stored
        return 1 if 1 in self._upcasts else self.current

    def read(self, arguments: Arguments, text: str, stored: int | None) -> dict[str, Any]:
        """The typed arguments of a row with this version."""
        version = self.version_of(stored)
        return arguments.from_json(text if version == self.current else self.upcast(text, version))

    def upcast(self, text: str, version: int) -> str:
        """Stored arguments of an older version as the current one has them."""
        if version not in self.readable:
            raise self._refusal(
                f"are of version {version}, and this code reads {_span(self.readable)}. Run it on a worker with newer "
                "code"
                if version > self.current
                else f"are of version {version}, from which there is no upcast"
            )
        values = json.loads(secrets.without_marks(text))
        for step in range(version, self.current):
            try:
                values = self._upcasts[step](values)
            except Exception as e:
                raise self._refusal(
                    f"could not be read: the upcast from version {step} raised {type(e).__name__}: {e}"
                ) from e
            if not isinstance(values, Mapping):
                raise self._refusal(
                    f"could not be read: the upcast from version {step} returned {type(values).__name__}, not a dict"
                )
            values = dict(values)
        return json.dumps(values, ensure_ascii=False)

    def _refusal(self, what: str) -> TaskExecutionError:
        return TaskExecutionError(f"the arguments of {self.name} {what}.", task=self.name)


def capability(name: str, version: int) -> str:
    """What a row with arguments of this version requires."""
    return f"{name}@{version}"


def _span(versions: range) -> str:
    return f"version {versions[0]}" if len(versions) == 1 else f"versions {versions[0]} to {versions[-1]}"
