"""`tasklib shard`: the shards, and changes of their file while everything runs."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tasklib.cli.confirm import DryRun
from tasklib.cli.options import DatabaseUrlFile, Debug, url_of
from tasklib.cli.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasklib.config import Config
    from tasklib.shards import Shard

NOTICE_SECONDS = 5.0
"""A new weight holds after so long: by then all programs have read it, and they change over at the same time."""
_LOOK_SECONDS = 1.0

app = typer.Typer(no_args_is_help=True)
File = Annotated[
    Path,
    typer.Option(
        "--file", envvar="TASKLIB_SHARDS_FILE", metavar="FILE", show_default=False, help="The file of the shards."
    ),
]
Number = Annotated[int, typer.Argument(metavar="NUMBER", show_default=False, help="The number of the shard.")]
Weight = Annotated[
    float, typer.Option("--weight", metavar="N", help="Its part of the submissions, relative to the other shards.")
]


@app.callback()
def shard() -> None:
    """List the shards, and change their file while programs run. Programs follow within seconds."""


@app.command("list")
def list_(file: File, debug: Debug = False) -> None:
    """List the shards, where they are, their weights, and how many of their tasks are not finished."""
    from tasklib.cli.each_shard import each_shard
    from tasklib.config import Config
    from tasklib.db.connect import address

    config, now = Config.from_env(shards_file=str(file)), datetime.now(UTC)
    looks = {number: _look(one) for number, one in each_shard(config)}
    rows = [
        (
            str(each.number),
            address(each.database_url),
            each.schema or "",
            _weight(each, now),
            looks[each.number].unfinished,
            _state(each, looks[each.number]),
        )
        for each in config.shards
    ]
    titles = ("shard", "database", "schema", "weight", "unfinished", "state")
    print_rows(titles, rows, none="no shards", numbers=("shard", "unfinished"))
    if any(looks[each.number].state != "ok" and each.moving_to is None for each in config.shards):
        raise typer.Exit(1)


@app.command()
def add(
    number: Number,
    file: File,
    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url", metavar="URL", show_default=False, help="Its database: postgresql://user@host/db."
        ),
    ] = None,
    database_url_file: DatabaseUrlFile = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", help="Its schema. Default: the search_path.")
    ] = None,
    weight: Weight = 1.0,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Create the tables of a new shard, and add it to the file, which is made if there is none."""
    from tasklib.cli.shards_file import changing, with_weight
    from tasklib.config import Config
    from tasklib.migrations import migrate, pending
    from tasklib.shards import Shard, checked_shards

    url = url_of(database_url, database_url_file)
    if url is None:
        raise typer.BadParameter("name its database by --database-url or --database-url-file.")
    with changing(file) as shards:
        _refuse_known(shards, number)
        new = Shard(number, url, schema, weight=weight)
        if shards:  # until then it had none of the keys
            new = replace(with_weight(replace(new, weight=0.0), weight, _soon()), weight=weight)
        one = Config.from_env(shards=checked_shards([*shards, new])).for_shard(number)
        if dry_run:
            todo = pending(one)
            _say(f"would add shard {number}" + (f", after running {', '.join(todo)}" if todo else ""))
            return
        migrate(one)
        shards.append(new)
    _say_when(f"shard {number} is added with weight {weight:g}", new)


@app.command()
def close(number: Number, file: File, dry_run: DryRun = False, debug: Debug = False) -> None:
    """Send a shard no further tasks. Workers go on with those that it has, and its ids stay readable."""
    _weigh(number, file, 0.0, "closed", dry_run=dry_run)


@app.command("open")
def open_(number: Number, file: File, weight: Weight = 1.0, dry_run: DryRun = False, debug: Debug = False) -> None:
    """Send a shard tasks again, or give it another weight."""
    if weight <= 0:
        raise typer.BadParameter(f"the weight of an open shard is above 0. To close it: tasklib shard close {number}")
    _weigh(number, file, weight, f"open with weight {weight:g}", dry_run=dry_run)


@app.command()
def drain(
    number: Number,
    file: File,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Give up waiting after so long. Default: never.")
    ] = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Close a shard, and wait until all its tasks are finished."""
    from tasklib.config import Config

    _weigh(number, file, 0.0, "closed", dry_run=dry_run)
    one = Config.from_env(shards_file=str(file)).for_shard(number)
    if dry_run:
        _say(f"would wait for {_unfinished(one)} tasks of shard {number}")
        return
    deadline, told = None if timeout is None else time.monotonic() + timeout, ""
    time.sleep(NOTICE_SECONDS)
    while (left := _unfinished(one)) != "0":
        if left != told:
            _say(f"shard {number}: {left} tasks are not finished")
            told = left
        if deadline is not None and time.monotonic() >= deadline:
            raise typer.Exit(1)
        time.sleep(_LOOK_SECONDS)
    _say(f"shard {number} is drained")


@app.command()
def move(
    number: Number,
    file: File,
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", show_default=False, help="Its new database."),
    ] = None,
    database_url_file: Annotated[
        Path | None,
        typer.Option("--database-url-file", metavar="FILE", show_default=False, help="A file with that URL."),
    ] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", help="Its new schema. Default: the search_path.")
    ] = None,
    listen_database_url: Annotated[
        str | None,
        typer.Option("--listen-database-url", metavar="URL", help="Its new database for LISTEN, past a pooler."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="Give the move up if tasks still run after so long. Default: never."
        ),
    ] = None,
    abort: Annotated[bool, typer.Option("--abort", help="Give up a move that has begun.")] = False,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Move a shard with all its rows to another schema or server. Without an address: go on with a move that has begun.

    Workers leave the shard, and its writes are refused while its rows are copied. The other shards are not disturbed.
    """
    from tasklib.cli import shard_move

    url = url_of(database_url, database_url_file)
    to = None if url is None else shard_move.new_address(url, schema, listen_database_url)
    if abort:
        if to is not None or dry_run:
            raise typer.BadParameter("--abort takes nothing but the number of the shard.")
        shard_move.abort(file, number, _say)
    elif dry_run:
        shard_move.preview(file, number, to, _say)
    else:
        shard_move.move(file, number, to, notice=NOTICE_SECONDS, timeout=timeout, say=_say)


class _Look(NamedTuple):
    unfinished: str
    state: str


def _look(config: Config) -> _Look:
    """How many tasks of a shard are not finished, or why that is not known."""
    import psycopg

    from tasklib.errors import TaskLibError
    from tasklib.migrations import check, moving

    try:
        check(config)
        with moving.opened(config) as (connection, schema):
            mark = moving.mark_of(connection, schema)
        state = f"takes no writes, see {mark.other}" if mark is not None and mark.is_frozen else "ok"
        return _Look(_unfinished(config), state)
    except (TaskLibError, psycopg.Error) as e:
        return _Look("?", " ".join(str(e).split()))


def _state(shard: Shard, look: _Look) -> str:
    from tasklib.db.connect import address

    return look.state if shard.moving_to is None else f"{look.state}, moves to {address(shard.moving_to.database_url)}"


def _unfinished(config: Config) -> str:
    """So many, or at least so many ("500+"). Workers finish what waits, runs and waits for its retry."""
    from tasklib.client.clients import Client
    from tasklib.states import TERMINAL

    with Client(config) as client:
        counted = [counted for state, counted in client.count_states().items() if state not in TERMINAL]
    return f"{sum(each.count for each in counted)}{'+' if any(each.is_capped for each in counted) else ''}"


def _weigh(number: int, file: Path, weight: float, what: str, *, dry_run: bool) -> None:
    """Give a shard this weight from soon on, unless it has it already."""
    from tasklib.cli.shards_file import changing, with_weight
    from tasklib.shards import checked_shards

    with changing(file) as shards:
        place = _place(shards, number)
        before = shards[place]
        if before.weight == weight:
            _say(f"shard {number} is {what} already")
            return
        after = with_weight(before, weight, _soon())
        changed = [*shards[:place], after, *shards[place + 1 :]]
        checked_shards(changed)
        if dry_run:
            _say(f"shard {number} would be {what}, instead of weight {before.weight:g}")
            return
        shards[:] = changed
    _say_when(f"shard {number} is {what}", after)


def _place(shards: Sequence[Shard], number: int) -> int:
    from tasklib.cli.report import CommandError

    for place, each in enumerate(shards):
        if each.number == number:
            return place
    known = ", ".join(str(each.number) for each in shards) or "none"
    raise CommandError(f"there is no shard {number} in the file. Known: {known}.")


def _refuse_known(shards: Sequence[Shard], number: int) -> None:
    from tasklib.cli.report import CommandError

    if any(each.number == number for each in shards):
        raise CommandError(f"there is a shard {number} already. To give it another weight: tasklib shard open {number}")


def _weight(shard: Shard, now: datetime) -> str:
    planned = [past for past in shard.past if past.until > now]
    return f"{planned[0].weight:g}, soon {shard.weight:g}" if planned else f"{shard.weight:g}"


def _soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=NOTICE_SECONDS)


def _say(text: str) -> None:
    typer.echo(text)


def _say_when(text: str, shard: Shard) -> None:
    _say(f"{text} from {shard.past[-1].until:%H:%M:%S} UTC on" if shard.past else text)
