"""How values are said on a page: filters for the templates, on the words of `tasklib.formatting`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tasklib.formatting import duration, json_text, last_line, printable
from tasklib.tasks.secrets import SECRET_MARK

NONE = "\N{EN DASH}"
"""What stands where there is nothing to say."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def ago(moment: datetime, now: datetime | None = None) -> str:
    """`12 s ago`, `in 3 min`, `now`: the same words as in dashboard.js, which lets them count."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            text = f"{int(abs(seconds) // size)} {unit}"
            return f"{text} ago" if seconds >= 0 else f"in {text}"
    return "now"


def exact(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(moment: datetime, by_day: bool = False, day: bool = False) -> str:
    """`14:02`, `4 May`, or both, in UTC: charts.js shows the reader's own time."""
    utc = moment.astimezone(UTC)
    date = f"{utc.day} {utc:%b}"
    return date if by_day else f"{date} {utc:%H:%M}" if day else f"{utc:%H:%M}"


def number(value: float | None, digits: int = 0) -> str:
    """`12,345`; a dash where there is none."""
    return NONE if value is None else f"{value:,.{digits}f}"


def compact(value: float | None) -> str:
    """`950`, `12.3k`, `1.2M`: for axes and narrow columns."""
    if value is None:
        return NONE
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 10 else f"{value:.2g}"


def percent(part: float | None, whole: float = 1.0) -> str:
    """`0.4%`, `12%`; a dash if there is nothing to be a part of."""
    if part is None or not whole:
        return NONE
    share = 100 * part / whole
    return f"{share:.0f}%" if share >= 10 or share == 0 else f"{share:.1f}%" if share >= 0.1 else "<0.1%"


def seconds(value: float | None) -> str:
    return NONE if value is None else duration(value)


def shortened(text: object, most: int = 200) -> str:
    """Text from elsewhere: control characters shown, not obeyed, and never a page long."""
    said = printable(str(text), lines=True)
    return said if len(said) <= most else said[: most - 1] + "…"


def sentence(text: object) -> str:
    """An error's text, as a sentence of its own."""
    said = printable(str(text))
    return said[:1].upper() + said[1:]


def arguments(kwargs: Mapping[str, Any]) -> str:
    """`to=ada@example.com, order=7`: arguments on one line of a list."""
    return ", ".join(f"{key}={_plain(value)}" for key, value in kwargs.items())


def _plain(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {SECRET_MARK}:
        value = value[SECRET_MARK]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def pretty(value: Any) -> str:
    """JSON for reading."""
    return json_text(value, indent=2)


FILTERS: dict[str, Callable[..., str]] = {
    "arguments": arguments,
    "ago": ago,
    "exact": exact,
    "clock": clock,
    "number": number,
    "compact": compact,
    "percent": percent,
    "seconds": seconds,
    "shortened": shortened,
    "sentence": sentence,
    "pretty": pretty,
    "last_line": last_line,
}
