"""`tasklib migrate`: create or update TaskLib's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.each_shard import each_shard, named
from tasklib.cli.options import DatabaseUrl, DatabaseUrlFile, Debug, Schema, configured, url_of

if TYPE_CHECKING:
    from tasklib.config import Config
    from tasklib.migrations.older_table import TakenOver


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead; needs no database.")] = False,
    roles: Annotated[
        bool, typer.Option("--roles", help="Print SQL that creates roles with least privileges; needs no database.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 unless up to date.")] = False,
    from_0_1: Annotated[
        bool, typer.Option("--from-0.1", help="Convert the tables of TaskLib 0.1.0, with all their rows.")
    ] = False,
    take_over: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Copy the tasks of an earlier task library's table, such as public.tasks."),
    ] = None,
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="With --take-over: the zone of times that are stored without one.")
    ] = "UTC",
    database_url: DatabaseUrl = None,
    database_url_file: DatabaseUrlFile = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Create TaskLib's tables or update them, in every shard. Safe to repeat, and to run on many machines at once."""
    from tasklib import migrations
    from tasklib.config import Config
    from tasklib.migrations.revisions import head

    if sql + check + roles + from_0_1 + (take_over is not None) > 1:
        raise typer.BadParameter("give one of --sql, --roles, --check, --from-0.1 and --take-over.")
    if sql or roles:
        checked = Config("postgresql://", schema=schema or None)
        typer.echo(migrations.script(checked.schema) if sql else migrations.roles(checked.schema))
        return
    config = configured(url_of(database_url, database_url_file), schema)
    if config.shards and (from_0_1 or take_over):
        numbers = ", ".join(str(shard.number) for shard in config.shards)
        raise typer.BadParameter(
            f"this is for one schema: leave TASKLIB_SHARDS_FILE out and set TASKLIB_SHARD to its number ({numbers})."
        )
    if from_0_1:
        rows = migrations.carry_over(config)
        for table, count in rows.items():
            typer.echo(f"carried over {table}: {count} rows")
        typer.echo(f"up to date (revision {head()}). Run the script of `tasklib migrate --roles` again if you use it.")
        return
    if take_over is not None:
        taken = migrations.take_over(config, take_over, time_zone=time_zone)
        _tell(taken, config)
        return
    failed = [number for number, one in each_shard(config) if not _migrate(one, number, check=check)]
    if failed:
        raise typer.Exit(1)


def _migrate(config: Config, number: int | None, *, check: bool) -> bool:
    """Migrate one schema, or check it. What goes wrong in a shard doesn't keep the others from theirs: False."""
    from tasklib import migrations
    from tasklib.cli.report import show_error
    from tasklib.migrations.revisions import head

    try:
        done: tuple[str, ...] = ()
        if check:
            migrations.pending(config)  # refuses a newer schema and a table that TaskLib did not create
            migrations.check(config)
        else:
            done = migrations.migrate(config)
    except Exception as e:
        if number is None:
            raise
        typer.echo(f"shard {number}:", err=True)
        if not show_error(e):
            raise
        return False
    for revision in done:
        typer.echo(f"{named(number)}ran {revision}")
    if not done:
        typer.echo(f"{named(number)}up to date (revision {head()})")
    return True


def _tell(taken: TakenOver, config: Config) -> None:
    by_state = ", ".join(f"{count} {state}" for state, count in taken.states.items())
    typer.echo(f"copied {sum(taken.states.values())} tasks{f': {by_state}' if by_state else ''}")
    if taken.left:
        typer.echo(f"not copied, as TaskLib has no such columns: {', '.join(taken.left)}")
    if "dead_letter" in taken.states and config.dead_letter_days is not None:
        typer.echo(
            f"The leader deletes dead letters {config.dead_letter_days:g} days after they ended, which may be at once: "
            "set TASKLIB_DEAD_LETTER_DAYS before a worker starts."
        )
    typer.echo(f"Every row is still in {taken.table}: drop it when you don't need it any more.")
