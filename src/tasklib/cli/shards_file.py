"""Writing the file of the shards, which programs read while they run: one change at a time, each as a whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile

from tasklib.shards import PastWeight, Shard, checked_shards, read_shards

_OF_ADDRESS = ("id", "database_url", "schema", "listen_database_url")
_HEAD = "# Changed by `tasklib shard`, which keeps no comments. Programs read it again while they run.\n"


@contextmanager
def changing(file: Path) -> Iterator[list[Shard]]:
    """The shards of the file, none if there is no file yet, to be changed; written at the end if they were.

    Another command that changes them waits.
    """
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        before = read_shards(file) if file.exists() else ()
        shards = list(before)
        yield shards
        after = checked_shards(shards)
        if after != before:
            _replace(file, after)
            os.fsync(directory)
    finally:
        os.close(directory)


def with_weight(shard: Shard, weight: float, at: datetime) -> Shard:
    """The shard with another weight from then on. What was planned for later is dropped."""
    before = next((past.weight for past in shard.past if past.until > at), shard.weight)
    past = tuple(each for each in shard.past if each.until <= at)
    return replace(shard, weight=weight, past=(*past, PastWeight(at, before)))


def _replace(file: Path, shards: Sequence[Shard]) -> None:
    """Put a new file in its place: a program reads the old one or the new one, and never a part of one."""
    with NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", encoding="utf-8", delete=False) as new:
        try:
            if file.exists():
                known = file.stat()
                os.fchmod(new.fileno(), known.st_mode & 0o7777)
                if (known.st_uid, known.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(new.fileno(), known.st_uid, known.st_gid)
            new.write(_HEAD + "".join(map(_entry, shards)))
            new.flush()
            os.fsync(new.fileno())
            os.replace(new.name, file)
        except BaseException:
            os.unlink(new.name)
            raise


def _entry(shard: Shard) -> str:
    lines = ["", "[[shard]]", f"number = {shard.number}", f"database_url = {_text(shard.database_url)}"]
    if shard.schema is not None:
        lines.append(f"schema = {_text(shard.schema)}")
    if shard.listen_database_url is not None:
        lines.append(f"listen_database_url = {_text(shard.listen_database_url)}")
    lines.append(f"weight = {float(shard.weight)!r}")
    if shard.past:
        past = (f"{{ until = {each.until.isoformat()}, weight = {float(each.weight)!r} }}" for each in shard.past)
        lines.append(f"past = [{', '.join(past)}]")
    if shard.moving_to is not None:
        parts = ((name, getattr(shard.moving_to, name)) for name in _OF_ADDRESS)
        said = (f"{name} = {_text(value)}" for name, value in parts if value is not None)
        lines.append(f"moving_to = {{ {', '.join(said)} }}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """As a string of TOML, whose escapes are those of JSON but for this one."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
