"""The `tasklib` command: one file per command, and `app.py` that puts them together."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    from tasklib.executors.descriptors import open_standard_streams

    open_standard_streams()
    from tasklib.cli.app import run

    try:
        run()
    finally:
        _let_go_of_closed_pipes()


def _let_go_of_closed_pipes() -> None:
    # The reader of our output may have closed it. Python would notice when it flushes at exit, and report a failure.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
