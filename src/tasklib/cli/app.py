"""The commands put together, and what becomes of their errors."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tasklib.cli import (
    backpressure,
    breaker,
    dlq,
    flow,
    keys,
    limit,
    replays,
    schedule,
    search,
    settings,
    shard,
    token,
    workers,
)
from tasklib.cli.alerts import alerts, grafana
from tasklib.cli.approval import approvals, approve, reject
from tasklib.cli.audit import audit
from tasklib.cli.bench import bench
from tasklib.cli.cancel import cancel, replay, run_now
from tasklib.cli.check import check
from tasklib.cli.dev import dev
from tasklib.cli.doctor import doctor
from tasklib.cli.edit import edit
from tasklib.cli.erase import erase
from tasklib.cli.explain import explain
from tasklib.cli.failures import failures
from tasklib.cli.listing import list_tasks
from tasklib.cli.migrate import migrate
from tasklib.cli.options import DEBUG, DatabaseUrl, Debug
from tasklib.cli.pausing import pause, pauses, resume
from tasklib.cli.report import note, show_error, without_secrets
from tasklib.cli.server import server
from tasklib.cli.show import show
from tasklib.cli.signal import signal
from tasklib.cli.submit import submit, wait
from tasklib.cli.top import top
from tasklib.cli.worker import worker
from tasklib.sharding.missing import missing_shards, said


class Commands(TyperGroup):
    """Commands whose errors are one line, and the exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        with missing_shards() as missing:
            try:
                return super().invoke(ctx)
            except Exception as e:
                if ctx.meta.get(DEBUG) or not show_error(e):
                    raise
                raise typer.Exit(1) from None
            finally:
                if missing:
                    note(without_secrets(said(missing)), "yellow")


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """The console script."""
    app(prog_name="tasklib")


def _print_version(value: bool) -> None:
    if value:
        version()
        raise typer.Exit


@app.callback()
def tasklib(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    """TaskLib: a durable task queue whose only server is PostgreSQL.

    Start here: tasklib dev tasks.py
    """


app.command()(worker)
app.command()(dev)
app.command()(server)
app.command()(migrate)
app.command()(submit)
app.command("list")(list_tasks)
app.add_typer(search.app, name="search")
app.command()(show)
app.command()(explain)
app.command()(failures)
app.command()(wait)
app.command()(cancel)
app.command()(erase)
app.command()(replay)
app.command("run-now")(run_now)
app.command()(edit)
app.command()(signal)
app.command()(approvals)
app.command()(approve)
app.command()(reject)
app.add_typer(dlq.app, name="dlq")
app.add_typer(replays.app, name="replays")
app.add_typer(workers.app, name="workers")
app.add_typer(flow.app, name="flow")
app.add_typer(schedule.app, name="schedule")
app.command()(pause)
app.command()(resume)
app.command()(pauses)
app.add_typer(backpressure.app, name="backpressure")
app.add_typer(limit.app, name="limit")
app.add_typer(breaker.app, name="breaker")
app.add_typer(settings.app, name="settings")
app.add_typer(shard.app, name="shard")
app.add_typer(token.app, name="token")
app.add_typer(keys.app, name="keys")
app.command()(audit)
app.command()(check)
app.command()(doctor)
app.command()(top)
app.command()(alerts)
app.command()(grafana)
app.command()(bench)


@app.command()
def demo(database_url: DatabaseUrl = None, debug: Debug = False) -> None:
    """Show TaskLib at work, on a temporary PostgreSQL, in under a minute."""
    from tasklib.cli.demo import run_demo

    raise typer.Exit(run_demo(database_url))


@app.command()
def version() -> None:
    """Print the version."""
    from tasklib import __version__

    typer.echo(f"tasklib {__version__}")
