"""The results as a picture. Only this file needs matplotlib, from the extra `bench`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tasklib.bench.machine import Facts
from tasklib.bench.plan import Plan
from tasklib.bench.report import figure, ratio
from tasklib.bench.running import Result
from tasklib.bench.workloads import MILLISECONDS

OURS, THEIRS, MORE = "#2f6fa7", "#b9c3cc", "#7fb2d9"
INK, FAINT = "#22303c", "#5d6b78"
WIDTH, PANEL_HEIGHT, BAR_HEIGHT, LINE_HEIGHT = 10.0, 0.65, 0.26, 0.15
"""In inches."""
ROOM_FOR_WORDS = 1.3
LONGEST_LINE = 170
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "svg.fonttype": "none",  # text stays text
}


@dataclass(frozen=True)
class Bar:
    """One bar: parts that add up, and what is written at its end."""

    label: str
    parts: Sequence[float]
    shown: str
    colours: Sequence[str] = (OURS, MORE)
    spread: Sequence[float] = ()
    """All samples; their range is drawn."""

    @property
    def end(self) -> float:
        return max(sum(self.parts), *self.spread, 0.0)


@dataclass(frozen=True)
class Panel:
    """Bars that share an axis."""

    title: str
    bars: Sequence[Bar]
    legend: Sequence[tuple[str, str]] = ()


def draw(facts: Facts, plan: Plan, results: Sequence[Result], path: Path) -> None:
    """Write an SVG or PNG, as the name of the file says."""
    panels = [panel for panel in panels_of(results) if panel.bars]
    below = _below(facts, plan)
    heights = [PANEL_HEIGHT + BAR_HEIGHT * len(panel.bars) for panel in panels]
    margin = 0.2 + LINE_HEIGHT * len(below)
    height = sum(heights) + margin
    with matplotlib.rc_context(STYLE):
        room = ConstrainedLayoutEngine(rect=(0, margin / height, 1, 1 - margin / height), w_pad=0.1, h_pad=0.08)
        picture = Figure(figsize=(WIDTH, height), layout=room)
        grid = picture.add_gridspec(max(1, len(panels)), 1, height_ratios=heights or [1])
        for place, panel in enumerate(panels):
            _draw_panel(picture.add_subplot(grid[place, 0]), panel)
        picture.text(0.01, 0.1 / height, "\n".join(below), fontsize=7, color=FAINT, va="bottom")
        picture.savefig(path, format=path.suffix.lower().removeprefix("."), dpi=150)


def panels_of(results: Sequence[Result]) -> list[Panel]:
    """What belongs on one axis: workloads of about the same size, each next to what it is compared with."""
    known = {result.workload.id: result for result in results if result.value is not None}

    def chosen(*ids: str) -> list[Result]:
        return [known[id_] for id_ in ids if id_ in known]

    return [
        Panel(
            "Draining, tasks per second: more is better", [_bar(r) for r in chosen("W3", "W4", "W6", "W7", "W8", "W11")]
        ),
        Panel("Submitting many at once, tasks per second: more is better", _pairs(chosen("W2"))),
        Panel("Submitting one by one, tasks per second: more is better", _pairs(chosen("W1", "W10"))),
        Panel("Picking up a task when idle, milliseconds: less is better", _latencies(chosen("W5", "W12"))),
        Panel(
            "CPU time of 10,000 tasks, seconds: less is better",
            [Bar(_label(r), _cpu_parts(r), _cpu_said(r), spread=r.values) for r in chosen("W9")],
            (("server", OURS), ("worker", MORE)),
        ),
    ]


def _bar(result: Result) -> Bar:
    value = result.value or 0.0
    compared = f"  ({ratio(result)})" if result.ratio is not None else ""
    return Bar(_label(result), [value], figure(value, result.workload.unit) + compared, spread=result.values)


def _pairs(results: Sequence[Result]) -> list[Bar]:
    """Each next to what it is compared with."""
    bars = []
    for result in results:
        against = result.against or 0.0
        shown = figure(against, result.workload.unit)
        bars += [_bar(result), Bar(result.workload.compared_with or "", [against], shown, (THEIRS,))]
    return bars


def _latencies(results: Sequence[Result]) -> list[Bar]:
    bars = []
    for result in results:
        for name in ("p50", "p99"):
            value = result.details[f"{name}_ms"] or 0.0
            spread = result.all_of(f"{name}_ms")
            bars.append(Bar(f"{_label(result)}, {name}", [value], figure(value, MILLISECONDS), spread=spread))
    return bars


def _cpu_parts(result: Result) -> list[float]:
    return [result.details[who] or 0.0 for who in ("server", "worker")]


def _cpu_said(result: Result) -> str:
    return figure(sum(_cpu_parts(result)), result.workload.unit)


def _label(result: Result) -> str:
    return f"{result.workload.id}  {result.workload.name}"


def _draw_panel(axes: Axes, panel: Panel) -> None:
    widest = max(bar.end for bar in panel.bars) or 1.0
    for place, bar in enumerate(panel.bars):
        _draw_bar(axes, place, bar, gap=widest * 0.012)
    axes.set_title(panel.title)
    axes.set_yticks(range(len(panel.bars)), [bar.label for bar in panel.bars])
    axes.set_xlim(0, widest * ROOM_FOR_WORDS)
    axes.set_ylim(len(panel.bars) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for name, colour in panel.legend:
        axes.barh(0, 0, color=colour, label=name)
    if panel.legend:
        axes.legend(loc="lower right", frameon=False, fontsize=8, ncols=len(panel.legend), bbox_to_anchor=(1, 0.95))


def _draw_bar(axes: Axes, place: int, bar: Bar, *, gap: float) -> None:
    left = 0.0
    for part, colour in zip(bar.parts, bar.colours, strict=False):
        axes.barh(place, part, left=left, color=colour, height=0.7)
        left += part
    if bar.spread[1:]:
        low, high = min(bar.spread), max(bar.spread)
        # The parts of a bar are medians of their own: their sum may lie outside of the sums' range.
        reach = [[max(0.0, left - low)], [max(0.0, high - left)]]
        axes.errorbar(left, place, xerr=reach, color=INK, capsize=2.5, linewidth=0.8)
    axes.text(bar.end + gap, place, bar.shown, va="center", color=INK)


def _below(facts: Facts, plan: Plan) -> list[str]:
    rounds = f"median of {plan.repeats} rounds, the lines show their range" if plan.repeats > 1 else "one round"
    lines = [*facts.lines(), f"scale {plan.scale:g}, {plan.concurrency} slots per worker, {rounds}"]
    return [piece for line in lines for piece in textwrap.wrap(line, LONGEST_LINE)]
