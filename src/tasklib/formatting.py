"""How times, ids, counts and errors are said to a person, in one place; and how text from elsewhere is shown."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from typing import Any
from uuid import UUID

_SHORT_ID = 8
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = {"w": 7 * _DAY, "d": _DAY, "h": _HOUR, "m": _MINUTE, "s": 1}
MARKS = {"completed": "✓", "dead_letter": "✗", "failed": "!", "cancelled": "/", "running": "▸", "pending": "…"}
"""States in little room, told apart without colours."""
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def duration(seconds: float) -> str:
    """`12 ms`, `5.0 s`, `3 min 20 s`, `2 h 5 min`, `4 d 1 h`."""
    seconds = max(0.0, seconds)
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    if seconds < 0.9995:
        return f"{round(seconds * 1000, -1):.0f} ms"
    if seconds < _MINUTE - 0.05:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return _two(whole, _MINUTE, "min", 1, "s")
    if whole < _DAY:
        return _two(whole, _HOUR, "h", _MINUTE, "min")
    return _two(whole, _DAY, "d", _HOUR, "h")


def length(text: str) -> timedelta | None:
    """`30s`, `15m`, `12h`, `7d`, `2w` as people write them; None if it is none. OverflowError if it is too long."""
    match = _LENGTH.fullmatch(text.strip().lower())
    return None if match is None else timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def length_text(span: timedelta) -> str:
    """A length of time as `length` reads it, in the largest unit that divides it: `90s`, `15m`, `7d`."""
    seconds = span.total_seconds()
    units = ((unit, size) for unit, size in _UNITS.items() if unit != "w")
    unit, size = next(((unit, size) for unit, size in units if seconds % size == 0), ("s", 1))
    return f"{seconds / size:g}{unit}" if seconds % size == 0 else f"{seconds:f}".rstrip("0") + "s"


def short_id(task_id: str | UUID) -> str:
    """The end of an id. Ids begin with the time, so neighbours differ only there."""
    return str(task_id)[-_SHORT_ID:]


def last_line(error: str | None, limit: int = 200) -> str:
    """The line of a traceback that says what went wrong."""
    lines = (error or "").strip().splitlines()
    text = printable(lines[-1].strip()) if lines else ""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str, *, lines: bool = False) -> str:
    """Text from elsewhere, made harmless: what a terminal would obey, or a reader not see, is shown as an escape.

    That is every control character (C1 and line breaks too), every mark of direction, every separator but the space,
    and half surrogate pairs. `lines`: text of several lines, such as a traceback, keeps its line breaks and tabs.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON for a terminal, a file or a program: what `printable` escapes is escaped as JSON does it."""
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def printable_json(text: str) -> str:
    """JSON with all unprintable characters escaped; it parses to the same value."""
    if text.isprintable():
        return text
    # Line breaks are between its parts: JSON has them escaped in strings.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def shell_word(text: str) -> str:
    """Text as one word of a command that can be copied into a shell."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = (c if c.isprintable() and c not in "\\'" else _shell_escape(c) for c in text)
    return f"$'{''.join(escaped)}'"


def shell_option(option: str, value: str) -> str:
    """`--queue mail`, or `--queue=-x`: a value must not be taken for another option."""
    return f"{option}{'=' if value.startswith('-') else ' '}{shell_word(value)}"


def shell_argument(text: str) -> str:
    """The same for what is no option's value: `web-1`, or `-- -x`."""
    return f"-- {shell_word(text)}" if text.startswith("-") else shell_word(text)


def _shell_escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 task`, `1,234 tasks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    big, rest = divmod(seconds, large)
    little = rest // small
    return f"{big} {large_name} {little} {small_name}" if little else f"{big} {large_name}"
