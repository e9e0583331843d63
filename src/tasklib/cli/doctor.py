"""`tasklib doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.each_shard import each_shard
from tasklib.cli.options import ChosenDatabase, with_database

if TYPE_CHECKING:
    from rich.console import Console

    from tasklib.config import Config
    from tasklib.doctor.findings import Finding

_MARKS = {"ok": ("✓", "green"), "note": ("·", "cyan"), "warning": ("!", "bold yellow"), "critical": ("✗", "bold red")}
_EXIT_CODES = {"ok": 0, "note": 0, "warning": 1, "critical": 2}


@with_database
def doctor(
    database: ChosenDatabase,
    json_: Annotated[bool, typer.Option("--json", help="All findings as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and critical problems.")] = False,
) -> None:
    """Check TaskLib and its PostgreSQL for problems, in every shard, and suggest fixes.

    It changes nothing. Exit code 0: no problems; 1: warnings; 2: critical problems, or the database can't be reached.
    """
    from tasklib.doctor.findings import worst
    from tasklib.formatting import json_text

    found = {number: _examine(one) for number, one in each_shard(database.configured())}
    verdict = worst(finding for findings in found.values() for finding in findings)
    if json_:
        report = {"severity": verdict.value, "findings": _of_all(found)}
        typer.echo(json_text(report, indent=2))
    else:
        from rich.console import Console

        for number, findings in found.items():
            if number is not None:
                typer.echo(f"shard {number}")
            shown = [f for f in findings if not quiet or _EXIT_CODES[f.severity]]
            print_findings(Console(highlight=False), shown)
    raise typer.Exit(_EXIT_CODES[verdict])


def _examine(config: Config) -> list[Finding]:
    from tasklib.client.clients import Client
    from tasklib.doctor.run import examine

    with Client(config) as client:
        return examine(client)


def _of_all(found: Mapping[int | None, Sequence[Finding]]) -> list[dict[str, Any]]:
    """As JSON; of several shards each with the shard's number."""
    return [
        finding.as_dict() if number is None else {**finding.as_dict(), "shard": number}
        for number, findings in found.items()
        for finding in findings
    ]


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """The worst last, where the eye is."""
    from rich.padding import Padding
    from rich.text import Text

    from tasklib.cli.report import without_secrets
    from tasklib.formatting import printable

    def said(text: str, style: str = "") -> Text:
        return Text(printable(without_secrets(text)), style)

    for finding in sorted(findings, key=lambda f: f.severity.rank):
        mark, style = _MARKS[finding.severity]
        console.print(Text(f"{mark} ", style).append_text(said(finding.seen, style if finding.why else "")))
        if finding.why:
            console.print(Padding(said(finding.why, "dim"), (0, 0, 0, 2)))
        if finding.action:
            console.print(Padding(Text("→ ").append_text(said(finding.action)), (0, 0, 0, 2)))
