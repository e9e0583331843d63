"""The `tasklib` command: one file per command, and `app.py` that puts them together."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from tasklib.cli.app import run

    run()
