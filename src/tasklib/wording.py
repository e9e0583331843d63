"""How times, ids, counts and errors are said to a person, in one place."""

from __future__ import annotations

from uuid import UUID

_SHORT_ID = 8
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


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


def short_id(task_id: str | UUID) -> str:
    """The end of an id. Ids begin with the time, so neighbours differ only there."""
    return str(task_id)[-_SHORT_ID:]


def last_line(error: str | None, limit: int = 200) -> str:
    """The line of a traceback that says what went wrong."""
    lines = (error or "").strip().splitlines()
    text = printable(lines[-1].strip()) if lines else ""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """Text from elsewhere, made harmless to a terminal: control characters are shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 task`, `1,234 tasks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    big, rest = divmod(seconds, large)
    little = rest // small
    return f"{big} {large_name} {little} {small_name}" if little else f"{big} {large_name}"
