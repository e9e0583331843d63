"""`tasklib bench`: how fast TaskLib is, on this machine and with this PostgreSQL."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.options import DatabaseUrl, Debug, configured

if TYPE_CHECKING:
    from tasklib.bench.machine import Facts
    from tasklib.bench.plan import Plan
    from tasklib.bench.running import Result, Step
    from tasklib.bench.workloads import Workload

SERVER_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "min_wal_size": "1GB",
    "checkpoint_timeout": "30min",
}
"""Of the embedded server: a durable one, unlike that of the tests, without checkpoints in mid-run, and one that uses
the files of its log again rather than make new ones."""

CHARTS = (".svg", ".png")
Draw = Callable[["Facts", "Plan", "Sequence[Result]", Path], None]


def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD", show_default=False, help="Which workloads to measure: W1 to W12. Default: all."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A quick check: a tenth of the tasks, one round.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Five times the tasks; takes many minutes.")] = False,
    scale: Annotated[
        float | None, typer.Option(metavar="X", help="The number of tasks, where --full is 1 and the default is 0.2.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The number of rounds, of which medians are shown. Default: 3."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, metavar="N", help="The slots of a worker. Default: 500.")
    ] = None,
    json_: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="Also write all results as JSON; - prints it instead of the table."
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw a chart: FILE.svg or FILE.png. Needs matplotlib.")
    ] = None,
    database_url: DatabaseUrl = None,
    debug: Debug = False,
) -> None:
    """Measure TaskLib on this machine, with an embedded PostgreSQL or yours. Takes about two minutes.

    W1 submit one by one. W2 submit_many. W3 drain async tasks with one worker; W4 with two. W5 latency of an idle
    worker. W6 drain sync functions in threads. W7 W3 beside finished and future tasks. W8 W3 while another session
    holds a snapshot. W9 CPU time of W3. W10 eight producers while workers are busy. W11 W3 and W12 W5 with a worker
    over HTTP, if the extras for it are installed.

    It works in the schema tasklib_bench, which it creates and drops. With --database-url or TASKLIB_DATABASE_URL, it
    measures that server, which should have no other load.

    Example: tasklib bench W3 W5 --quick
    """
    from tasklib.cli.interruption import interruptible, no_more_interruptions
    from tasklib.cli.report import note

    chosen, plan = _chosen(workloads), _plan(quick, full, scale, repeats, concurrency)
    draw = _drawing(chart) if chart else None
    _require_writable("--json", Path(json_) if json_ and json_ != "-" else None)
    try:
        with interruptible(), ExitStack() as clean_up:
            try:
                facts, results, began = _measured(clean_up, database_url, plan, chosen)
            finally:
                no_more_interruptions()
    except KeyboardInterrupt:
        note("Stopped and cleaned up: workers and tables are removed.")
        raise typer.Exit(130) from None
    _show(facts, plan, results, began, json_)
    if chart and draw:
        draw(facts, plan, results, chart)
        note(f"The chart is in {chart}.", "dim")


def _chosen(words: list[str] | None) -> list[Workload]:
    from tasklib.bench.serving import can_serve
    from tasklib.bench.workloads import WORKLOADS

    everything = [id_ for id_ in WORKLOADS if can_serve() or id_ not in ("W11", "W12")]
    wanted = [word.upper() for word in words or everything]
    for word in wanted:
        if word not in WORKLOADS:
            raise typer.BadParameter(f"there is no workload {word}. The workloads are: {', '.join(WORKLOADS)}.")
    return [workload for id_, workload in WORKLOADS.items() if id_ in wanted]


def _plan(quick: bool, full: bool, scale: float | None, repeats: int | None, concurrency: int | None) -> Plan:
    from tasklib.bench import plan

    if quick + full + (scale is not None) > 1:
        raise typer.BadParameter("give one of --quick, --full and --scale.")
    if scale is not None and not 0 < scale <= 100:
        raise typer.BadParameter(f"--scale is a number above 0, such as 0.5; not {scale:g}.")
    usual = plan.QUICK_SCALE if quick else plan.FULL_SCALE if full else plan.DEFAULT_SCALE
    return plan.Plan(
        scale=scale or usual,
        repeats=repeats or (plan.QUICK_REPEATS if quick else plan.DEFAULT_REPEATS),
        concurrency=concurrency or plan.CONCURRENCY,
    )


def _drawing(path: Path) -> Draw:
    """What draws a chart. Whether it can is found out before minutes of measuring."""
    from tasklib.cli.report import CommandError

    if path.suffix.lower() not in CHARTS:
        raise typer.BadParameter(f"--chart takes a file that ends in {' or '.join(CHARTS)}, not {path}.")
    _require_writable("--chart", path)
    try:
        from tasklib.bench.chart import draw
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] != "matplotlib":
            raise
        raise CommandError("a chart needs matplotlib: pip install 'tasklib-pg[bench]'") from None
    return draw


def _require_writable(option: str, path: Path | None) -> None:
    from tasklib.cli.report import CommandError

    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        why = "is a directory" if path.is_dir() else f"can't be created: there is no directory {path.parent}"
        raise CommandError(f"{option}: {path} {why}.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandError(f"{option}: {path} can't be written.")


def _measured(
    clean_up: ExitStack, database_url: str | None, plan: Plan, workloads: Sequence[Workload]
) -> tuple[Facts, list[Result], datetime]:
    from tasklib.bench.machine import facts_of
    from tasklib.bench.running import run
    from tasklib.bench.schema import open_schema
    from tasklib.cli.report import note

    url = database_url or clean_up.enter_context(_embedded())
    schema = clean_up.enter_context(open_schema(configured(url, None)))
    facts, began = facts_of(schema, embedded=not database_url), datetime.now(UTC)
    for line in facts.lines():
        note(line, "dim")
    with _progress(plan, workloads) as tell:
        return facts, run(schema, plan, workloads, tell), began


@contextmanager
def _embedded() -> Iterator[str]:
    from tasklib.embedded import EmbeddedPostgres

    with EmbeddedPostgres(settings=SERVER_SETTINGS) as server:
        yield server.url()


@contextmanager
def _progress(plan: Plan, workloads: Sequence[Workload]) -> Iterator[Callable[[Step], None]]:
    """A bar in a terminal, a line for each sample elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from tasklib.bench.report import said
    from tasklib.cli.report import note

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:

        def tell_line(step: Step) -> None:
            if step.sample is not None:
                result = f"{step.workload.name}: {said(step.sample.value, step.workload.unit)}"
                note(f"{step.workload.id:<4}{result} ({step.repeat + 1} of {plan.repeats})")

        yield tell_line
        return
    columns = (BarColumn(30), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, refresh_per_second=2) as progress:
        bar = progress.add_task("", total=plan.repeats * len(workloads))

        def tell_bar(step: Step) -> None:
            doing = f"round {step.repeat + 1} of {plan.repeats}: {step.workload.id} {step.workload.name}"
            progress.update(bar, description=doing, advance=int(step.sample is not None), refresh=True)

        yield tell_bar


def _show(facts: Facts, plan: Plan, results: Sequence[Result], began: datetime, json_: str | None) -> None:
    from tasklib.bench.report import NUMBERS, TITLES, as_json, row
    from tasklib.cli.tables import print_rows

    everything: dict[str, Any] = as_json(facts, plan, results, began)
    if json_ and json_ != "-":
        Path(json_).write_text(json.dumps(everything, indent=2) + "\n")
    if json_ == "-":
        typer.echo(json.dumps(everything, indent=2))
    else:
        print_rows(TITLES, map(row, results), none="", numbers=NUMBERS)
