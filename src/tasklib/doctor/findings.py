"""A finding: what was seen, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad it is, from fine to urgent."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing has to be done."""
    WARNING = "warning"
    """It costs speed or safety, or soon will."""
    CRITICAL = "critical"
    """Tasks don't run, or can be lost."""

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of an check, or one of several."""

    severity: Severity
    code: str
    """A word for programs, which stays the same."""
    seen: str
    """What was seen, with its figures."""
    why: str = ""
    """Why it matters."""
    action: str = ""
    """What to do about it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The figures, ready for JSON."""

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "severity": self.severity.value}


def ok(code: str, seen: str, **details: Any) -> Finding:
    return Finding(Severity.OK, code, seen, details=details)


def note(code: str, seen: str, why: str = "", action: str = "", **details: Any) -> Finding:
    return Finding(Severity.NOTE, code, seen, why, action, details)


def warning(code: str, seen: str, why: str, action: str, **details: Any) -> Finding:
    return Finding(Severity.WARNING, code, seen, why, action, details)


def critical(code: str, seen: str, why: str, action: str, **details: Any) -> Finding:
    return Finding(Severity.CRITICAL, code, seen, why, action, details)


def worst(findings: Iterable[Finding]) -> Severity:
    """The severity of the worst of them."""
    return max((f.severity for f in findings), key=lambda s: s.rank, default=Severity.OK)
