"""Standard streams that are always there, and never fail for want of a character."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed, and let none fail on a character it lacks.

    A closed one would be given to the next socket or file that is opened, and whatever prints would write into that.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is given: this one, as those below are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python sets a stream to None if it was closed when the interpreter started. The new one stays open to the end.
    sys.stdin = sys.stdin or open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stdout = _patient(sys.stdout, 1)
    sys.stderr = _patient(sys.stderr, 2)


def _patient(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is None:
        return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:  # a program may have put something else there
        reconfigure(errors="backslashreplace")
    return stream
