"""`tasklib failures`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.dlq import SHORT_FINGERPRINT
from tasklib.cli.moments import past_moment, relative
from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_rows
from tasklib.observe.formatting import last_line

if TYPE_CHECKING:
    from tasklib.client.failures import FailureReport
    from tasklib.store.failures import FailureCause

_FIELDS_SAID = 2


@with_database
def failures(
    database: ChosenDatabase,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Since this time (ISO 8601), or a time ago such as 10m, 2h or 7d.")
    ] = "1h",
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time, or a time ago.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only tasks of this name.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE", help="Only tasks of this queue.")] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="HEX", help="Only this cause, by its fingerprint or the start of it.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=200, help="The maximum number of causes.")] = 20,
    json_: JsonLines = False,
) -> None:
    """Show what failed in a time range, by cause: attempts that are retried, and dead letters.

    Example: tasklib failures --since 10m
    """
    from tasklib.cli.report import note

    begin, end = past_moment("--since", since), past_moment("--until", until)
    assert begin is not None
    with database.connected() as client:
        report = client.failures(since=begin, until=end, name=name, queue=queue, fingerprint=fingerprint, limit=limit)
    if json_:
        for cause in report.causes:
            fields = [asdict(field) for field in report.fields.get(cause.fingerprint, [])]
            typer.echo(json.dumps({**asdict(cause), "is_new": report.is_new(cause), "fields": fields}, default=str))
        return
    titles = ("fingerprint", "attempts", "tasks", "dead", "name", "first", "last", "for", "error")
    rows = (_row(report, cause) for cause in report.causes)
    print_rows(titles, rows, none="no failures", numbers={"attempts", "tasks", "dead"})
    if report.back_to is not None and report.back_to > report.since:
        note(f"There are too many to read: only failures since {report.back_to.isoformat()} are counted.", "yellow")


def _row(report: FailureReport, cause: FailureCause) -> tuple[str, ...]:
    now, whole = datetime.now(UTC), not sys.stdout.isatty()
    first = cause.first_seen.isoformat() if whole else relative(cause.first_seen, now)
    return (
        cause.fingerprint if whole else cause.fingerprint[:SHORT_FINGERPRINT],
        str(cause.attempts),
        str(cause.tasks),
        str(cause.dead_letters),
        cause.name,
        f"{first} (new)" if report.is_new(cause) and not whole else first,
        cause.last_seen.isoformat() if whole else relative(cause.last_seen, now),
        _whom(report, cause),
        last_line(cause.error),
    )


def _whom(report: FailureReport, cause: FailureCause) -> str:
    """The values that most of its tasks share."""
    shared = [f for f in report.fields.get(cause.fingerprint, []) if f.values and 2 * f.values[0].tasks > f.tasks]
    return ", ".join(f"{f.key}={f.values[0].text[:40]}" for f in shared[:_FIELDS_SAID])
