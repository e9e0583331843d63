"""The options of `tasklib schedule` that say what a schedule is, and the fields that they give."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from tasklib.cli.moments import future_moment, span
from tasklib.cli.pairs import value


class CatchUpChoice(StrEnum):
    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class OverlapChoice(StrEnum):
    ALLOW = "allow"
    SKIP = "skip"
    WAIT_ONE = "wait_one"
    CANCEL_RUNNING = "cancel_running"


class BackfillChoice(StrEnum):
    ALLOW = "allow"
    ONE_BY_ONE = "one_by_one"


Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The schedule's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON with all fields.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False, help="Arguments of each run.")
]
CronOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cron",
        metavar="EXPRESSION",
        show_default=False,
        help="A cron expression; up to ten, of which any one makes a slot.",
    ),
]
Every = Annotated[str | None, typer.Option("--every", metavar="TIME", help="Instead of --cron: 90s, 15m, 12h, 7d.")]
Timezone = Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="Such as Europe/Berlin; else UTC.")]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="DAY", show_default=False, help="A day or a cron expression; repeatable."),
]
StartsAt = Annotated[str | None, typer.Option("--starts-at", metavar="TIME", help="No slot is earlier.")]
EndsAt = Annotated[str | None, typer.Option("--ends-at", metavar="TIME", help="No slot is later.")]
CatchUpOption = Annotated[CatchUpChoice | None, typer.Option("--catch-up", help="Which missed slots to run.")]
OverlapOption = Annotated[
    OverlapChoice | None, typer.Option("--overlap", help="What to do if an earlier run is not finished.")
]
Jitter = Annotated[str | None, typer.Option("--jitter", metavar="TIME", help="Start up to this much later.")]
PauseAfter = Annotated[int | None, typer.Option("--pause-after", metavar="N", help="Pause after N dead letters.")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Default: that of the task function.")]
Priority = Annotated[str | None, typer.Option("--priority", metavar="N", help="-10 to 100, low, medium or high.")]


def given_fields(
    cron: list[str] | None,
    every: str | None,
    timezone: str | None,
    exclude: list[str] | None,
    starts_at: str | None,
    ends_at: str | None,
    catch_up: str | None,
    overlap: str | None,
    jitter: str | None,
    pause_after: int | None,
    queue: str | None,
    priority: str | None,
) -> dict[str, Any]:
    """The fields of a schedule that were given."""
    given = {
        "cron": cron or None,
        "every": span("--every", every),
        "timezone": timezone,
        "exclude": exclude or None,
        "starts_at": future_moment("--starts-at", starts_at),
        "ends_at": future_moment("--ends-at", ends_at),
        "catch_up": catch_up and str(catch_up),
        "overlap": overlap and str(overlap),
        "jitter": span("--jitter", jitter),
        "pause_after": pause_after,
        "queue": queue,
        "priority": None if priority is None else value(priority),
    }
    return {name: each for name, each in given.items() if each is not None}
