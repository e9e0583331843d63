"""The figures as a picture: one small panel for each dimension, all costs relative to the first point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from benchmarks.growth.dimensions import TITLES
from tasklib.bench.chart import FAINT, INK, OURS, STYLE

Points = Sequence[Mapping[str, Any]]
ACROSS = 3
PANEL = (3.3, 2.4)
"""In inches."""
LINES: dict[str, tuple[str, str, Any]] = {
    "server_us": ("server CPU per task: claim from the beginning, and completion", OURS, "-"),
    "busy_us": ("the same where the claim goes on behind the last one", "#d98a29", "--"),
    "pages": ("pages read", "#8b98a5", ":"),
}
LOWEST_TOP = 2.0
"""Flat curves shall look flat."""


def draw(records: Points, path: Path) -> None:
    """Write an SVG of the dimensions that were measured."""
    panels = {name: [r for r in records if r["dimension"] == name] for name in TITLES}
    panels = {name: points for name, points in panels.items() if points}
    down = max(1, math.ceil(len(panels) / ACROSS))
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "growth"}):
        room = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.08)
        picture = Figure(figsize=(ACROSS * PANEL[0], down * PANEL[1] + 0.5), layout=room)
        grid = picture.add_gridspec(down, ACROSS)
        for place, (name, points) in enumerate(panels.items()):
            _draw_panel(picture.add_subplot(grid[place // ACROSS, place % ACROSS]), name, points)
        picture.legend(handles=_legend(), loc="outside lower center", frameon=False, fontsize=8, ncols=len(LINES))
        picture.savefig(path, format="svg", metadata={"Date": None})


def _legend() -> list[Line2D]:
    return [Line2D([], [], color=colour, linestyle=style, label=said) for said, colour, style in LINES.values()]


def _draw_panel(axes: Axes, name: str, points: Points) -> None:
    places = _places([point["at"] for point in points])
    top = LOWEST_TOP
    for figure, (_, colour, style) in LINES.items():
        values = [_figure(point, figure) for point in points]
        if not values[0] or not any(values[1:]):
            continue
        known = [(place, value / values[0]) for place, value in zip(places, values, strict=True) if value]
        axes.plot(*zip(*known, strict=True), color=colour, linestyle=style, marker="o", markersize=3)
        top = max(top, *(1.15 * height for _, height in known))
        if figure == "server_us":
            _write_ends(axes, known, values)
    axes.set_title(TITLES[name], fontsize=9)
    axes.set_xticks(places, [_short(point["at"]) for point in points])
    axes.set_ylim(0, top)
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.grid(axis="y", color="#e3e8ec", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8, colors=FAINT)


def _write_ends(axes: Axes, known: Sequence[tuple[float, float]], values: Sequence[float | None]) -> None:
    """The first and the last figure in microseconds; between them the eye will do."""
    for (place, height), value, side in ((known[0], values[0], "left"), (known[-1], values[-1], "right")):
        if value:
            said, above = f"{value:.1f} µs", (0, 6)
            axes.annotate(said, (place, height), above, textcoords="offset points", ha=side, fontsize=7.5, color=INK)


def _figure(point: Mapping[str, Any], name: str) -> float | None:
    match name:
        case "busy_us":
            return _sum(point, "going_on_us", "complete_us")
        case "pages":
            return _sum(point, "claim_pages", "complete_pages")
    return _sum(point, name)


def _sum(point: Mapping[str, Any], *names: str) -> float | None:
    parts = [point.get(name) for name in names]
    return None if None in parts else math.fsum(part for part in parts if part)


def _places(numbers: Sequence[int]) -> list[float]:
    """Logarithmic; nothing stands one decade before the least that is something."""
    least = min(number for number in numbers if number)
    return [math.log10(number) if number else math.log10(least) - 1 for number in numbers]


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return str(number)
