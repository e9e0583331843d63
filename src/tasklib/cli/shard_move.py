"""`tasklib shard move`: a shard gets another address, with all of its rows, while everything else goes on.

    1  the new schema is made, and frozen; then the file says that the shard moves: workers leave it
    2  when no task runs there, its schema is frozen: it takes no writes any more
    3  all rows are copied, in one transaction, and compared
    4  the new schema is opened, and the file names it

At each moment at most one of the two schemas takes writes. After a crash the file and the marks in both schemas say how
far it came: the same command goes on, and `--abort` goes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from tasklib.cli.report import CommandError
from tasklib.cli.shards_file import changing
from tasklib.config import Config
from tasklib.db.connect import address
from tasklib.errors import TaskLibError
from tasklib.migrations import check, migrate, moving, pending
from tasklib.migrations.moving import ARRIVING, COPIED, LEAVING, LIVE, MoveMark
from tasklib.shards import NewAddress, Shard, place, read_shards

Say: TypeAlias = Callable[[str], None]
_LOOK_SECONDS = 0.5


def move(file: Path, number: int, to: NewAddress | None, *, notice: float, timeout: float | None, say: Say) -> None:
    """Move a shard, or go on with a move that has begun."""
    move_id = _begin(file, number, to, say)
    try:
        time.sleep(notice)  # by then all programs have read the file
        _freeze(file, number, move_id, timeout, say)
        _copy(file, number, move_id, say)
    except (Exception, KeyboardInterrupt):
        _try_to_abort(file, number, move_id, say)
        raise
    _arrive(file, number, move_id, say)


def preview(file: Path, number: int, to: NewAddress | None, say: Say) -> None:
    """Say what `move` would do, or why it can't."""
    shard = _shard(read_shards(file), number)
    to = _destination(shard, to)
    source, target = _configs(shard, to)
    check(source)
    with moving.opened(source) as (connection, schema):
        _require_here(moving.mark_of(connection, schema), to.id)
        tasks, running, size = moving.size_of(connection, schema)
    todo = pending(target)
    if not todo:
        _require_free(target, shard)
    say(f"would move shard {number} from {_name(shard)} to {_name(to)}:")
    say(f"  {', '.join(todo)} to run there" if todo else "  its tables are there")
    say(f"  {running} running tasks to wait for, once workers have left the shard")
    say(f"  {tasks} tasks to copy; all tables have {size / 1e6:.1f} MB here. The shard takes no writes meanwhile")


def abort(file: Path, number: int, say: Say) -> None:
    """Give up a move that has begun: the shard stays where it is."""
    with changing(file) as shards:
        shard = _shard(shards, number)
        if shard.moving_to is None:
            raise CommandError(f"shard {number} does not move.")
        source, target = _configs(shard, shard.moving_to)
        _refreeze(target, shard)
        with moving.opened(source) as (connection, schema):
            mark = moving.mark_of(connection, schema)
            _require_here(mark, shard.moving_to.id)
            if mark is not None and mark.is_frozen:
                moving.thaw(connection, schema, None)
        shards[shards.index(shard)] = replace(shard, moving_to=None)
    say(f"shard {number} stays at {_name(shard)}")
    say(f"The schema at {_name(shard.moving_to)} takes no writes. Drop it, or move there later.")


def _begin(file: Path, number: int, to: NewAddress | None, say: Say) -> str:
    """Step 1. Returns the id of the move."""
    with changing(file) as shards:
        shard = _shard(shards, number)
        to = _destination(shard, to)
        source, target = _configs(shard, to)
        if shard.moving_to is not None:
            say(f"going on: shard {number} moves from {_name(shard)} to {_name(to)}")
            return to.id
        check(source)
        with moving.opened(source) as (connection, schema):
            _require_here(moving.mark_of(connection, schema), to.id)
        if not pending(target):
            _require_free(target, shard)
        migrate(target)
        with moving.opened(target) as (connection, schema):
            why = moving.freeze(
                connection, schema, MoveMark(to.id, ARRIVING, _name(shard)), _refusal(number, "to here")
            )
            if why:
                raise CommandError(f"the schema at {_name(to)} is in use: {why}.")
        shards[shards.index(shard)] = replace(shard, moving_to=to)
    say(f"shard {number} moves from {_name(shard)} to {_name(to)}: workers leave it")
    return to.id


def _freeze(file: Path, number: int, move_id: str, timeout: float | None, say: Say) -> None:
    """Step 2, again and again until no task runs and no transaction that writes is open."""
    deadline, told = None if timeout is None else time.monotonic() + timeout, None
    while True:
        with _going_on(file, number, move_id) as (shard, to, source, _), moving.opened(source) as (connection, schema):
            mark = moving.mark_of(connection, schema)
            _require_here(mark, move_id)
            if mark is not None and mark.is_frozen:
                return
            refusal = _refusal(number, f"to {_name(to)}")
            why = moving.freeze(connection, schema, MoveMark(move_id, LEAVING, _name(to)), refusal)
        if why is None:
            say(f"shard {number} takes no writes at {_name(shard)}")
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise CommandError(f"shard {number} could not be frozen within {timeout:g} s: {why}.")
        if why != told:
            say(f"waiting: {why}")
            told = why
        time.sleep(_LOOK_SECONDS)


def _copy(file: Path, number: int, move_id: str, say: Say) -> None:
    """Step 3, unless it is done."""
    with _going_on(file, number, move_id) as (_, _, source, target), moving.opened(target) as (connection, schema):
        mark = moving.mark_of(connection, schema)
    if mark is not None and mark.move == move_id and mark.role in (COPIED, LIVE):
        return
    began = time.monotonic()
    copied = moving.copy(source, target, move_id)
    rows = sum(table.rows for table in copied)
    say(f"{rows} rows of {len(copied)} tables are copied and compared, in {time.monotonic() - began:.1f} s")


def _arrive(file: Path, number: int, move_id: str, say: Say) -> None:
    """Step 4. Between its two halves the new schema takes writes, and no program knows it."""
    with changing(file) as shards:
        shard, to, source, target = _parts(_shard(shards, number), move_id)
        with moving.opened(source) as (connection, schema):
            mark = moving.mark_of(connection, schema)
            if mark is None or (mark.move, mark.role) != (move_id, LEAVING):
                raise CommandError(f"the schema at {_name(shard)} takes writes: run this again, to copy it anew.")
        with moving.opened(target) as (connection, schema):
            mark = moving.mark_of(connection, schema)
            if mark is None or mark.move != move_id or mark.role not in (COPIED, LIVE):
                raise CommandError(f"the schema at {_name(to)} has not all rows: run this again, to copy them.")
            moving.thaw(connection, schema, mark._replace(role=LIVE))
        shards[shards.index(shard)] = replace(
            shard,
            database_url=to.database_url,
            schema=to.schema,
            listen_database_url=to.listen_database_url,
            moving_to=None,
        )
    with moving.opened(target) as (connection, schema):
        moving.thaw(connection, schema, None)
    say(f"shard {number} is at {_name(to)}")
    say(f"The schema at {_name(shard)} takes no writes any more. Drop it when all programs have the new file.")


@contextmanager
def _going_on(file: Path, number: int, move_id: str) -> Iterator[tuple[Shard, NewAddress, Config, Config]]:
    """The parts of a move, while no other command changes the file."""
    with changing(file) as shards:
        yield _parts(_shard(shards, number), move_id)


def _parts(shard: Shard, move_id: str) -> tuple[Shard, NewAddress, Config, Config]:
    to = shard.moving_to
    if to is None or to.id != move_id:
        raise CommandError(f"the move of shard {shard.number} was given up, or ended, by another command.")
    return shard, to, *_configs(shard, to)


def _try_to_abort(file: Path, number: int, move_id: str, say: Say) -> None:
    try:
        with _going_on(file, number, move_id):
            pass
        abort(file, number, say)
    except (TaskLibError, OSError) as e:
        say(f"It could not be given up: {e}")
        say(f"To go on: tasklib shard move {number}. To give it up: tasklib shard move {number} --abort")


def _refreeze(target: Config, shard: Shard) -> None:
    """If the new schema was opened before a crash, freeze it; none of the programs knows it yet."""
    assert shard.moving_to is not None
    try:
        with moving.opened(target) as (connection, schema):
            mark = moving.mark_of(connection, schema)
            if mark is not None and mark.move == shard.moving_to.id:
                given_up = mark._replace(role=ARRIVING, move=f"{mark.move}, given up")
                moving.freeze(connection, schema, given_up, _refusal(shard.number, "to here"))
    except TaskLibError:  # it may never come back
        pass


def _require_here(mark: MoveMark | None, move_id: str) -> None:
    if mark is not None and mark.is_frozen and mark.move != move_id:
        raise CommandError(
            f"the schema of this shard takes no writes: it takes part in another move, the other end of which is "
            f"{mark.other}. Is this file older than that move?"
        )


def _require_free(target: Config, shard: Shard) -> None:
    """Refuse a schema in which something would be lost: all but an empty one, and a former copy of this very shard."""
    with moving.opened(target) as (connection, schema):
        mark = moving.mark_of(connection, schema)
        if mark is not None and mark.is_frozen and mark.other == _name(shard):
            return
        if mark is not None and mark.is_frozen:
            raise CommandError(
                f"schema {schema!r} at {address(target.database_url)} is a copy of a shard that is at {mark.other}, "
                "or was. Drop it, or name another one."
            )
        if not moving.is_unused(connection, schema):
            raise CommandError(
                f"schema {schema!r} at {address(target.database_url)} has tasks or workers. Name an empty one."
            )


def _destination(shard: Shard, to: NewAddress | None) -> NewAddress:
    known = shard.moving_to
    if known is None and to is None:
        raise CommandError("name the new address by --database-url or --database-url-file.")
    if to is None or known is None:
        found = to or known
        assert found is not None
        if place(found) == place(shard):
            raise CommandError(f"shard {shard.number} is at {_name(found)} already.")
        return found
    if place(known) != place(to):
        raise CommandError(
            f"shard {shard.number} is moving to {_name(known)}. To go on: tasklib shard move {shard.number}. "
            f"To give that up: tasklib shard move {shard.number} --abort"
        )
    return known


def new_address(database_url: str, schema: str | None, listen_database_url: str | None) -> NewAddress:
    """For a move that begins."""
    return NewAddress(uuid4().hex, database_url, schema, listen_database_url)


def _configs(shard: Shard, to: NewAddress) -> tuple[Config, Config]:
    there = Shard(shard.number, to.database_url, to.schema)
    here = replace(shard, weight=1.0, past=(), moving_to=None)
    return (
        Config.from_env(shards=(here,), shards_file=None).for_shard(shard.number),
        Config.from_env(shards=(there,), shards_file=None).for_shard(shard.number),
    )


def _shard(shards: tuple[Shard, ...] | list[Shard], number: int) -> Shard:
    for each in shards:
        if each.number == number:
            return each
    known = ", ".join(str(each.number) for each in shards) or "none"
    raise CommandError(f"there is no shard {number} in the file. Known: {known}.")


def _refusal(number: int, where: str) -> str:
    return f"shard {number} moves {where}, or has moved, and this copy takes no writes. See: tasklib shard list"


def _name(of: Shard | NewAddress) -> str:
    schema = f", schema {of.schema}" if of.schema else ""
    return f"{address(of.database_url)}{schema}"
