"""`tasklib migrate`: create or update TaskLib's tables."""

from __future__ import annotations

from typing import Annotated

import typer

from tasklib.cli.options import DatabaseUrl, DatabaseUrlFile, Debug, Schema, configured, url_of


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead; needs no database.")] = False,
    roles: Annotated[
        bool, typer.Option("--roles", help="Print SQL that creates roles with least privileges; needs no database.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 unless up to date.")] = False,
    from_0_1: Annotated[
        bool, typer.Option("--from-0.1", help="Convert the tables of TaskLib 0.1.0, with all their rows.")
    ] = False,
    database_url: DatabaseUrl = None,
    database_url_file: DatabaseUrlFile = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Create TaskLib's tables or update them. Safe to repeat, and to run on many machines at once."""
    from tasklib import migrations
    from tasklib.config import Config
    from tasklib.migrations.revisions import head

    if sql + check + roles + from_0_1 > 1:
        raise typer.BadParameter("give one of --sql, --roles, --check and --from-0.1.")
    if sql or roles:
        checked = Config("postgresql://", schema=schema or None)
        typer.echo(migrations.script(checked.schema) if sql else migrations.roles(checked.schema))
        return
    config = configured(url_of(database_url, database_url_file), schema)
    if check:
        migrations.pending(config)  # refuses a newer schema and a table that TaskLib did not create
        migrations.check(config)
        typer.echo(f"up to date (revision {head()})")
        return
    if from_0_1:
        rows = migrations.carry_over(config)
        for table, count in rows.items():
            typer.echo(f"carried over {table}: {count} rows")
        typer.echo(f"up to date (revision {head()}). Run the script of `tasklib migrate --roles` again if you use it.")
        return
    done = migrations.migrate(config)
    for revision in done:
        typer.echo(f"ran {revision}")
    if not done:
        typer.echo(f"up to date (revision {head()})")
