"""Times as people write and read them on a command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import typer

from tasklib.formatting import length
from tasklib.observe.formatting import duration


def past_moment(option: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """`2h` means two hours ago; ISO 8601 without a time zone means this machine's."""
    if text is None:
        return None
    try:
        if (back := length(text)) is not None:
            return (now or datetime.now(UTC)) - back
    except OverflowError:
        raise typer.BadParameter(f"{text} is too long ago.", param_hint=option) from None
    return _iso(option, text, "such as 2025-06-30T09:00, or a time ago such as 30s, 15m, 2h or 7d").astimezone()


def future_moment(option: str, text: str | None) -> datetime | None:
    """ISO 8601 with a time zone: a task must not run at another hour because it was submitted elsewhere."""
    if text is None:
        return None
    moment = _iso(option, text, "such as 2025-06-30T09:00+02:00")
    if moment.tzinfo is None:
        raise typer.BadParameter(
            f"{text} has no time zone. Write {moment.isoformat()}Z for UTC, "
            f"or {moment.astimezone().isoformat()} for this machine's.",
            param_hint=option,
        )
    return moment


def span(option: str, text: str | None) -> timedelta | None:
    """A length of time: `90d`, `12h`, `30m`."""
    if text is None:
        return None
    try:
        found = length(text)
    except OverflowError:
        raise typer.BadParameter(f"{text} is too long.", param_hint=option) from None
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a length of time such as 30m, 12h or 90d.", param_hint=option)
    return found


def _iso(option: str, text: str, examples: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; write ISO 8601 {examples}.", param_hint=option) from None


def relative(moment: datetime, now: datetime) -> str:
    """`in 5.0 s`, `3 min ago`."""
    seconds = (moment - now).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else f"{duration(-seconds)} ago"


def local(moment: datetime) -> str:
    """A moment in this machine's time zone, to the millisecond."""
    return moment.astimezone().isoformat(sep=" ", timespec="milliseconds")
