"""The options of `tasklib schedule` that say what a schedule is, and the fields that they give."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import typer

from tasklib.cli.moments import future_moment, span
from tasklib.cli.option_groups import option_group
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


GivenFields: TypeAlias = Mapping[str, Any]
NO_FIELDS: GivenFields = MappingProxyType({})


def _fields(
    cron: CronOption = None,
    every: Every = None,
    timezone: Timezone = None,
    exclude: Exclude = None,
    starts_at: StartsAt = None,
    ends_at: EndsAt = None,
    catch_up: CatchUpOption = None,
    overlap: OverlapOption = None,
    jitter: Jitter = None,
    pause_after: PauseAfter = None,
    queue: Queue = None,
    priority: Priority = None,
) -> GivenFields:
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


with_schedule_fields = option_group("given", _fields)
"""Gives a command the options for the fields of a schedule, and the parameter `given`: those that were given."""
