"""The guards: the conditions of every statement that changes a task, a worker, the lead or a token."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasklib.sql import fragments, statements

GUARDED = (
    *("complete", "complete_unlocked", "still_held", "fail", "release", "stop", "extend", "progress", "settled"),
    *("begin", "held"),
    *("cancel", "cancellable", "cancel_batch", "replay", "replay_dead_letters", "purge_dead_letters"),
    *("rescue", "fail_overdue", "bury_workers", "leader", "lead", "resign"),
    *("take", "claim_next", "claim_on", "lanes"),
    *("expire_keys", "expire_dead_letters", "retain", "owned", "submit_once"),
    *("worker_heartbeat", "worker_drain", "token_usable", "token_revoke"),
)
INLINED = ("lock_held",)
"""Fragments whose guards are taken out of each statement that includes them, one statement at a time."""
_JOIN = re.compile(r"[\w.]*\bid = ([\w.]*\bid|%\(id\)s.*)")
"""Which row is meant is no guard: without it nothing works at all."""


@dataclass(frozen=True)
class Guard:
    """One condition in one file."""

    file: str
    condition: str
    line: int
    occurrence: int
    """1 for the first time that the file says so."""

    @property
    def name(self) -> str:
        again = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.file}: {' '.join(self.condition.split())}{again}"


def guards() -> list[Guard]:
    """All of them, in the order of the files."""
    return [guard for name in GUARDED for guard in _in(name, source(name))]


def source(name: str) -> str:
    text = path(name).read_text(encoding="utf-8")
    for part in INLINED:
        text = text.replace(f"{{include {part}}}", path(part).read_text(encoding="utf-8").rstrip())
    return text


def path(name: str) -> Path:
    """The file of a statement or fragment."""
    return Path(str({**fragments(), **statements()}[name]))


def without(guard: Guard, text: str) -> str:
    """The statement as if nobody had thought of this condition."""
    lines = text.splitlines(keepends=True)
    lines[guard.line] = lines[guard.line].replace(guard.condition, "true", 1)
    return "".join(lines)


def _in(name: str, text: str) -> Iterator[Guard]:
    seen: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines()):
        code = line.partition("--")[0]
        match = re.match(r"\s*(?:WHERE|AND|WHERE NOT|ON CONFLICT .* WHERE)\s+(.*)", code)
        if not match:
            continue
        for condition in _conjuncts(match[1].rstrip()):
            if condition and not _JOIN.fullmatch(condition) and _balanced(condition) and " AS " not in condition:
                seen[condition] += 1
                yield Guard(name, condition, number, seen[condition])


def _conjuncts(text: str) -> list[str]:
    """Split at each AND that is not inside parentheses or a BETWEEN."""
    parts, depth, begin = [], 0, 0
    for found in re.finditer(r"[()]|\bAND\b", text):
        if found[0] == "(":
            depth += 1
        elif found[0] == ")":
            depth -= 1
        elif depth == 0 and "BETWEEN" not in text[begin : found.start()]:
            parts.append(text[begin : found.start()].strip())
            begin = found.end()
    return [*parts, text[begin:].strip()]


def _balanced(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0
