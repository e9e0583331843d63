"""Asking before something that can't be taken back."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be changed.")]


def confirm(what: str, *, yes: bool, has_dry_run: bool = True) -> None:
    """Go on if the user says so: by --yes, or in a terminal when asked."""
    from tasklib.cli.report import CommandError

    if yes:
        return
    if not sys.stdin.isatty():
        preview = ", or --dry-run to preview it" if has_dry_run else ""
        raise CommandError(f"this would {what}. Add --yes to do it{preview}.")
    if not typer.confirm(f"This will {what}. Continue?", err=True):
        raise typer.Exit(1)
