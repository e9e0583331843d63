"""Charts as values: a template draws them as SVG. One unit wide per step, a hundred high, stretched to fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

Format = Callable[[float], str]
HEIGHT = 100.0
_GAP = 0.12
_THIN = 0.8
"""The least height of a bar that is not nothing: one failure among thousands stays visible."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a column."""

    series: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """One step of time: its bars, if it has any, and what it says when it is pointed at."""

    x: int
    tip: str
    bars: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars or lines over time."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, str], ...]
    """By series, the path."""
    series: tuple[tuple[str, str], ...]
    """By series, its name for people."""
    y_labels: tuple[str, ...]
    """From the top down."""
    x_labels: tuple[str, ...]
    is_empty: bool
    note: str = ""

    @property
    def width(self) -> int:
        return max(1, len(self.columns))


def bars(
    title: str,
    steps: Sequence[tuple[datetime, Mapping[str, float]]],
    series: Mapping[str, str],
    say: Format,
    note: str = "",
) -> Chart:
    """Stacked columns, the first series at the bottom."""
    top = nice(max((sum(values.get(s, 0) for s in series) for _, values in steps), default=0))
    columns = []
    for x, (moment, values) in enumerate(steps):
        pieces, level = [], HEIGHT
        for name in series:
            if value := values.get(name, 0):
                height = max(_THIN, HEIGHT * value / top)
                level -= height
                pieces.append(Segment(name, x + _GAP / 2, round(max(0.0, level), 2), 1 - _GAP, round(height, 2)))
        columns.append(Column(x, _tip(moment, values, series, say), tuple(pieces)))
    empty = not any(column.bars for column in columns)
    return Chart(title, tuple(columns), (), tuple(series.items()), _y(top, say), _x(steps), empty, note)


def lines(
    title: str,
    steps: Sequence[tuple[datetime, Mapping[str, float | None]]],
    series: Mapping[str, str],
    say: Format,
    note: str = "",
) -> Chart:
    """One line per series, broken where nothing is known."""
    top = nice(max((v for _, values in steps for v in values.values() if v is not None), default=0))
    paths = tuple((name, _path([values.get(name) for _, values in steps], top)) for name in series)
    columns = tuple(Column(x, _tip(moment, values, series, say)) for x, (moment, values) in enumerate(steps))
    empty = not any(path for _, path in paths)
    return Chart(title, columns, paths, tuple(series.items()), _y(top, say), _x(steps), empty, note)


def nice(value: float) -> float:
    """The next round figure: 1, 2 or 5 with zeros."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= value * 0.999999)


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


def _tip(moment: datetime, values: Mapping[str, float | None], series: Mapping[str, str], say: Format) -> str:
    said = [f"{title}  {say(value)}" for name, title in series.items() if (value := values.get(name)) is not None]
    return "\n".join([moment.astimezone(UTC).strftime("%H:%M UTC"), *said])


def _y(top: float, say: Format) -> tuple[str, ...]:
    return (say(top), say(top / 2), "0")


def _x(steps: Sequence[tuple[datetime, object]], most: int = 5) -> tuple[str, ...]:
    if not steps:
        return ()
    chosen = sorted({round(i * (len(steps) - 1) / (most - 1)) for i in range(most)})
    return tuple(steps[i][0].astimezone(UTC).strftime("%H:%M") for i in chosen)
