"""`tasklib keys`: the keys of sealed tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_found
from tasklib.formatting import count

if TYPE_CHECKING:
    from tasklib.config import Config
    from tasklib.store.stored_payloads import KeyCount
    from tasklib.tasks.keyring import Keyring

app = typer.Typer(no_args_is_help=True, help="Make keys for sealed tasks, count what they seal, and rotate them.")
KeyId = Annotated[
    str, typer.Argument(metavar="ID", show_default=False, help="The id of the key: letters, digits, _ . -")
]


@app.command()
def new(key_id: KeyId) -> None:
    """Print a new key as id:base64, for TASKLIB_KEYS or a file. It is stored nowhere else.

    Example: tasklib keys new 2026-11
    """
    import os
    from base64 import b64encode

    from tasklib.tasks.keyring import KEY_BYTES, Keyring

    key = os.urandom(KEY_BYTES)
    Keyring([(key_id, key)])
    typer.echo(f"{key_id}:{b64encode(key).decode()}")


@app.command()
@with_database
def status(database: ChosenDatabase, json_: JsonLines = False) -> None:
    """Count the tasks that each key seals, and say which keys may go."""
    from tasklib.client.effects import once
    from tasklib.store import stored_payloads
    from tasklib.tasks.keyring import keyring_of

    with database.connected() as client:
        counted = {each.key_id: each for each in client.perform(once(stored_payloads.key_counts()))}
        ring = keyring_of(client.config)
    ids = [*(ring or ()), *(id_ for id_ in counted if ring is None or id_ not in ring)]
    found = [_line(id_, counted.get(id_), ring) for id_ in ids]
    print_found(found, ("key", "tasks", "unfinished", "here", "state"), _Key.row, as_json=json_, none="no keys")


@app.command()
@with_database
def rotate(
    database: ChosenDatabase,
    old: Annotated[str, typer.Argument(metavar="OLD", show_default=False, help="The id of the key to replace.")],
    to: Annotated[str | None, typer.Option(metavar="ID", help="The key to seal with; default: the first one.")] = None,
) -> None:
    """Seal anew what the key OLD seals. It can be interrupted and repeated, while workers run.

    Exit code 0: no task of OLD is left; 1: some are, because they run or can't be opened.
    """
    from tasklib.cli.report import CommandError
    from tasklib.client.effects import once
    from tasklib.client.rotation import rotate as rotation
    from tasklib.store import stored_payloads

    with database.connected() as client:
        ring = _ring(client.config)
        wanted = to or ring.first
        if wanted == old:
            raise CommandError(f"{old} is the first key of the keyring. Put a new one before it, or name one: --to ID")
        done = client.perform(rotation(ring, old, wanted, by=client.calls.identity.actor))
        left = {each.key_id: each.tasks for each in client.perform(once(stored_payloads.key_counts()))}.get(old, 0)
    typer.echo(f"Sealed {count(done.resealed, 'task')} anew with {wanted}; {left:,} of {old} left.")
    if done.skipped:
        typer.echo(f"{count(done.skipped, 'task')} ran or changed in the meantime: run this again.")
    for id_ in done.unreadable[:100]:
        typer.echo(f"✗ {id_} can't be opened, and stays as it is")
    raise typer.Exit(1 if left else 0)


def _ring(config: Config) -> Keyring:
    from tasklib.cli.report import CommandError
    from tasklib.tasks.keyring import keyring_of

    ring = keyring_of(config)
    if ring is None:
        raise CommandError("there are no keys here. Set TASKLIB_KEYS or TASKLIB_KEYS_FILE.")
    return ring


@dataclass(frozen=True, slots=True)
class _Key:
    """A line of `keys status`."""

    key_id: str
    tasks: int
    unfinished: int
    here: bool
    state: str

    def row(self) -> tuple[str, ...]:
        return self.key_id, str(self.tasks), str(self.unfinished), "yes" if self.here else "no", self.state


def _line(key_id: str, counted: KeyCount | None, ring: Keyring | None) -> _Key:
    here = ring is not None and key_id in ring
    if ring is not None and ring.first == key_id:
        state = "seals new tasks"
    elif counted is None:
        state = "may go"
    else:
        state = "needed" if here else "missing here"
    tasks, unfinished = (0, 0) if counted is None else (counted.tasks, counted.unfinished)
    return _Key(key_id, tasks, unfinished, here, state)
