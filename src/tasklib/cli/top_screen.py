"""One frame of `tasklib top`, for a terminal of any size from 80x24 on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tasklib.cli.top_figures import LEVELS, MINUTES, Figures
from tasklib.doctor.findings import Finding, Severity
from tasklib.formatting import count, duration, last_line, printable, short_id
from tasklib.states import TaskState
from tasklib.store.fleet import WorkerInfo
from tasklib.store.stats import Point
from tasklib.store.top import MOST_RUNNING, Running

_BARS = " ▁▂▃▄▅▆▇█"
_FIXED_LINES = 12
"""Lines that are always there; the rest is shared by queues, workers, running tasks, failures and names."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What one frame is made of."""

    figures: Figures
    rate: float | None
    place: str
    is_paused: bool = False
    width: int = 80
    height: int = 24
    findings: Sequence[Finding] = ()
    """The doctor's warnings."""

    def render(self) -> RenderableType:
        figures = self.figures
        warnings = self._warnings()
        queues, workers, running, failures, names = _shares(
            max(8, self.height - _FIXED_LINES - len(warnings)),
            [
                len(figures.queues),
                len(figures.workers),
                len(figures.running),
                len(figures.failures),
                len(figures.names),
            ],
        )
        parts: list[RenderableType] = [
            self._title(),
            self._pace(),
            *warnings,
            _queues(figures, queues),
            _workers(figures.workers, figures.load, workers),
            _running(figures.running, running),
            _failures(figures, failures),
            _names(figures.names, names),
        ]
        return Group(*parts)

    def _warnings(self) -> list[Text]:
        """What `tasklib doctor` warns of."""
        room = 3 if self.height < 30 else 6
        said = [("bold red" if f.severity is Severity.CRITICAL else "yellow", f.seen) for f in self.findings]
        lines = [_cut(Text(f"! {printable(text)}", style), self.width) for style, text in said]
        more = len(lines) - room
        return [*lines[:room], Text(f"! and {more} more: tasklib doctor", "yellow")] if more > 0 else lines

    def _title(self) -> Text:
        leader = self.figures.leader
        place = Text(f"  {printable(self.place)}", "cyan")
        place.truncate(max(16, self.width - 58), overflow="ellipsis")
        line = Text("TaskLib", "bold").append_text(place)
        line.append(f"  {datetime.now():%H:%M:%S}  ", "dim")
        line.append("PAUSED" if self.is_paused else "q quit, p pause", "bold yellow" if self.is_paused else "dim")
        line.append(f"  leader {printable(leader)}" if leader else "  no leader", "" if leader else "bold red")
        return _cut(line, self.width)

    def _pace(self) -> Text:
        # The last step has only begun.
        points = self.figures.minutes[:-1]
        per_minute = [p.attempts for p in points]
        now = self.rate if self.rate is not None else (per_minute[-1] / 60 if per_minute else 0.0)
        line = Text(f"{now:,.1f}/s ", "bold green").append(sparkline(per_minute), "green")
        failures, attempts = sum(p.failures for p in points), sum(per_minute)
        line.append(f"  {MINUTES} min: {count(attempts, 'attempt')}, ", "")
        line.append(f"{failures:,} failed", "bold yellow" if failures else "dim")
        dead = sum(p.of("dead_letter") for p in points)
        line.append(f", {dead:,} dead", "bold red" if dead else "dim")
        return _cut(line, self.width)


def sparkline(values: Sequence[int]) -> str:
    """The values as blocks, the highest as a full one."""
    top = max(values, default=0)
    return "".join(_BARS[0 if not v else max(1, round(v / top * 8))] for v in values)


def _shares(room: int, wanted: Sequence[int]) -> list[int]:
    """How many lines each table gets: one each that has something, then in turn while there is room."""
    shares = [0] * len(wanted)
    while room > 0 and (short := [n for n, want in enumerate(wanted) if shares[n] < want]):
        for n in short[:room]:
            shares[n] += 1
        room -= len(short)
    return shares


def _queues(figures: Figures, rows: int) -> Table:
    waiting = sum(d.count for d in figures.queues)
    capped = "+" if any(d.is_capped for d in figures.queues) else ""
    table = _table(f"{waiting:,}{capped} due", "waiting", *LEVELS, "oldest", numbers=("waiting", *LEVELS, "oldest"))
    held = {p.value for p in figures.pauses if p.kind == "queue"}
    for depth in figures.queues[:rows]:
        table.add_row(
            Text(_short(depth.queue, 30)).append(" paused" if depth.queue in held else "", "yellow"),
            f"{depth.count:,}{'+' if depth.is_capped else ''}",
            *(f"{depth.by_level.get(level, 0):,}" for level in LEVELS),
            duration(depth.oldest_seconds),
        )
    return _with_more(table, len(figures.queues) - rows)


def _failures(figures: Figures, rows: int) -> Table:
    table = _table("failed lately", "task", "ago", "error", numbers=("ago",))
    for failure in figures.failures[:rows]:
        ago = "" if failure.at is None or figures.now is None else duration((figures.now - failure.at).total_seconds())
        dead = failure.state == TaskState.DEAD_LETTER
        table.add_row(
            Text(short_id(failure.id), "bold red" if dead else "yellow"),
            _short(failure.name, 30),
            ago,
            _short(last_line(failure.error), 200),
        )
    return table


def _workers(workers: Sequence[WorkerInfo], load: Mapping[str, int], rows: int) -> Table:
    held = sum(load.get(w.id, 0) for w in workers)
    title = f"{count(len(workers), 'worker')}, {held}/{sum(w.capacity for w in workers)}"
    table = _table(title, "status", "load", "queues", "version", "heartbeat", numbers=("heartbeat",))
    for worker in sorted(workers, key=lambda w: -load.get(w.id, 0))[:rows]:
        holds = load.get(worker.id, 0)  # more than it has slots, if it claims ahead
        filled = min(10, round(10 * holds / max(1, worker.capacity)))
        bar = Text("█" * filled, "cyan").append("░" * (10 - filled), "dim")
        table.add_row(
            _short(worker.id),
            worker.status,
            bar.append(f" {holds}/{worker.capacity}", "default"),
            "all" if worker.queues is None else _short(",".join(worker.queues), 20),
            printable(worker.version),
            duration(worker.seconds_since_heartbeat),
        )
    return _with_more(table, len(workers) - rows)


def _running(running: Sequence[Running], rows: int) -> Table:
    number = running[0].of if running else 0
    title = f"{number:,}{'+' if number >= MOST_RUNNING else ''} running"
    table = _table(title, "task", "queue", "worker", "try", "for", numbers=("try", "for"))
    for task in running[:rows]:
        table.add_row(
            short_id(task.id),
            _short(task.name),
            _short(task.queue, 20),
            _short(task.worker_id),
            str(task.attempt),
            duration(task.seconds),
        )
    return _with_more(table, number - rows)


def _names(names: Sequence[Point], rows: int) -> Table:
    table = _table(f"last {MINUTES} min", "attempts", "failed", "dead", "p50", "p95", numbers=(...,))
    for name in names[:rows]:
        p50, p95 = name.duration(0.5), name.duration(0.95)
        table.add_row(
            _short(name.label),
            f"{name.attempts:,}",
            Text(f"{name.failures:,}", "yellow" if name.failures else "dim"),
            Text(f"{name.of('dead_letter'):,}", "bold red" if name.of("dead_letter") else "dim"),
            "" if p50 is None else duration(p50),
            "" if p95 is None else duration(p95),
        )
    return table


def _table(first: str, *others: str, numbers: Sequence[object] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True, overflow="ellipsis", min_width=len(first))
    for title in others:
        right = title in numbers or ... in numbers
        side: Literal["right", "left"] = "right" if right else "left"
        table.add_column(title, justify=side, no_wrap=True, overflow="ellipsis", min_width=len(title))
    return table


def _with_more(table: Table, more: int) -> Table:
    if more > 0:
        table.caption = f"and {more:,} more"
        table.caption_justify = "left"
        table.caption_style = "dim"
    return table


def _short(text: str, limit: int = 40) -> str:
    text = printable(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
