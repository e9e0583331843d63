"""Charts as values: a template draws them as SVG. One unit wide per step, a hundred high, stretched to fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tasklib.server.dashboard.filters import compact, seconds
from tasklib.store.fleet import Deploy

Values = Mapping[str, float | None]
HEIGHT = 100.0
_GAP = 0.12
_LENGTHS = (20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800, 345_600)
_THIN = 0.8
"""The least height of a bar that is not nothing: one failure among thousands stays visible."""


@dataclass(frozen=True, slots=True)
class ChartData:
    """What a chart shows, and its table and its files have."""

    title: str
    of: str
    is_bars: bool
    is_time: bool
    """True for seconds, False for numbers."""
    series: Mapping[str, str]
    """By key, its name for people; stacked in this order."""
    steps: Sequence[tuple[datetime, Values]]
    """None where nothing is known."""
    step_seconds: int
    before: Sequence[float | None] = ()
    """The same of the period before: the sum of bars, or the line `before_title`. Empty if it isn't compared."""
    before_title: str = ""
    note: str = ""
    search: Callable[[str | None, datetime, datetime], str] | None = field(default=None, compare=False)
    """The page with the tasks of a series (None: of all) between two times."""

    def say(self, value: float | None) -> str:
        return seconds(value) if self.is_time else compact(value)

    def rows(self) -> list[tuple[datetime, list[float | None], float | None]]:
        """For a table: each step, its values in the order of the series, and the period before."""
        return [
            (at, [values.get(key) for key in self.series], self.before[n] if n < len(self.before) else None)
            for n, (at, values) in enumerate(self.steps)
        ]

    @property
    def last(self) -> datetime:
        return self.steps[-1][0] + timedelta(seconds=self.step_seconds)


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a column."""

    series: str
    x: float
    y: float
    width: float
    height: float
    search: str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One step of time: its bars, if it has any, and what it says when it is pointed at."""

    x: int
    start: datetime
    end: datetime
    tip: str
    search: str | None
    bars: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A deploy."""

    x: float
    at: datetime


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars or lines over time."""

    data: ChartData
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, str], ...]
    """By series, the path."""
    before: str
    """The path of the period before."""
    y_labels: tuple[str, ...]
    """From the top down."""
    x_labels: tuple[datetime, ...]
    marks: tuple[Mark, ...]
    summary: str
    """The chart in a sentence, for those who don't see it."""
    address: str = ""
    """The page of this chart alone, with its table."""

    @property
    def width(self) -> int:
        return max(1, len(self.columns))

    @property
    def is_empty(self) -> bool:
        return not any(path for _, path in self.lines) and not any(column.bars for column in self.columns)

    @property
    def is_by_day(self) -> bool:
        """True if its labels are days, not times of one."""
        return len(self.columns) * self.data.step_seconds > 2 * 86400


def draw(data: ChartData, deploys: list[Deploy], address: str = "") -> Chart:
    """Stacked columns, the first series at the bottom; or one line for each series, broken where nothing is known."""
    heights = [
        sum(v or 0 for v in values.values()) if data.is_bars else max([v for v in values.values() if v], default=0)
        for _, values in data.steps
    ]
    highest = max([*heights, *(v for v in data.before if v)], default=0)
    top = nice_seconds(highest) if data.is_time else nice(highest)
    columns = tuple(_column(data, n, top) for n in range(len(data.steps)))
    lines = () if data.is_bars else tuple((key, _path([v.get(key) for _, v in data.steps], top)) for key in data.series)
    return Chart(
        data,
        columns,
        lines,
        _path(data.before, top),
        (data.say(top), data.say(top / 2), "0"),
        _x(data.steps),
        _marks(data, deploys),
        _summary(data),
        address,
    )


def nice(value: float) -> float:
    """The next round figure: 1, 2 or 5 with zeros."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= value * 0.999999)


def nice_seconds(value: float) -> float:
    """The next length of time that people count in, whose half is one as well."""
    return next((length for length in _LENGTHS if length >= value), nice(value)) if value > 10 else nice(value)


def _column(data: ChartData, n: int, top: float) -> Column:
    start, values = data.steps[n]
    end = start + timedelta(seconds=data.step_seconds)
    pieces, level = [], HEIGHT
    for name in data.series if data.is_bars else ():
        if value := values.get(name):
            height = max(_THIN, HEIGHT * value / top)
            level -= height
            search = data.search(name, start, end) if data.search else None
            pieces.append(Segment(name, n + _GAP / 2, round(max(0.0, level), 2), 1 - _GAP, round(height, 2), search))
    return Column(n, start, end, _tip(data, n), data.search(None, start, end) if data.search else None, tuple(pieces))


def _tip(data: ChartData, n: int) -> str:
    _, values = data.steps[n]
    said = [f"{title}  {data.say(v)}" for key, title in data.series.items() if (v := values.get(key)) is not None]
    if n < len(data.before) and data.before[n] is not None:
        said.append(f"{data.before_title}  {data.say(data.before[n])}")
    return "\n".join(said or ["not known"])


def _path(values: Sequence[float | None], top: float) -> str:
    parts, is_drawing = [], False
    for x, value in enumerate(values):
        if value is None:
            is_drawing = False
            continue
        y = round(HEIGHT - HEIGHT * value / top, 2)
        # A point with nothing on either side is a short dash, or it would not be seen.
        parts.append(f"L{x + 0.5} {y}" if is_drawing else f"M{x + 0.2} {y}L{x + 0.5} {y}")
        is_drawing = True
    return "".join(parts)


def _x(steps: Sequence[tuple[datetime, object]], most: int = 5) -> tuple[datetime, ...]:
    if not steps:
        return ()
    chosen = sorted({round(i * (len(steps) - 1) / (most - 1)) for i in range(most)})
    return tuple(steps[i][0] for i in chosen)


def _marks(data: ChartData, deploys: list[Deploy]) -> tuple[Mark, ...]:
    if not data.steps:
        return ()
    first = data.steps[0][0]
    inside = [d.seen_at for d in deploys if first <= d.seen_at < data.last]
    return tuple(Mark(round((at - first).total_seconds() / data.step_seconds, 3), at) for at in inside)


def _summary(data: ChartData) -> str:
    said = []
    for key, title in data.series.items():
        known = [v for _, values in data.steps if (v := values.get(key)) is not None]
        if known and data.is_bars and data.of not in ("waiting",):
            said.append(f"{title} {data.say(sum(known))} in all")
        elif known:
            said.append(f"{title} {data.say(known[-1])} at the end, at most {data.say(max(known))}")
    return f"{data.title}: {'; '.join(said) or 'no data'}."
