"""Shapes for arguments, and a pattern for a whole message."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel


class Address(BaseModel):
    city: str
    height: float = 0.0
    extra: Any = None


@dataclass
class Point:
    x: float


def saying(text: str) -> str:
    """A pattern that matches exactly this text."""
    return f"^{re.escape(text)}$"


def nested(levels: int, kind: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = kind(value)
    return value
