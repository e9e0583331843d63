"""Answers of two clients in a form that can be compared: failures as values, without times and ids."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from tasklib import Task
from tasklib.errors import TaskLibError

UNKNOWN = UUID("0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f")


async def failure(call: Awaitable[Any]) -> tuple[Any, ...]:
    """What a call raises: its class, words, notes and facts."""
    try:
        answer = await call
    except TaskLibError as e:
        facts = {name: value for name, value in vars(e).items() if not name.startswith("_")}
        return type(e).__name__, str(e), facts
    raise AssertionError(f"nothing was raised, and this returned: {answer!r}")


def timeless(sentence: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d [\d:]+[+]\d{4}", "a time", sentence)


class Comparable:
    """Answers without what differs from run to run: ids by the order of their appearance, times as such."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        match value:
            case UUID():
                return self._id(str(value))
            case Enum():
                return value.value
            case str():
                timeless = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?\+00:00", "a time", value)
                return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", lambda m: self._id(m[0]), timeless)
            case datetime():
                return "a time"
            case Task():
                return self.of(value.model_dump())
            case dict():
                return {key: self.of(v) for key, v in sorted(value.items())}
            case list() | tuple():
                return [self.of(v) for v in value]
            case _ if is_dataclass(value) and not isinstance(value, type):
                return self.of(asdict(value))
        return value

    def _id(self, text: str) -> str:
        return text if text == str(UNKNOWN) else self._ids.setdefault(text, f"id {len(self._ids)}")
