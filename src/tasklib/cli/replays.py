"""`tasklib replays`: dead letters that are replayed in the background, slowly, one of them first."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.confirm import Yes, confirm
from tasklib.cli.filters import EveryDeadLetter, refuse_unfiltered, with_dead_letter_filter
from tasklib.cli.moments import relative
from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_found
from tasklib.observe.formatting import count
from tasklib.store.filters import EVERY_DEAD_LETTER, DeadLetterFilter

if TYPE_CHECKING:
    from tasklib.store.replays import Replay

app = typer.Typer(no_args_is_help=True, help="Replay dead letters in the background: at a rate, one first as a canary.")
ReplayId = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="The id of a replay.")]
_TITLES = ("id", "status", "replayed", "of", "completed", "failed", "waiting", "begun", "by", "what")


@app.command()
@with_dead_letter_filter
@with_database
def start(
    database: ChosenDatabase,
    chosen: DeadLetterFilter = EVERY_DEAD_LETTER,
    everything: EveryDeadLetter = False,
    per_minute: Annotated[
        float | None, typer.Option(metavar="N", help="The maximum rate per minute. Default: no limit.")
    ] = None,
    canary: Annotated[
        bool, typer.Option("--canary/--no-canary", help="Replay one first; the others when it has completed.")
    ] = True,
    yes: Yes = False,
) -> None:
    """Begin to replay the dead letters that match, the oldest first. The leader of the fleet does it.

    Example: tasklib replays start --fingerprint 1f3a9c02 --per-minute 30
    """
    from tasklib.cli.report import note

    refuse_unfiltered(chosen, everything=everything, give="--fingerprint")
    with database.connected() as client:
        found = client.replay_dead_letters(chosen, everything=everything, dry_run=True)
        if found:
            confirm(f"replay {count(len(found), 'dead letter')}", yes=yes)
        begun = client.start_replay(chosen, everything=everything, per_minute=per_minute, canary=canary)
    typer.echo(str(begun.id))
    note(f"replaying {count(begun.expected, 'dead letter')}{', one of them first' if canary else ''}")


@app.command("list")
@with_database
def list_(
    database: ChosenDatabase,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 20,
    json_: JsonLines = False,
) -> None:
    """List replays, the newest first, and what became of their tasks."""
    with database.connected() as client:
        found = client.replays(limit=limit)
    print_found(found, _TITLES, _row, as_json=json_, none="no replays", numbers=set(_TITLES[2:7]))


@app.command()
@with_database
def show(database: ChosenDatabase, replay_id: ReplayId, json_: JsonLines = False) -> None:
    """Show one replay."""
    with database.connected() as client:
        _print(client.get_replay(replay_id), as_json=json_)


@app.command()
@with_database
def pause(database: ChosenDatabase, replay_id: ReplayId) -> None:
    """Replay no more until it is resumed. What was replayed goes on."""
    with database.connected() as client:
        _print(client.pause_replay(replay_id))


@app.command()
@with_database
def resume(
    database: ChosenDatabase,
    replay_id: ReplayId,
    per_minute: Annotated[float | None, typer.Option(metavar="N", help="Another rate. Default: as before.")] = None,
) -> None:
    """Go on, perhaps at another rate. If the canary failed, one more is tried first."""
    with database.connected() as client:
        _print(client.resume_replay(replay_id, per_minute=per_minute))


@app.command()
@with_database
def stop(database: ChosenDatabase, replay_id: ReplayId) -> None:
    """End a replay for good. What was replayed goes on, the other dead letters stay."""
    with database.connected() as client:
        _print(client.stop_replay(replay_id))


def _print(replay: Replay, *, as_json: bool = False) -> None:
    from tasklib.cli.report import note

    print_found([replay], _TITLES, _row, as_json=as_json, none="", numbers=set(_TITLES[2:7]))
    if replay.reason and not as_json:
        note(f"paused: {replay.reason}")


def _row(replay: Replay) -> tuple[str, ...]:
    begun = relative(replay.created_at, datetime.now(UTC)) if sys.stdout.isatty() else replay.created_at.isoformat()
    what = " ".join(f"{name}={value}" for name, value in replay.conditions.items()) or "every dead letter"
    figures = (replay.completed, replay.failed, replay.waiting)
    expected = f"{replay.expected}{'+' if replay.expected_is_capped else ''}"
    progress = (str(replay.replayed), expected, *map(str, figures))
    return (str(replay.id), replay.status, *progress, begun, replay.created_by, what)
