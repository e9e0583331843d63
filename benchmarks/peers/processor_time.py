"""CPU seconds of processes and their descendants, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(*roots: int) -> float:
    """CPU seconds of these processes and all living below them, with what they have reaped."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _parent_and_seconds(int(name))):
            parent, used[int(name)] = found
            children.setdefault(parent, []).append(int(name))
    total, waiting = 0.0, list(roots)
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting.extend(children.get(pid, ()))
    return total


def _parent_and_seconds(pid: int) -> tuple[int, float] | None:
    try:
        # The command may contain anything, so count from the parenthesis behind it: state, parent, ...
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), sum(int(ticks) for ticks in fields[11:15]) / _TICKS
